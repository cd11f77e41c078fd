"""The queue of connections that have something to handle, and the budget of a turn.

Connections take turns: one request of each, or up to `REPEATS` that need no handler, round after round. A turn takes
from the queue until its budget of time or of answer bytes is used up; the next turn goes on.

Connections whose answers are made in steps wait in a queue of their own. They get some steps when nothing else waits,
and after every `REQUESTS_BETWEEN` requests of others: fifty long answers do not delay a heartbeat, and come to an end
while requests arrive without a pause.

So does a connection whose last request took much of a turn, because the next one may be of the same kind. Four clients
whose batches take long to decompress delay a heartbeat by one batch, not by four.

Deadlines have a place in the queue too. It is behind all requests that had arrived when the deadlines were due: a
member whose request waits must not lose its session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kohort.broker.connection import Connection

TURN_ANSWER_BYTES = 8_388_608
"""A turn handles no more requests once its answers are larger than this."""

REPEATS = 16
"""Requests of a connection that are answered one after the other if they need no handler. They are cheap, and one at a
time, a client that has several under way would never catch up: each answer brings the next request."""
STEPS = 32
"""Steps of a long answer before other connections are served."""
REQUESTS_BETWEEN = 16
"""Requests of others that are handled before the next steps of a long answer."""


WITHIN, OVER, COSTLY = range(3)
"""What an edge says of the turn's time: within the budget; over it; over it, and what was done since it was asked last
took a good part of the budget."""


def never() -> int:
    return WITHIN


class Ready:
    def __init__(self) -> None:
        self.answer_bytes = 0
        """The size of the turn's answers."""
        self._queue: deque[Connection | None] = deque()
        """None stands for the deadlines."""
        self._long: deque[Connection] = deque()
        """Connections with an answer that is made in steps, and costly ones."""
        self._served: Connection | None = None
        """The connection whose request is or was handled last in this turn."""
        self._since_long = 0
        """Requests handled since the last steps of a long answer."""
        self._has_deadlines = False
        self._time_is_up: Callable[[], int] = never

    def __bool__(self) -> bool:
        return bool(self._queue or self._long)

    def __len__(self) -> int:
        """How many connections wait for a request of theirs."""
        return len(self._queue)

    def begin(self, time_is_up: Callable[[], int]) -> None:
        """A turn begins. `time_is_up` (WITHIN, OVER or COSTLY) is asked before each request and between the steps of an
        answer."""
        self.answer_bytes = 0
        self._served = None
        self._time_is_up = time_is_up

    def serves(self, connection: Connection) -> None:
        """A request of this connection is handled now."""
        self._served = connection
        connection.is_costly = False

    def is_over(self) -> bool:
        """True if the turn has no budget left for another request."""
        verdict = self._time_is_up()
        if verdict == COSTLY and self._served is not None:
            self._blame(self._served)
        self._served = None
        return verdict != WITHIN or self.answer_bytes > TURN_ANSWER_BYTES

    def end(self) -> None:
        """No more requests are handled in this turn."""
        if self._served is not None:
            self.is_over()

    def _blame(self, connection: Connection) -> None:
        connection.is_costly = True
        if self._queue and self._queue[-1] is connection:
            self._queue.pop()
            self._long.append(connection)

    def put(self, connection: Connection) -> None:
        """Queue the connection if it has something that can be handled."""
        if connection.can_go_on and not connection.is_queued:
            connection.is_queued = True
            is_long = connection.work is not None or connection.is_costly
            (self._long if is_long else self._queue).append(connection)

    def put_deadlines(self) -> None:
        if not self._has_deadlines:
            self._has_deadlines = True
            self._queue.append(None)

    def take(self) -> Connection | None:
        """The next connection, whose state may have changed since; None if the deadlines are next."""
        connection: Connection | None
        self._served = None
        if self._long and (not self._queue or self._since_long >= REQUESTS_BETWEEN):
            self._since_long = 0
            connection = self._long.popleft()
        else:
            self._since_long += 1
            connection = self._queue.popleft()
        if connection is None:
            self._has_deadlines = False
        else:
            connection.is_queued = False
        return connection

    def clear(self) -> None:
        self._queue.clear()
        self._long.clear()
        self._has_deadlines = False
