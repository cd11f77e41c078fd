"""The schedule of turns, without IO: when a turn begins, when its operations are committed, when its answers leave.

There is never more than one turn under way. Requests that arrive during a commit wait for the next turn. This is the
whole group commit. The slower the disk, the more requests share a sync.

An edge (`server.turns`, `simulator.world.process`) owns the clock, the storage and the connections, and drives the
schedule:

    something arrives         schedule.arrive(event)
    begin_soon() was called   schedule.begin(now), from the event loop
    commit(turn) was called   schedule.committed(), when the turn's operations are durable
    wake_at(t) was called     schedule.deadline_reached(), when the clock shows t
    every LOOK_MS             schedule.look(now)

A pause of the process, of the event loop or of a commit is not silence of the members: they could not be answered. A
schedule that finds itself more than PAUSE_MS after it last could begin a turn was paused. It handles nothing more until
the next turn, which begins with `ServerPaused`: members get the lost time beyond PAUSE_MS
(docs/decisions/0012). Before that turn the edge takes in what has arrived meanwhile (`is_late`).

An exception out of any of these ends the engine: the edge stops the schedule and releases nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kohort.broker.turn import Arrived, ConnectionId, Frame, Millis, Turn
from kohort.coordinator.events import ServerPaused

PAUSE_MS = 500
"""A turn takes no longer than this. Of a longer time, this part still counts as the members' silence, so members that
are gone expire also on a server that is always slow."""
LOOK_MS = 250
"""How often the edge calls `look`: the time of a pause is known with this precision."""
NEVER: Millis = 1 << 60


class Steps(Protocol):
    """The part of a broker that the schedule calls."""

    @property
    def busy(self) -> bool: ...
    def step(self, arrived: Sequence[Arrived], now: Millis, time_is_up: Callable[[], int]) -> Turn: ...
    def at_once(self, connection_id: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]: ...
    def next_deadline(self) -> Millis | None: ...


class Edge(Protocol):
    def begin_soon(self) -> None:
        """Call `TurnSchedule.begin` from the event loop, as soon as what runs now has returned."""

    def time_is_up(self) -> int:
        """True once the turn that has begun should handle no more requests."""

    def commit(self, turn: Turn) -> None:
        """Make the turn's operations durable, then call `TurnSchedule.committed`."""

    def release(self, turn: Turn) -> None:
        """The turn is durable: deliver its releases, hand out its tasks, log its complaints."""

    def wake_at(self, deadline: Millis) -> None:
        """Set the only timer. It replaces the earlier time."""

    def paused(self, pause: ServerPaused) -> None:
        """The turn that begins is late, and the members get this time."""


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
    def __init__(
        self, broker: Steps, edge: Edge, observers: Sequence[TurnObserver] = (), *, finds_pauses: bool = True
    ) -> None:
        """`finds_pauses`: false for a clock that is advanced by hand."""
        self._broker = broker
        self._edge = edge
        self._observers = tuple(observers)
        self._arrived: list[Arrived] = []
        self._due = False
        self._behind: set[ConnectionId] = set()
        """Connections whose requests wait for the turn that is due. What they send from now on comes after these."""
        self._under_way: Turn | None = None
        self._running = False
        """A turn is under way."""
        self._stopped = False
        self._timer: Millis | None = None
        self._finds_pauses = finds_pauses
        self._looked_at: Millis = 0
        """When the edge's loop was last known to run."""
        self._late_after: Millis = NEVER
        """PAUSE_MS after the last time at which a turn began or could have begun."""

    @property
    def waiting(self) -> int:
        """How many events wait for the next turn."""
        return len(self._arrived)

    def arrive(self, event: Arrived) -> None:
        self._arrived.append(event)
        if isinstance(event, Frame):
            self._behind.add(event.connection)
        if not self._due:
            self.wake()

    def at_once(self, connection: ConnectionId, data: bytes, now: Millis) -> tuple[bytes, int]:
        """Answers to requests that need no turn, and how many bytes of `data` these requests are.

        None while a turn is under way, or if earlier requests of this connection wait. Requests of others may wait: a
        server that is busy answers heartbeats as cheaply as an idle one, so what waits does not grow."""
        if self._running or connection in self._behind or self._stopped or now > self._late_after:
            return b"", 0
        return self._broker.at_once(connection, data, now)

    def wake(self) -> None:
        """Begin a turn as soon as the one under way is over."""
        if not self._due and not self._stopped:
            self._due = True
            if not self._running:
                self._edge.begin_soon()

    def is_late(self, now: Millis) -> bool:
        """True if there was a pause that no turn has handled."""
        return now > self._late_after

    def look(self, now: Millis) -> None:
        """The edge's loop is running."""
        if self._running or self._stopped:
            self._looked_at = now
        elif self.is_late(now):
            self.wake()
        else:
            self._ran(now)

    def _ran(self, now: Millis) -> None:
        self._looked_at = now
        if self._finds_pauses:
            self._late_after = now + PAUSE_MS

    def _pause(self, now: Millis) -> ServerPaused:
        stopped_ms = now - self._looked_at
        if stopped_ms > PAUSE_MS:
            why = f"the server did not run for {stopped_ms / 1000:.1f} s"
        else:
            why = f"a commit took {(now - self._late_after + PAUSE_MS) / 1000:.1f} s"
        return ServerPaused(now - self._late_after, why)

    def begin(self, now: Millis, first: Sequence[Arrived] = ()) -> None:
        """Begin the turn that is due, with `first` before what has arrived."""
        if self._stopped or self._running or not self._due:
            return
        self._due = False
        self._behind.clear()
        self._running = True
        arrived, self._arrived = self._arrived, []
        if first:
            arrived = [*first, *arrived]
        if self.is_late(now):
            pause = self._pause(now)
            self._edge.paused(pause)
            arrived = [pause, *arrived]
            self._timer = None  # the edge's timer may have stood still too
        self._ran(now)
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
