"""A work queue for programs with threads: `WorkQueue` without asyncio.

    def work(job):
        send(job.value)                           # ack at its end; an exception: again after a pause

    with BlockingWorkQueue("localhost:9092", "jobs", group="mailers", dead_letter="dlq.jobs") as queue:
        queue.run(work, threads=8)

A `WorkQueue` lives in a thread of the library's, with an event loop that fetches jobs and extends their locks whatever
your code does. So the promises are the same. One thing differs: a thread cannot be cancelled. After `time_limit` the
lock is not extended any more, and another worker may get the job; check `job.valid` before each effect.

The thread is a daemon. At the interpreter's exit, queues that are open give their jobs back, if that takes less than
two seconds. A child of fork does not have the thread; it needs queues of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from kohort.client.concurrency.loop_thread import LateLoopThread
from kohort.client.errors import Closed, Misuse
from kohort.client.metadata import TopicPartition
from kohort.client.queue.job import Job
from kohort.client.queue.options import QueueOptions
from kohort.client.queue.work_queue import Headers, WorkQueue

T = TypeVar("T")


class BlockingJob:
    """A job of a `BlockingWorkQueue`. Fields and calls are those of `Job`; calls may come from any thread."""

    __slots__ = ("_job", "_queue")

    def __init__(self, queue: BlockingWorkQueue, job: Job) -> None:
        self._queue = queue
        self._job = job

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def topic(self) -> str:
        return self._job.topic

    @property
    def topic_id(self) -> bytes:
        """As Job.topic_id."""
        return self._job.topic_id

    @property
    def partition(self) -> int:
        return self._job.partition

    @property
    def offset(self) -> int:
        return self._job.offset

    @property
    def key(self) -> bytes | None:
        return self._job.key

    @property
    def value(self) -> bytes | None:
        return self._job.value

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._job.headers

    @property
    def timestamp(self) -> int:
        """As Job.timestamp."""
        return self._job.timestamp

    @property
    def is_open(self) -> bool:
        """As Job.is_open."""
        return self._job.is_open

    @property
    def deliveries(self) -> int:
        """As Job.deliveries."""
        return self._job.deliveries

    @property
    def valid(self) -> bool:
        """As Job.valid."""
        return self._job.valid

    @property
    def deadline(self) -> float:
        """As Job.deadline."""
        return self._job.deadline

    def ack(self) -> None:
        """As Job.ack."""
        self._queue.do("ack", self._job.ack)

    def release(self) -> None:
        """As Job.release."""
        self._queue.do("release", self._job.release)

    def retry(self, after: float | None = None, reason: str = "") -> None:
        """As Job.retry."""
        self._queue.do("retry", lambda: self._job.retry(after, reason))

    def reject(self, reason: str = "") -> None:
        """As Job.reject."""
        self._queue.do("reject", lambda: self._job.reject(reason))

    def extend(self) -> None:
        """As Job.extend."""
        self._queue.do("extend", self._job.extend)

    def __enter__(self) -> Self:
        if not self._job.is_open:
            raise Misuse(f"{self!r} has an outcome already")
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        return self._queue.do("with", lambda: self._job.conclude(error))


class BlockingWorkQueue:
    """One worker of a queue, or a program that puts jobs into it. Settings and errors are those of `WorkQueue`; calls
    may come from any thread."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topics: str | Sequence[str] | Mapping[str, float],
        *,
        group: str | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        self._inner = WorkQueue(bootstrap_servers, topics, group=group, **options)
        self._thread = LateLoopThread(
            f"kohort-queue-{self.topics[0]}",
            self._inner.close,
            "queue",
            f"the queue {', '.join(self.topics)} is closed",
        )
        self._stopping = False
        """`run` has been interrupted."""
        self._working: set[threading.Thread] = set()
        """The threads of `run`."""

    def __repr__(self) -> str:
        return f"<blocking {repr(self._inner)[1:]}"

    @property
    def group_id(self) -> str:
        """As WorkQueue.group_id."""
        return self._inner.group_id

    @property
    def topics(self) -> tuple[str, ...]:
        return self._inner.topics

    @property
    def member_id(self) -> str | None:
        """As WorkQueue.member_id."""
        return self._inner.member_id

    @property
    def open_jobs(self) -> int:
        """As WorkQueue.open_jobs."""
        return self._inner.open_jobs

    @property
    def waiting_jobs(self) -> int:
        """As WorkQueue.waiting_jobs."""
        return self._inner.waiting_jobs

    @property
    def failure(self) -> Exception | None:
        """As WorkQueue.failure."""
        return self._inner.failure

    def put(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        topic: str | None = None,
        partition: int | None = None,
        delay: float = 0.0,
    ) -> TopicPartition:
        """As WorkQueue.put."""
        inner = self._inner
        return self.do(
            "put", lambda: inner.put(value, key=key, headers=headers, topic=topic, partition=partition, delay=delay)
        )

    def take(self, concurrency: int = 1) -> Iterator[BlockingJob]:
        """As WorkQueue.take; work on several jobs in threads of your own."""
        self.begin(concurrency)
        while (job := self.next()) is not None:
            yield job

    def begin(self, concurrency: int) -> None:
        """As WorkQueue.begin."""
        self.do("take", lambda: self._inner.begin(concurrency))

    def next(self, timeout: float | None = None) -> BlockingJob | None:
        """The next job. None when the queue is closed, or after `timeout` seconds. After `begin`."""

        async def next_job() -> Job | None:
            try:
                async with asyncio.timeout(timeout):
                    return await self._inner.next()
            except TimeoutError:
                return None

        try:
            job = self.do("next", next_job)
        except Closed:
            return None
        return None if job is None else BlockingJob(self, job)

    def run(self, handler: Callable[[BlockingJob], Any], threads: int = 1) -> None:
        """Call `handler(job)` for each job, in so many threads. A job whose handler returns is done; what it raises is
        handled as in `with job`. Lasts until another thread closes the queue, or until it is interrupted: then no
        further job begins. Raises as `take`; Misuse if the handler is a coroutine function."""
        if inspect.iscoroutinefunction(handler):
            raise Misuse("run: the handler is a coroutine function: those are for WorkQueue")
        self.begin(threads)
        failures: list[BaseException] = []
        self._stopping = False

        def work() -> None:
            try:
                while not self._stopping and (job := self.next()) is not None:
                    with job:
                        handler(job)
            except BaseException as error:
                failures.append(error)
            finally:
                self._working.discard(threading.current_thread())

        started = [threading.Thread(target=work, name=f"kohort-job-{number}", daemon=True) for number in range(threads)]
        self._working.update(started)
        for thread in started:
            thread.start()
        try:
            for thread in started:
                thread.join()
        finally:
            self._stopping = True
        if failures:
            raise failures[0]

    def close(self) -> None:
        """As WorkQueue.close; ends the thread. May be called in any thread but those of `run`, also twice."""
        if threading.current_thread() in self._working:
            raise Misuse("close was called in the work on a job, for whose end it waits; call it in another thread")
        self._thread.end("close", self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do(self, call: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the thread of the queue's event loop; interrupting the wait cancels it. For the library
        itself."""
        return self._thread.run(call, work)
