"""The schedule of turns, without IO: when a turn begins, when its operations are committed, when its answers leave.

There is never more than one turn under way. Requests that arrive during a commit wait for the next turn. This is the
whole group commit. The slower the disk, the more requests share a sync.

An edge (`server.turns`, `simulator.world.process`) owns the clock, the storage and the connections, and drives the
schedule:

    something arrives         schedule.arrive(event)
    begin_soon() was called   schedule.begin(now), from the event loop
    commit(turn) was called   schedule.committed(), when the turn's operations are durable
    wake_at(t) was called     schedule.deadline_reached(), when the clock shows t

An exception out of any of these ends the engine: the edge stops the schedule and releases nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kohort.broker.turn import Arrived, ConnectionId, Millis, Opened, Turn


class Steps(Protocol):
    """The part of a broker that the schedule calls."""

    @property
    def busy(self) -> bool: ...
    def step(self, arrived: Sequence[Arrived], now: Millis, time_is_up: Callable[[], bool]) -> Turn: ...
    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]: ...
    def next_deadline(self) -> Millis | None: ...


class Edge(Protocol):
    def begin_soon(self) -> None:
        """Call `TurnSchedule.begin` from the event loop, as soon as what runs now has returned."""

    def time_is_up(self) -> bool:
        """True once the turn that has begun should handle no more requests."""

    def commit(self, turn: Turn) -> None:
        """Make the turn's operations durable, then call `TurnSchedule.committed`."""

    def release(self, turn: Turn) -> None:
        """The turn is durable: deliver its releases, hand out its tasks, log its complaints."""

    def wake_at(self, deadline: Millis) -> None:
        """Set the only timer. It replaces the earlier time."""


class TurnObserver(Protocol):
    """Sees the moments of each turn, in this order. Onlooker and metrics implement it."""

    def turn_begins(self, arrived: Sequence[Arrived]) -> None: ...

    def decided(self, turn: Turn) -> None:
        """The turn is decided and applied in memory, and not yet durable."""

    def committed(self, turn: Turn) -> None:
        """The turn is durable. Not called for a turn without operations."""

    def turn_ends(self, turn: Turn) -> None:
        """The turn's answers have left."""


class TurnSchedule:
    def __init__(self, broker: Steps, edge: Edge, observers: Sequence[TurnObserver] = ()) -> None:
        self._broker = broker
        self._edge = edge
        self._observers = tuple(observers)
        self._arrived: list[Arrived] = []
        self._due = False
        self._awaited = False
        """Somebody waits for the turn that is due, and comes before what arrives from now on."""
        self._under_way: Turn | None = None
        self._running = False
        """A turn is under way."""
        self._stopped = False
        self._timer: Millis | None = None

    @property
    def waiting(self) -> int:
        """How many events wait for the next turn."""
        return len(self._arrived)

    def arrive(self, event: Arrived) -> None:
        self._arrived.append(event)
        # Nobody waits for a new connection to be handled. While a thousand of them come, a turn is due all the time.
        if not isinstance(event, Opened):
            self._awaited = True
        if not self._due:
            self._plan()

    def at_once(self, connection: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        """Answers to requests that need no turn, and how many bytes of `data` these requests are.

        None while a turn is under way or an awaited one is due: what came before is answered before."""
        if self._awaited or self._running or self._stopped:
            return b"", 0
        return self._broker.at_once(connection, data, now)

    def wake(self) -> None:
        """Begin a turn as soon as the one under way is over."""
        self._awaited = True
        self._plan()

    def _plan(self) -> None:
        if not self._due and not self._stopped:
            self._due = True
            if not self._running:
                self._edge.begin_soon()

    def begin(self, now: Millis, first: Sequence[Arrived] = (), last: Sequence[Arrived] = ()) -> None:
        """Begin the turn that is due, with `first` before and `last` after what has arrived."""
        if self._stopped or self._running or not self._due:
            return
        self._due = self._awaited = False
        self._running = True
        arrived, self._arrived = self._arrived, []
        if first or last:
            arrived = [*first, *arrived, *last]
        for observer in self._observers:
            observer.turn_begins(arrived)
        turn = self._under_way = self._broker.step(arrived, now, self._edge.time_is_up)
        for observer in self._observers:
            observer.decided(turn)
        if turn.operations:
            self._edge.commit(turn)
        else:
            self._release(turn)

    def committed(self) -> None:
        """The operations of the turn under way are durable."""
        turn = self._under_way
        if turn is None or self._stopped:
            return
        for observer in self._observers:
            observer.committed(turn)
        self._release(turn)

    def _release(self, turn: Turn) -> None:
        self._edge.release(turn)
        for observer in self._observers:
            observer.turn_ends(turn)
        self._under_way = None
        self._running = False
        if self._stopped:
            return
        if self._due:
            self._edge.begin_soon()
        elif self._broker.busy:
            self.wake()
        deadline = self._broker.next_deadline()
        # A timer that fires too early costs an empty turn. To move it with every heartbeat would cost more.
        if deadline is not None and (self._timer is None or deadline < self._timer):
            self._timer = deadline
            self._edge.wake_at(deadline)

    def deadline_reached(self) -> None:
        self._timer = None
        self.wake()

    def stop(self) -> None:
        """No more turns. The answers of a turn under way are dropped."""
        self._stopped = True
