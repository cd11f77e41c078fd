"""Slow requests are lines in the log, with their phases (log.slow.request.ms).

waited   until the request was handled: in a queue behind others, or for the end of the turn before
steps    while a long answer was made, over several turns
step     in which the turn that answered decided all of its requests
commit   until the turn was durable
send     until its answers were given to the system
parked   on purpose, which does not count: a join waits for members, a fetch for records

Half of the limit has passed before the last turn or in it. The broker notes a request of the first kind in the turn
(`Turn.late`). If a turn is of the second kind, its requests are looked up among those that began it. So a request that
is not slow costs one comparison, and a turn four looks at the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from kohort.broker.apis import APIS
from kohort.broker.security.audit import printable
from kohort.broker.turn import Arrived, ConnectionId, Frame, LateRequest, Send, Turn
from kohort.coordinator.events import ServerPaused
from kohort.server import log
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_request_header


class SlowRequests:
    """An observer of turns."""

    def __init__(
        self,
        limit_ms: int,
        now: Callable[[], int],
        peer_of: Callable[[ConnectionId], str],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`now`: the server's time. `peer_of`: the address of a client. `clock`: seconds that never
        go back."""
        self._limit_ms = limit_ms
        self._half_s = limit_ms / 2000
        self._now = now
        self._peer_of = peer_of
        self._clock = clock
        self._log = log.LimitedLog()
        self._arrived: Sequence[Arrived] = ()
        self._began = self._decided = self._committed = 0.0
        self._began_ms = 0

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._arrived = arrived
        self._began_ms = self._now()
        self._began = self._clock()

    def decided(self, turn: Turn) -> None:
        self._decided = self._committed = self._clock()

    def committed(self, turn: Turn) -> None:
        self._committed = self._clock()

    def turn_ends(self, turn: Turn) -> None:
        ended = self._clock()
        arrived, self._arrived = self._arrived, ()
        is_slow = ended - self._began >= self._half_s
        if not (turn.late or is_slow):
            return
        if arrived and isinstance(arrived[0], ServerPaused):
            return  # a line of its own tells of the pause, and nobody knows when the requests came
        found = {(late.connection, late.api_key): late for late in turn.late}
        if is_slow:
            for late in self._of_turn(turn, arrived):
                found.setdefault((late.connection, late.api_key), late)
        for late in found.values():
            self._tell(late, ended)

    def _of_turn(self, turn: Turn, arrived: Sequence[Arrived]) -> Iterator[LateRequest]:
        """The requests that this turn took and answered."""
        answered = {(send.connection, send.data[4:8]) for send in turn.releases if isinstance(send, Send)}
        for frame in arrived:
            if isinstance(frame, Frame) and (frame.connection, frame.data[4:8]) in answered:
                try:
                    header = read_request_header(frame.data)
                except ProtocolError:
                    continue
                waited_ms = max(self._began_ms - frame.arrived, 0) if frame.arrived else 0
                yield LateRequest(frame.connection, header.api_key, header.client_id or "", waited_ms)

    def _tell(self, late: LateRequest, ended: float) -> None:
        step, commit, send = (
            round(seconds * 1000)
            for seconds in (self._decided - self._began, self._committed - self._decided, ended - self._committed)
        )
        took = late.waited_ms + late.steps_ms + step + commit + send
        if took < self._limit_ms:
            return
        phases = {
            "waited_ms": late.waited_ms,
            "steps_ms": late.steps_ms,
            "step_ms": step,
            "commit_ms": commit,
            "send_ms": send,
            "parked_ms": late.parked_ms,
        }
        api = APIS.get(late.api_key)
        self._log.warning(
            "slow request",
            api=api.name if api is not None else late.api_key,
            took_ms=took,
            **{phase: value for phase, value in phases.items() if value},
            client_id=printable(late.client_id),
            peer=self._peer_of(late.connection),
        )
