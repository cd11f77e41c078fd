"""The queue of connections that have something to handle, and the budget of a turn.

Connections take turns: one request of each, or up to `REPEATS` that need no handler, round after round. A turn takes
from the queue until its budget of time or of answer bytes is used up; the next turn goes on.

Connections whose answers are made in steps wait in a queue of their own; while others wait, not even the first step is
taken at once. They get some steps when nothing else waits, and after every `REQUESTS_BETWEEN` requests of others: fifty
long answers do not delay a heartbeat, and come to an end while requests arrive without a pause.

So do connections whose next request may take long:

- its last answer was large (LARGE_ANSWER_BYTES): to read the records of fifty such fetches, and to write them to
  sockets, takes a tenth of a second;
- the request is large, for instance a Fetch of hundreds of partitions: four hundred of them would take a second;
- it is none that consumers and producers send all the time (apis.OF_CLIENTS), but for instance one that creates topics;
- its client has gone;
- its last request took much of a turn. Four clients whose batches take long to decompress delay a heartbeat by one
  batch, not by four.

The first and the last are *costly*: their request is handled in a turn without quick ones, whose answers would have to
wait for it. If a turn has handled quick ones, the next turn begins with the costly one, or the one after that, because
outcomes of tasks and reads, and woken fetches, have every second turn.

Deadlines have a place in the queue too. It is behind all requests that had arrived when the deadlines were due: a
member whose request waits must not lose its session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kohort.broker.apis import OF_CLIENTS, PRODUCE
from kohort.broker.connection import Connection
from kohort.broker.turn_builder import TurnBuilder

TURN_ANSWER_BYTES = 8_388_608
"""A turn handles no more requests once its answers are larger than this."""

TURN_APPENDED_BYTES = 2_097_152
"""A turn handles no more requests once it has appended more than this: to commit it takes some eight milliseconds."""
TURN_OPERATIONS = 128
"""A turn handles no more requests once it has so many operations (an append to a partition, a log created or deleted):
to commit them takes some five milliseconds."""
REPEATS = 16
"""Requests of a connection that are answered one after the other if they need no handler. They are cheap, and one at a
time, a client that has several under way would never catch up: each answer brings the next request."""
LARGE_ANSWER_BYTES = 131_072
"""The next request of a connection that got a larger answer goes behind those of others."""
STEPS = 32
"""Steps of a long answer before other connections are served."""
REQUESTS_BETWEEN = 16
"""Requests of others that are handled before the next steps of a long answer."""


SMALL_BYTES, SMALL_BATCH = 4_096, 65_536
"""Requests up to this size (Produce: up to the second one) go before larger ones. Heartbeats are smaller, and so are
commits of a hundred partitions."""
_PRODUCE = PRODUCE.key.to_bytes(2)
"""The first bytes of a Produce request."""
_OF_CLIENTS = frozenset(key.to_bytes(2) for key in OF_CLIENTS)


WITHIN, OVER, COSTLY = range(3)
"""What an edge says of the turn's time: within the budget; over it; over it, and what was done since it was asked last
took a good part of the budget."""


def never() -> int:
    return WITHIN


def _is_patient(frame: bytes) -> bool:
    """True for a request that goes after those of others."""
    size = len(frame)
    api = frame[:2]
    return api not in _OF_CLIENTS or (size > SMALL_BYTES and (size > SMALL_BATCH or api != _PRODUCE))


class Ready:
    def __init__(self, turn: TurnBuilder) -> None:
        self.answer_bytes = 0
        """The size of the turn's answers."""
        self.costly_first = False
        """The next turn begins with a costly request."""
        self._turn = turn
        self._has_quick = False
        """The turn has handled requests of connections that are not costly."""
        self._woke = False
        """The last turn has taken outcomes and answered fetches that waited."""
        self._queue: deque[Connection | None] = deque()
        """None stands for the deadlines."""
        self._long: deque[Connection] = deque()
        """Connections with an answer that is made in steps, costly ones, those whose next request may take long, and
        those whose client has gone."""
        self._served: Connection | None = None
        """The connection whose request is or was handled last in this turn."""
        self._bytes_before = 0
        """Of the turn's answers before that request."""
        self._since_long = 0
        """Requests handled since the last steps of a long answer."""
        self._has_deadlines = False
        self._time_is_up: Callable[[], int] = never

    def __bool__(self) -> bool:
        return bool(self._queue or self._long)

    def __len__(self) -> int:
        """How many connections wait for a request of theirs."""
        return len(self._queue) + len(self._long)

    def begin(self, time_is_up: Callable[[], int]) -> None:
        """A turn begins. `time_is_up` (WITHIN, OVER or COSTLY) is asked before each request and between the steps of an
        answer."""
        self.answer_bytes = 0
        self._has_quick = False
        self._served = None
        self._time_is_up = time_is_up

    def serves(self, connection: Connection) -> None:
        """A request of this connection is handled now."""
        self._served = connection
        self._bytes_before = self.answer_bytes
        if connection.is_costly:
            connection.is_costly = False
        else:
            self._has_quick = True

    def is_over(self) -> bool:
        """True if the turn has no budget left for another request."""
        verdict = self._time_is_up()
        served, self._served = self._served, None
        if served is not None and (verdict == COSTLY or self._got_much()):
            self._blame(served)
        return (
            verdict != WITHIN
            or self.answer_bytes > TURN_ANSWER_BYTES
            or self._turn.appended_bytes > TURN_APPENDED_BYTES
            or len(self._turn.operations) > TURN_OPERATIONS
        )

    def end(self) -> None:
        """No more requests are handled in this turn."""
        if self._served is not None:
            self.is_over()

    def _got_much(self) -> bool:
        return self.answer_bytes - self._bytes_before > LARGE_ANSWER_BYTES

    def _blame(self, connection: Connection) -> None:
        connection.is_costly = True
        if connection.is_queued and connection in self._queue:
            self._queue.remove(connection)
            self._long.append(connection)

    def put(self, connection: Connection) -> None:
        """Queue the connection if it has something that can be handled."""
        if connection.can_go_on and not connection.is_queued:
            connection.is_queued = True
            yields = (
                connection.work is not None
                or connection.is_costly
                or connection.closing
                or _is_patient(connection.backlog[0])
            )
            (self._long if yields else self._queue).append(connection)

    @property
    def others_wait(self) -> bool:
        """True if a long answer begins later."""
        return bool(self._queue)

    def must_end(self) -> bool:
        """True if the next request is a costly one, for which the answers of this turn should not wait."""
        if self._has_quick and self._long_is_next():
            self.costly_first = self._long[0].is_costly
        return self.costly_first and self._long_is_next()

    def take_costly(self, others_wait: bool) -> Connection | None:
        """The connection that an earlier turn has left to this one, if there is one. `others_wait`: outcomes and woken
        fetches, which have every second turn."""
        if not self.costly_first or (others_wait and not self._woke):
            return None
        self.costly_first = self._woke = False
        self._since_long = 0
        connection = self._long.popleft()
        connection.is_queued = False
        return connection

    def may_wake(self) -> bool:
        """True if outcomes are taken and fetches that have been woken are answered now. Where requests wait, every
        second turn does that: hundreds of large fetches, some in each turn, would use up one turn after the other."""
        self._woke = not (self._woke and self)
        return self._woke

    def put_deadlines(self) -> None:
        if not self._has_deadlines:
            self._has_deadlines = True
            self._queue.append(None)

    def take(self) -> Connection | None:
        """The next connection, whose state may have changed since; None if the deadlines are next."""
        connection: Connection | None
        self._served = None
        if self._long_is_next():
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

    def _long_is_next(self) -> bool:
        return bool(self._long) and (not self._queue or self._since_long >= REQUESTS_BETWEEN)

    def clear(self) -> None:
        self.costly_first = False
        self._queue.clear()
        self._long.clear()
        self._has_deadlines = False
