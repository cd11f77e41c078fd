"""A work queue on a share group (KIP-932), for asyncio: jobs are handed out one by one, to any number of workers.

    queue = WorkQueue("localhost:9092", "jobs", group="mailers", max_deliveries=5, dead_letter="dlq.jobs")
    async with queue:
        async for job in queue.take(concurrency=50):
            async with job:                       # ack at its end; an exception: again after a pause
                await send(job.value)

Each record is locked for one worker. The worker renews the lock while it works, so a slow job is not handed out twice.
An exception delivers the job again, after a pause that doubles; after `max_deliveries` it becomes a dead letter. A
worker that dies loses its connection, and the broker gives its jobs to others at once.

While a job waits for its retry, this worker holds its lock and renews it. So the pause ends early if the worker ends,
and no slot is used meanwhile.

If the connection to a broker breaks, all locks there are lost: `job.valid` is False. The work goes on. If this worker
gets the same job again while it works on it, the work has the new lock; if it had finished the job and could not say
so, it says so now. If another worker gets the job, it is done twice, and the outcome of the first raises `LockLost`.
Delivery is at least once; docs/how-to/work-queues.md says how an effect happens once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

from kohort.client.concurrency.loop_thread import entered_loop
from kohort.client.connection_options import cluster_of, discovery_of
from kohort.client.consumer.lookups import Lookups
from kohort.client.errors import Closed, Misuse
from kohort.client.metadata import TopicPartition
from kohort.client.queue import set_up
from kohort.client.queue.delays import delayed, now_ms
from kohort.client.queue.job import Job
from kohort.client.queue.options import QueueOptions, checked
from kohort.client.queue.puts import Puts
from kohort.client.queue.share_member import Member
from kohort.client.queue.worker import Worker
from kohort.wire.batches import NewRecord

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Handler = Callable[[Job], Awaitable[Any]]


class WorkQueue:
    """One worker of a queue, or a program that puts jobs into it. See the module's text, and `QueueOptions`.

    `topics` is a topic, or several, with weights if it is a mapping: `{"jobs.urgent": 5, "jobs": 1}`; new jobs go to
    the first. `group` may be left out where jobs are only put. The group's settings are set when the first job is
    taken. Raises ValueError, TypeError for settings that cannot be. Belongs to the event loop in which it is entered.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topics: str | Sequence[str] | Mapping[str, float],
        *,
        group: str | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        self._settings = checked(topics, "(none)" if group is None else group, options)
        self._options = self._settings.options
        self._group = group
        self._bootstrap = bootstrap_servers
        self._discovery = discovery_of(bootstrap_servers, self._options)
        self._lookups = Lookups(f"kohort-ask-{group}", cluster_of(bootstrap_servers, self._options))
        self._putting = Lookups(f"kohort-put-{group}", cluster_of(bootstrap_servers, self._options))
        self._puts = Puts(self._putting)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._has_topics: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()
        self._background: list[asyncio.Task[None]] = []
        """The share in the group's permits, and in its delayed jobs."""
        self._closing = False
        self._closed: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        if self._closing:
            state = "closed"
        elif self.member_id is None:
            state = "not taking jobs"
        else:
            state = f"{self.open_jobs} jobs at work"
        of_group = "" if self._group is None else f" of group {self._group!r}"
        return f"<work queue {', '.join(self._settings.weights)!r}{of_group}, {state}>"

    # -- what is known; from any thread

    @property
    def group_id(self) -> str:
        """The share group; "" if there is none."""
        return self._group or ""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._settings.weights)

    @property
    def member_id(self) -> str | None:
        """None before the first job is taken."""
        worker = self._worker
        return None if worker is None or worker.member is None else worker.member.member_id

    @property
    def open_jobs(self) -> int:
        """How many jobs are worked on here."""
        return 0 if self._worker is None else len(self._worker.open)

    @property
    def waiting_jobs(self) -> int:
        """How many jobs wait here: for their retry, for another job of their key, or for a slot."""
        return 0 if self._worker is None else self._worker.waiting

    @property
    def failure(self) -> Exception | None:
        """The error that ended this worker; every later call raises it."""
        return None if self._worker is None else self._worker.failure

    # -- putting

    async def put(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        topic: str | None = None,
        partition: int | None = None,
        delay: float = 0.0,
    ) -> TopicPartition:
        """Put a job into the queue; durable when this returns. Texts are UTF-8. Returns its topic and partition.

        `topic` is one of the queue's, the first by default. With a `delay`, in seconds, the job waits in the delay
        topic, and is moved to its topic by a worker of the group when the time has come. A retry after a lost answer
        may put a job twice. Raises KafkaError, ValueError, Closed; Misuse for a delay without a delay topic.
        """
        self._enter("put")
        chosen = self.topics[0] if topic is None else topic
        if chosen not in self._settings.weights:
            raise ValueError(f"put: {chosen!r} is no topic of the queue; it has {', '.join(self.topics)}")
        delay_topic = self._options["delay_topic"]
        if delay > 0 and delay_topic is None:
            raise Misuse("put: a delay needs a delay topic: WorkQueue(..., delay_topic=...)")
        await self._ready()
        given = headers.items() if isinstance(headers, Mapping) else headers
        record = NewRecord(_bytes(key), _bytes(value), now_ms(), tuple((name, _bytes(text)) for name, text in given))
        if delay > 0 and delay_topic is not None:
            await self._puts.put(delay_topic, delayed(chosen, record, now_ms() + int(delay * 1000)), 0)
            return delay_topic, 0
        return await self._puts.put(chosen, record, partition)

    # -- taking

    async def take(self, concurrency: int = 1) -> AsyncIterator[Job]:
        """The jobs, one after the other, as long as fewer than `concurrency` of them have no outcome. Work on several
        at a time in tasks: `tasks.create_task(work(job))`. Ends when the queue is closed.

        Jobs are fetched only while a call waits for one. Raises ValueError; KafkaError, if the worker cannot go on.
        """
        await self.begin(concurrency)
        while (job := await self.next()) is not None:
            yield job

    async def run(self, handler: Handler, concurrency: int = 1) -> None:
        """Call the coroutine `handler(job)` for each job, so many at a time. A job whose handler returns is done; what
        it raises is handled as in `async with job`. Lasts until the queue is closed or the call is cancelled, which
        cancels the handlers and gives their jobs back. Raises as `take`."""
        await self.begin(concurrency)
        workers = [asyncio.create_task(self._work(handler)) for _ in range(concurrency)]
        try:
            for done in asyncio.as_completed(workers):
                await done
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    async def _work(self, handler: Handler) -> None:
        while (job := await self.next()) is not None:
            async with job, asyncio.timeout(self._options["time_limit"]):
                await handler(job)

    async def begin(self, concurrency: int) -> None:
        """Join the group, if that is to be done, and let so many jobs be open at a time. For `next`."""
        self._enter("take")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it must be above 0")
        if self._group is None:
            raise Misuse("take: the queue has no group; WorkQueue(..., group=...)")
        await self._ready()
        async with self._joining:
            worker = self._begun()
            worker.concurrency = concurrency
            worker.reset()
            if worker.member is None and not self._closing:
                await self._join(worker)

    async def next(self) -> Job | None:
        """The next job when there is one and a slot for it. None when the queue is closed. After `begin`."""
        return await self._begun().next()

    async def _join(self, worker: Worker) -> None:
        settings = self._settings
        await self._lookups.run(lambda cluster: set_up.configure_group(cluster, settings))
        worker.member = Member(worker, settings, self._discovery, self._lookups)
        if settings.options["group_concurrency"] is not None:
            from kohort.client.queue.permits import Permits  # as the next import: only where it is used

            permits = Permits(settings, self._bootstrap, worker.reset, lambda: len(worker.open))
            worker.permits, worker.job_ended = permits.count, permits.job_ended
            self._in_background(permits.run(), worker)
        if settings.options["delay_topic"] is not None:
            from kohort.client.queue.delay_mover import move_delayed

            self._in_background(move_delayed(settings, self._bootstrap), worker)

    def _in_background(self, work: Coroutine[Any, Any, None], worker: Worker) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                worker.failed(error)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(ended)
        self._background.append(task)

    async def close(self) -> None:
        """End `take` and `run`, wait `close_timeout` for the jobs that are worked on, give all others back at once, and
        leave the group. What is put is written first. Closing twice does nothing."""
        if self._closed is None:
            self._closing = True
            self._closed = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closed)

    async def __aenter__(self) -> Self:
        self._enter("async with")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- inside

    async def _close(self) -> None:
        async with self._joining:
            if self._worker is not None:
                await self._worker.close()
            for task in self._background:
                task.cancel()
            if self._background:
                await asyncio.wait(self._background)
        await self._puts.flush()
        self._lookups.close()
        self._putting.close()

    def _begun(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._settings, self._puts)
        return self._worker

    async def _ready(self) -> None:
        """The topics exist."""
        if self._has_topics is None:
            settings = self._settings
            create = self._lookups.run(lambda cluster: set_up.create_topics(cluster, settings))
            self._has_topics = asyncio.get_running_loop().create_task(create)
        try:
            await asyncio.shield(self._has_topics)
        except Exception:
            self._has_topics = None  # the next call tries again
            raise

    def _enter(self, call: str) -> None:
        """Checks that every call begins with."""
        self._loop = entered_loop(call, self._loop, "queue")
        if self.failure is not None:
            raise self.failure
        if self._closing:
            raise Closed(f"{call}: the queue {', '.join(self.topics)} is closed")


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
