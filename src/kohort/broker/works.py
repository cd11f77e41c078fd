"""Answers under way: they are made in steps, and their memory is bounded over all connections.

Each step says by how many bytes it has made its answer larger. Above half of the limit, only one answer goes on, and
the others wait until it is done: two hundred clients that ask for a large topic at once get their answers one after the
other. Then the answer that has waited longest goes on. An answer that has not begun waits only above three quarters of
the limit, because most of them are small. Above the limit, the connection with the largest answer is closed, as with
unread answers; if clients do not read, one of theirs. Both share queued.max.response.bytes (server/outflow.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kohort.broker.apis import CHANGES, PRODUCE
from kohort.broker.connection import Connection, Work
from kohort.broker.request import STEP_BYTES, InSteps, RequestContext
from kohort.broker.waits.reads import Read
from kohort.coordinator.events import RequestId

REQUEST_GROWS = 8
"""A decoded request takes about so many times the bytes of its frame, except Produce, which is hardly more than its
records."""
LARGE_STEP_BYTES = 65_536
"""Answers with such steps wait between them. Small ones are made whole."""
UNFINISHED = object()


def request_size(context: RequestContext, frame: bytes) -> int:
    """About the memory of a decoded request."""
    return len(frame) if context.api_key == PRODUCE.key else REQUEST_GROWS * len(frame)


class Works:
    def __init__(self, limit: int, resume: Callable[[Connection], None]) -> None:
        """`resume` is told of a connection whose answer goes on."""
        self.limit = limit
        """What unread answers leave of queued.max.response.bytes."""
        self._resume = resume
        self._connections: dict[Connection, None] = {}
        self._held: dict[Connection, None] = {}
        """Those that wait until others are done, the longest first."""
        self._first: Connection | None = None
        """The one whose answer goes on while there is little room: it is made, and then encoded."""
        self._waiting: dict[RequestId, Connection] = {}
        """Those that wait for a read."""
        self._gone: deque[Work] = deque()
        """Answers whose clients have gone. To free one of megabytes takes milliseconds, so it is a step too."""
        self.size = 0
        """About the bytes of all answers under way, with their requests, and of those that are not freed yet."""

    def begin(self, connection: Connection, context: RequestContext, steps: InSteps, size: int) -> None:
        connection.work = Work(context, steps.steps, size)
        self._connections[connection] = None
        self.size += size

    def drop(self, connection: Connection) -> int:
        """Returns the bytes that the answer had so far."""
        if connection.work is None:
            return 0
        work = self._forget(connection, connection.work)
        self.size -= work.size
        return work.size

    def _forget(self, connection: Connection, work: Work) -> Work:
        self._waiting.pop(work.context.request_id, None)
        connection.work = None
        del self._connections[connection]
        self._held.pop(connection, None)
        return work

    def _admit(self) -> None:
        """Let answers go on that no longer wait for others: one has been done, or its client does not read."""
        while self._held:
            held = next(iter(self._held))
            assert held.work is not None
            if self._must_wait(held, held.work):
                break
            del self._held[held]
            held.work.waits = False
            self._resume(held)

    def _must_wait(self, connection: Connection, work: Work) -> bool:
        """True if another answer goes on first. If there is little room and none does, this one is now the first."""
        if self.size <= (self.limit // 2 if work.has_begun else 3 * self.limit // 4):
            return False
        if self._first is None or self._first.work is None or self._first.is_unread:
            self._first = connection
        return self._first is not connection

    def close(self, connection: Connection) -> None:
        """The client has gone: nobody reads the answer."""
        if connection.work is not None and connection.work.context.api_key not in CHANGES:
            self._gone.append(self._forget(connection, connection.work))

    @property
    def has_gone(self) -> bool:
        """True if `free` has something to do."""
        return bool(self._gone)

    def free(self, is_over: Callable[[], bool]) -> None:
        """At the end of a turn: free one answer whose client has gone, and others within the turn's budget. Then let
        answers go on that waited for others."""
        while self._gone:
            self._free_one()
            if is_over():
                break
        self._admit()

    def _free_one(self) -> None:
        self.size -= self._gone.popleft().size

    def go_on(self, connection: Connection, most: int, is_over: Callable[[], bool]) -> Any:
        """One step, and up to `most` within the turn's budget. Returns the last step's result, or UNFINISHED."""
        work = connection.work
        assert work is not None
        if self._must_wait(connection, work):
            work.waits = True
            self._held[connection] = None
            return UNFINISHED
        work.has_begun = True
        for _ in range(most):
            try:
                grown = next(work.steps)
            except StopIteration as done:
                if not isinstance(done.value, InSteps):
                    return done.value
                work.steps = done.value.steps
                continue
            if isinstance(grown, Read):
                work.waits = True
                self._waiting[work.context.request_id] = connection
                break
            grown = STEP_BYTES if grown is None else grown
            work.size += grown
            self.size += grown
            if is_over() or self.size > self.limit:
                break
            if grown > LARGE_STEP_BYTES and self._must_wait(connection, work):
                break
        return UNFINISHED

    def read(self, request_id: RequestId) -> Connection:
        """A read is done, and the answer goes on. Returns its connection."""
        connection = self._waiting.pop(request_id)
        assert connection.work is not None
        connection.work.waits = False
        return connection

    def largest(self) -> Connection | None:
        """The connection that is closed if all answers together are above the limit: the one with the largest answer
        of those whose client does not read, or else of all. First those are freed whose clients have gone."""
        while self._gone and self.size > self.limit:
            self._free_one()
        if self.size <= self.limit:
            return None
        return max(self._connections, key=lambda connection: (connection.is_unread, _size_of(connection)))

    def share(self, room: Callable[[int, int], int]) -> None:
        """Ask for the limit from now on. `room` is told the bytes of all answers under way, and of the largest."""
        self.limit = room(self.size, max(map(_size_of, self._connections), default=0))


def _size_of(connection: Connection) -> int:
    return connection.work.size if connection.work is not None else 0
