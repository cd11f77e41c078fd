"""A job: one record that this worker has locked, until the job has an outcome.

    async with job:                  # ack at the end
        ...                          # an exception: deliver it again after a pause; at the last delivery, a dead letter
        raise Retry(after=5)         # deliver it again in 5 seconds
        raise Reject("no address")   # a dead letter at once

A job has one outcome. `LockLost` means that the outcome could not be stored, so the job may be delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol, Self

from kohort.client.errors import KafkaError, LockLost, Misuse
from kohort.client.queue.broker_session import Held
from kohort.client.queue.share_session import ACCEPT, RELEASE

log = logging.getLogger("kohort.client")


class Retry(Exception):
    """Raised in the work on a job: deliver the job again, after this many seconds; None: the queue's back-off."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__(after)
        self.after = after


class Reject(Exception):
    """Raised in the work on a job: it goes to the dead-letter topic at once. `reason` is written there."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Desk(Protocol):
    """The queue, as its jobs see it."""

    async def finish(self, job: Job, kind: int) -> None: ...
    async def postpone(self, job: Job, after: float | None, reason: str) -> None: ...
    async def reject(self, job: Job, reason: str) -> None: ...
    async def extend(self, job: Job) -> None: ...


class Job:
    """One record of the queue. Belongs to the event loop of its queue; the fields may be read in any thread."""

    __slots__ = (
        "_desk",
        "_earlier",
        "_loop",
        "headers",
        "held",
        "is_open",
        "key",
        "offset",
        "partition",
        "timestamp",
        "topic",
        "topic_id",
        "value",
    )

    def __init__(
        self,
        desk: Desk,
        held: Held,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp: int,
        earlier: int,
    ) -> None:
        self._desk = desk
        self._earlier = earlier
        self._loop = asyncio.get_running_loop()
        self.held = held
        """The lock; for the library itself."""
        self.is_open = True
        """False when the job has an outcome."""
        self.topic = topic
        self.topic_id, self.partition = held.place
        """`topic_id`, `partition` and `offset` together name the job for ever, also if the topic is created anew."""
        self.offset = held.offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        """When it was put, in milliseconds since 1970."""

    def __repr__(self) -> str:
        state = "finished" if not self.is_open else "open" if self.valid else "lock lost"
        return f"<job {self.topic}-{self.partition}, offset {self.offset}, delivery {self.deliveries}, {state}>"

    @property
    def deliveries(self) -> int:
        """How often the job was delivered, with this time; retries by way of the delay topic count too."""
        return self._earlier + self.held.deliveries

    @property
    def valid(self) -> bool:
        """True if no other worker can have the job at this instant, by the clock."""
        return self.held.is_valid(self._loop.time())

    @property
    def deadline(self) -> float:
        """When the lock ends if it is not extended any more, in seconds since 1970."""
        return time.time() + self.held.until - self._loop.time()

    async def ack(self) -> None:
        """The job is done. Durable when this returns. Raises LockLost; Misuse if it has an outcome already."""
        await self._desk.finish(self, ACCEPT)

    async def release(self) -> None:
        """Give the job back at once, for this or another worker. Counts as a delivery. Raises LockLost, Misuse."""
        await self._desk.finish(self, RELEASE)

    async def retry(self, after: float | None = None, reason: str = "") -> None:
        """Deliver the job again after so many seconds; None: the queue's back-off. At the last delivery it becomes a
        dead letter with this `reason`. Raises LockLost, Misuse."""
        await self._desk.postpone(self, after, reason)

    async def reject(self, reason: str = "") -> None:
        """Write the job to the dead-letter topic with this reason, and finish it. Without a dead-letter topic it is
        dropped. Raises LockLost, Misuse; KafkaError if the dead letter cannot be written now: then the job stays
        locked here, and it is tried again after `retry_backoff_max`."""
        await self._desk.reject(self, reason)

    async def extend(self) -> None:
        """Renew the lock now, for the group's lock duration from now. Raises LockLost, Misuse."""
        await self._desk.extend(self)

    async def __aenter__(self) -> Self:
        if not self.is_open:
            raise Misuse(f"{self!r} has an outcome already")
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        return await self.conclude(error)

    async def conclude(self, error: BaseException | None) -> bool:
        """End the work on the job; `error` is the exception that the work raised. True if the exception is handled
        here: any exception but those that end a program or a task."""
        if not self.is_open:
            if isinstance(error, Exception):
                log.error("%r: the work on it raised an exception after the outcome", self, exc_info=error)
            return error is None or isinstance(error, Exception)
        try:
            match error:
                case None:
                    await self.ack()
                case Retry():
                    await self.retry(error.after, "asked for another delivery")
                case Reject():
                    await self.reject(error.reason)
                case LockLost():
                    raise error
                case Exception():
                    log.warning("%r: the work on it raised an exception", self, exc_info=error)
                    await self.retry(None, f"{type(error).__name__}: {error}")
                case _:
                    await self.release()
        except LockLost as lost:
            log.warning("%s", lost)
        except KafkaError as failed:
            log.error("%r: its dead letter cannot be written: %s; the worker tries again", self, failed)
        return error is None or isinstance(error, Exception)
