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
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Any, Self, Unpack

from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster
from kohort.client.consumer.lookups import Lookups
from kohort.client.errors import Closed, LockLost, Misuse, error_code
from kohort.client.metadata import TopicPartition
from kohort.client.queue import set_up
from kohort.client.queue.acquired import AcquiredRecord
from kohort.client.queue.backlog import Backlog
from kohort.client.queue.broker_session import BrokerSession, Held, Wanted
from kohort.client.queue.dead_letters import dead_letter
from kohort.client.queue.job import Job
from kohort.client.queue.options import QueueOptions, checked
from kohort.client.queue.puts import Puts
from kohort.client.queue.share_member import Member
from kohort.client.queue.share_session import REJECT, RELEASE, Place
from kohort.client.wire.discovery import Discovery
from kohort.wire.batches import NewRecord

MOST_REMEMBERED = 10_000
"""Outcomes that could not be stored, for the case that their jobs come back."""
UNCONFIRMED = "the lock had ended: the job may be delivered again"

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
Handler = Callable[[Job], Awaitable[Any]]

log = logging.getLogger("kohort.client")


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
        self._discovery = Discovery(
            bootstrap_servers,
            client_id=self._options["client_id"],
            connect_timeout_ms=self._options["connect_timeout_ms"],
            request_timeout_ms=self._options["request_timeout_ms"],
            security=self._settings.security,
        )
        self._lookups = Lookups(f"kohort-ask-{group}", self._cluster())
        self._putting = Lookups(f"kohort-put-{group}", self._cluster())
        self._puts = Puts(self._putting)
        self._backoff = Backoff(self._options["retry_backoff"], self._options["retry_backoff_max"])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_topics: asyncio.Task[None] | None = None
        self._member: Member | None = None
        self._joining = asyncio.Lock()
        self._backlog: Backlog[Job] = Backlog(self._options["key_concurrency"])
        self._concurrency = 0
        self._jobs: dict[tuple[Place, int], Job] = {}
        """All without an outcome, and those that wait for their retry."""
        self._open: set[Job] = set()
        """Handed out, without an outcome."""
        self._waiting: dict[Job, asyncio.TimerHandle] = {}
        """They are given back when the timer fires."""
        self._remembered: OrderedDict[tuple[Place, int], int] = OrderedDict()
        """Outcomes that could not be stored."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Calls that wait for a job."""
        self._idle = asyncio.Event()
        """Set when no job is worked on."""
        self._idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self._closing = False
        self._closed: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        if self._closing:
            state = "closed"
        elif self._member is None:
            state = "not taking jobs"
        else:
            state = f"{len(self._open)} jobs at work"
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
        return None if self._member is None else self._member.member_id

    @property
    def open_jobs(self) -> int:
        """How many jobs are worked on here."""
        return len(self._open)

    @property
    def waiting_jobs(self) -> int:
        """How many jobs wait here: for their retry, for another job of their key, or for a slot."""
        return len(self._waiting) + len(self._backlog)

    @property
    def failure(self) -> Exception | None:
        """The error that ended this worker; every later call raises it."""
        return self._failure

    # -- putting

    async def put(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        topic: str | None = None,
        partition: int | None = None,
    ) -> TopicPartition:
        """Put a job into the queue; durable when this returns. Texts are UTF-8. Returns its topic and partition.

        `topic` is one of the queue's, the first by default. A retry after a lost answer may put it twice. Raises
        KafkaError, ValueError, Closed.
        """
        self._enter("put")
        chosen = self.topics[0] if topic is None else topic
        if chosen not in self._settings.weights:
            raise ValueError(f"put: {chosen!r} is no topic of the queue; it has {', '.join(self.topics)}")
        await self._ready()
        given = headers.items() if isinstance(headers, Mapping) else headers
        record = NewRecord(_bytes(key), _bytes(value), _now_ms(), tuple((name, _bytes(text)) for name, text in given))
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
        self._concurrency = concurrency
        await self._ready()
        async with self._joining:
            if self._member is None and not self._closing:
                settings = self._settings
                await self._lookups.run(lambda cluster: set_up.configure_group(cluster, settings))
                self._member = Member(self, settings, self._discovery, self._lookups)

    async def next(self) -> Job | None:
        """The next job when there is one and a slot for it. None when the queue is closed. After `begin`."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closing:
                return None
            if (job := self._pop()) is not None:
                return job
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._changed()
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()  # another one may take what woke this one
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

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

    # -- the outcomes of jobs

    async def finish(self, job: Job, kind: int) -> None:
        """As Job.ack and Job.release."""
        self._conclude(job)
        await self._settle(job, kind)

    async def postpone(self, job: Job, after: float | None, reason: str) -> None:
        """As Job.retry."""
        if job.deliveries >= self._options["max_deliveries"]:
            await self.reject(job, reason)
            return
        pause = self._backoff.pause(job.deliveries, random.random()) if after is None else max(after, 0.0)
        self._conclude(job)
        if not self._is_valid(job):
            raise self._lost_error(job)
        if pause == 0 or self._closing:
            await self._settle(job, RELEASE)
            return
        job.held.extended_until = inf
        self._jobs[_place(job)] = job
        self._waiting[job] = self._running_loop().call_later(pause, self._again, job)

    async def reject(self, job: Job, reason: str) -> None:
        """As Job.reject."""
        self._check_open(job)
        topic = self._options["dead_letter"]
        if topic is None:
            log.error("%r is dropped after delivery %d: %s", job, job.deliveries, reason or "it was rejected")
        else:
            job.held.extended_until = inf
            record = dead_letter(job, self.group_id, reason)
            try:
                place = await self._puts.put(topic, record, None if job.key is not None else job.partition)
            except BaseException:
                if job.is_open:
                    self._conclude(job)
                    self._spawn(self._settle_quietly(job, RELEASE))
                raise
            log.warning("%r is a dead letter in %s-%d: %s", job, *place, reason or "it was rejected")
        self._conclude(job)
        await self._settle(job, REJECT)

    async def extend(self, job: Job) -> None:
        """As Job.extend."""
        self._check_open(job)
        held = job.held
        error = await held.session.extend(held) if self._is_valid(job) else -1
        if error:
            raise self._lost_error(job, error)

    def _check_open(self, job: Job) -> None:
        if not job.is_open:
            raise Misuse(f"{job!r} has an outcome already")

    def _conclude(self, job: Job) -> None:
        """The work on the job has ended: its slot is free."""
        self._check_open(job)
        job.is_open = False
        self._jobs.pop(_place(job), None)
        if job in self._open:
            self._open.discard(job)
            self._backlog.ended(job)
            if not self._open:
                self._idle.set()
        self._wake()

    async def _settle(self, job: Job, kind: int) -> None:
        held = job.held
        if not self._is_valid(job):
            self._remember(job, kind)
            raise self._lost_error(job)
        error = await held.session.settle(held, kind)
        if error:
            self._remember(job, kind)
            raise self._lost_error(job, error)

    async def _settle_quietly(self, job: Job, kind: int) -> None:
        try:
            await self._settle(job, kind)
        except LockLost as lost:
            log.info("%s", lost)

    def _remember(self, job: Job, kind: int) -> None:
        if kind != RELEASE:
            self._remembered[_place(job)] = kind
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)

    def _lost_error(self, job: Job, error: int = -1) -> LockLost:
        code = error_code(error) if error > 0 else None
        return LockLost(code, f"{job!r}: {UNCONFIRMED}" + (f" ({code.name})" if code is not None else ""))

    def _is_valid(self, job: Job) -> bool:
        return job.held.is_valid(self._running_loop().time())

    def _again(self, job: Job) -> None:
        """The pause before the job's retry is over."""
        del self._waiting[job]
        self._jobs.pop(_place(job), None)
        self._spawn(self._settle_quietly(job, RELEASE))

    async def _dead(self, job: Job) -> None:
        """A job came once more than it may: the worker that had it last has died."""
        try:
            await self.reject(job, f"{job.deliveries - 1} deliveries had no outcome")
        except Exception as error:
            log.warning("%r: %s", job, error)

    # -- what the sessions call

    def wanted(self, session: BrokerSession) -> Wanted:
        """What the session's next fetch asks for."""
        sessions = [] if self._member is None else self._member.sessions
        waiting = len(self._waiting) + self._backlog.blocked
        if not self._waiters or not sessions or self._closing or waiting >= self._options["max_waiting"]:
            return Wanted((), 0)
        free = self._capacity() - len(self._open) - self._backlog.ready
        most = ceil(free / len(sessions)) if free > 0 else 0
        if len(self._settings.weights) == 1:
            return Wanted(session.places, most)
        topics = {self.name_of(place) for place in session.places}
        topic = session.turns.next(topics) if most else None
        if topic is None:
            return Wanted(session.places, most)
        return Wanted([place for place in session.places if self.name_of(place) == topic], most, topic)

    def acquired(self, session: BrokerSession, place: Place, records: Sequence[AcquiredRecord]) -> None:
        """The session has locked records."""
        for record, _ in records:
            held = session.held[place, record.offset]
            former = self._jobs.get((place, record.offset))
            if former is not None:  # it is worked on: the work goes on with this lock
                former.held = held
                continue
            kind = self._remembered.pop((place, record.offset), None)
            topic = self.name_of(place)
            job = Job(self, held, topic, record.key, record.value, record.headers, record.timestamp, 0)
            if kind is not None:
                job.is_open = False
                self._spawn(self._settle_quietly(job, kind))
                continue
            if self._closing:
                continue  # the end of the session gives it back
            self._jobs[place, record.offset] = job
            if job.deliveries > self._options["max_deliveries"] and self._options["dead_letter"] is not None:
                self._spawn(self._dead(job))
            else:
                self._backlog.add(job)
        self._wake()

    def fetched(self, session: BrokerSession, asked: Wanted, count: int) -> None:
        """The answer to a fetch."""
        session.turns.fetched(asked.topic, count)

    def lost(self, held: Held) -> None:
        """A lock has ended without an outcome."""
        key = held.place, held.offset
        job = self._jobs.get(key)
        if job is None or job.held is not held:
            return
        timer = self._waiting.pop(job, None)
        if timer is not None:
            timer.cancel()
            del self._jobs[key]
        elif job not in self._open:
            if self._backlog.remove(job):
                del self._jobs[key]
        else:
            log.info("%r", job)

    def leaders_changed(self) -> None:
        if self._member is not None:
            self._member.leaders_changed()

    def failed(self, error: Exception) -> None:
        """The worker cannot go on."""
        if self._failure is None and not self._closing:
            self._failure = error
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def extension_of(self, now: float) -> float:
        """Until when the lock of a job that comes now is extended."""
        limit = self._options["time_limit"]
        return inf if limit is None else now + limit

    def name_of(self, place: Place) -> str:
        return place[0].hex() if self._member is None else self._member.name_of(place)

    # -- inside

    def _capacity(self) -> int:
        return self._concurrency

    def _pop(self) -> Job | None:
        if len(self._open) >= self._capacity():
            return None
        job = self._backlog.pop()
        if job is not None:
            self._open.add(job)
            self._idle.clear()
        return job

    def _wake(self) -> None:
        """Wake as many calls as there are jobs and slots for them, and let the sessions look for more to do."""
        count = min(self._backlog.ready, self._capacity() - len(self._open))
        for waiter in self._waiters:
            if count <= 0:
                break
            if not waiter.done():
                waiter.set_result(None)
            count -= 1
        self._changed()

    def _changed(self) -> None:
        if self._member is not None:
            self._member.changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for job in [*self._waiting, *self._backlog.drain()]:
            timer = self._waiting.pop(job, None)
            if timer is not None:
                timer.cancel()
            self._jobs.pop(_place(job), None)
            self._spawn(self._settle_quietly(job, RELEASE))
        try:
            async with asyncio.timeout(self._options["close_timeout"]):
                await self._idle.wait()
        except TimeoutError:
            log.warning("group %s: %d jobs are given back while they are worked on", self._group, len(self._open))
            for job in list(self._open):
                self._spawn(self._settle_quietly(job, RELEASE))
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        async with self._joining:
            if self._member is not None:
                await self._member.close()
        await self._puts.flush()
        self._lookups.close()
        self._putting.close()

    async def _ready(self) -> None:
        """The topics exist."""
        if self._has_topics is None:
            settings = self._settings
            create = self._lookups.run(lambda cluster: set_up.create_topics(cluster, settings))
            self._has_topics = self._running_loop().create_task(create)
        try:
            await asyncio.shield(self._has_topics)
        except Exception:
            self._has_topics = None  # the next call tries again
            raise

    def _enter(self, call: str) -> None:
        """Checks that every call begins with."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise Misuse(f"{call}: no event loop runs in this thread") from None
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise Misuse(f"{call}: this queue belongs to another event loop, the one in which it was first used")
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise Closed(f"{call}: the queue {', '.join(self.topics)} is closed")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(
            self._bootstrap,
            options["client_id"],
            request_timeout_ms=options["request_timeout_ms"],
            api_timeout_ms=options["api_timeout_ms"],
            bootstrap_timeout_ms=options["bootstrap_timeout_ms"],
            connect_timeout_ms=options["connect_timeout_ms"],
            security=options["security"],
        )


def _place(job: Job) -> tuple[Place, int]:
    return job.held.place, job.held.offset


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
