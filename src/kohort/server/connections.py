"""All connections of a server: admission, the way of requests to the turn loop and of answers back, closing.

After a turn, only *watched* connections are visited: those that contributed to it, and those whose gate is shut
(connection.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kohort.broker.security.acls import host_of
from kohort.broker.turn import Arrived, ConnectionId, Frame, Mute, Release, Send
from kohort.config import INT_MAX, PREFIX, Config, per_host
from kohort.server import log, open_files
from kohort.server.connection import Connection
from kohort.server.inflow import Inflow
from kohort.server.outflow import Outflow
from kohort.server.turns import TurnLoop

LATE_S = 1.0
"""A sweep of the connections that comes so late is left out."""
CLOSING_S = 10.0
"""A closing connection whose client does not read the last answers is aborted after this time."""
MOST, RATE = "max.connections", "max.connection.creation.rate"


def _nobody_waits() -> None: ...


class Connections:
    def __init__(
        self,
        config: Config,
        *,
        arrive: Callable[[Arrived], None],
        turns: TurnLoop,
        waiting_bytes: Callable[[ConnectionId], int],
        is_ready: Callable[[ConnectionId], bool],
        is_occupied: Callable[[ConnectionId], bool],
        share_answers: Callable[[Callable[[int, int], int]], None],
        config_of: Callable[[int], Config],
    ) -> None:
        """`waiting_bytes`, `is_ready`, `is_occupied` and `share_answers` are the broker's. `config_of` gives the
        settings of a broker in force, `config` those of the start."""
        self.config = config
        self._config_of = config_of
        self._broker_ids = range(config.broker_id, config.broker_id + config.brokers)
        self._limits = dict(config.of_listeners)
        self.clock = time.monotonic
        self.log = log.LimitedLog()
        self.inflow = Inflow(config.queued_max_request_bytes, self.clock, self.all_open, self._tell_closed)
        self.outflow = Outflow(config.queued_max_response_bytes)
        self.arrive = arrive
        self.turns = turns
        self._waiting_bytes = waiting_bytes
        self.is_ready = is_ready
        self._is_occupied = is_occupied
        self._share_answers = share_answers
        self._open: dict[ConnectionId, Connection] = {}
        self._of_host: dict[str, int] = {}
        """Connections of each host, those at the door included (security/door.py)."""
        self._of_listener: dict[str, int] = {}
        """Connections of each listener: also those that are accepted and not open yet."""
        self.at_door = 0
        """Connections that have not authenticated."""
        self._arriving = 0
        self.place_is_free: Callable[[], None] = _nobody_waits
        self._watched: dict[ConnectionId, Connection] = {}
        self._taken_bytes = 0
        self.turn_bytes = 0
        self._in_turn: dict[ConnectionId, Connection] = {}
        self._in_turn_bytes = 0
        self._last_id = 0
        self._closing = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_due = 0.0
        self._sweep_every_s = max(0.02, min(config.connections_max_idle_ms / 4000, 1.0))

    def __len__(self) -> int:
        return len(self._open)

    def all_open(self) -> tuple[Connection, ...]:
        return tuple(self._open.values())

    def _tell_closed(self, reason: str, peers: list[str], number: int) -> None:
        self.log.warning("connections closed", reason=reason, connections=number, peers=", ".join(peers))

    # -- in

    def admit(self, connection: Connection) -> bool:
        if refusal := self._refusal(connection.host, connection.broker_id):
            self.log.info("connection refused", peer=connection.peer, reason=refusal)
            return False
        if refusal := open_files.refusal(connection.file_number):
            self.log.warning("connection refused", peer=connection.peer, reason=refusal)
            return False
        self._last_id += 1
        connection.id = ConnectionId(self._last_id)
        self._open[connection.id] = connection
        self._count(connection.host, connection.listener)
        if self._sweep_timer is None:
            self._plan_sweep()
        return True

    def admit_to_door(self, host: str, broker_id: int, listener: str) -> str:
        """Count a connection that has to authenticate. Returns why it is refused, or ""."""
        refusal = self._refusal(host, broker_id)
        if not refusal:
            self.at_door += 1
            self._count(host, listener)
        return refusal

    def left_door(self, host: str, listener: str) -> None:
        self.at_door -= 1
        self._discount(host, listener)

    def _count(self, host: str, listener: str) -> None:
        self._of_host[host] = self._of_host.get(host, 0) + 1
        self._of_listener[listener] = self._of_listener.get(listener, 0) + 1

    def _discount(self, host: str, listener: str) -> None:
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        self._of_listener[listener] -= 1
        self.place_is_free()

    def _refusal(self, host: str, broker_id: int) -> str:
        if self._closing:
            return "the server stops"
        config = self._config_of(broker_id)
        most = config.max_connections_per_ip
        if own := config.max_connections_per_ip_overrides:
            most = per_host(own).get(host_of(host).text, most)
        opened = self._of_host.get(host, 0)
        return f"{opened} connections from this address are open (max.connections.per.ip)" if opened >= most else ""

    # -- places for new connections (arrivals.py)

    def arriving(self, listener: str, number: int) -> None:
        """A connection is accepted (1); it is open, at the door, or closed (-1)."""
        self._arriving += number
        self._of_listener[listener] = self._of_listener.get(listener, 0) + number
        if number < 0:
            self.place_is_free()

    @property
    def most(self) -> int:
        """The lowest max.connections of the brokers."""
        return min(self._config_of(broker_id).max_connections for broker_id in self._broker_ids)

    def is_full(self, broker_id: int, listener: str) -> str:
        """Why there is no place for a new connection; "" if there is one."""
        most, opened = self._config_of(broker_id).max_connections, len(self._open) + self.at_door + self._arriving
        if opened >= most:
            return f"{most} connections are open (max.connections)"
        own = self._limit_of(listener, MOST)
        if own is not None and self._of_listener.get(listener, 0) >= own:
            return f"{own} connections of this listener are open (listener.name.{listener.lower()}.{MOST})"
        return ""

    def rates_of(self, broker_id: int, listener: str) -> list[tuple[str, int]]:
        """The limits of new connections a second: ("", of the broker), and (the listener, its own)."""
        of_broker, own = self._config_of(broker_id).max_connection_creation_rate, self._limit_of(listener, RATE)
        rates = [] if of_broker == INT_MAX else [("", of_broker)]
        return rates if own is None else [*rates, (listener, own)]

    def _limit_of(self, listener: str, setting: str) -> int | None:
        """A limit that a listener has for itself."""
        text = self._limits.get(f"{PREFIX}{listener.lower()}.{setting}")
        return None if text is None else int(text)

    def _close_excess(self) -> None:
        """More than max.connections are open, because it was lowered: close those that are silent for longest.
        Source: Processor.closeExcessConnections."""
        # One that is opening just now is still among those that arrive: they do not count here.
        opened = self.at_door + sum(not connection.closing for connection in self._open.values())
        most = {broker_id: self._config_of(broker_id).max_connections for broker_id in self._broker_ids}
        if opened <= min(most.values()):
            return
        for connection in sorted(self._open.values(), key=lambda connection: connection.last_active):
            if opened > most[connection.broker_id] and not connection.closing:
                connection.close(f"{opened} connections are open (max.connections)")
                opened -= 1

    def forget(self, connection: Connection) -> None:
        del self._open[connection.id]
        self._watched.pop(connection.id, None)
        self._in_turn.pop(connection.id, None)
        self._discount(connection.host, connection.listener)
        self.inflow.forget(connection, connection.held_bytes)
        self.outflow.forget(connection)

    # -- requests and answers

    def take(self, connection: Connection, frame: bytes) -> None:
        """A frame joins the next turn."""
        self._watched[connection.id] = connection
        self._taken_bytes += len(frame)
        self.arrive(Frame(connection.id, frame, self.turns.about_ms))

    def watch(self, connection: Connection) -> None:
        self._watched[connection.id] = connection

    def is_quiet(self, connection: Connection, *, after_turn: bool) -> bool:
        """True if all requests of the connection are answered. `after_turn`: the answers of the turn under way have
        just been sent."""
        if connection.id in self._watched or (connection.id in self._in_turn and not after_turn):
            return False
        return not self._is_occupied(connection.id)

    def turn_began(self) -> None:
        """Frames that arrive from now on belong to the next turn."""
        self._in_turn, self._watched = self._watched, {}
        self._in_turn_bytes, self._taken_bytes = self._taken_bytes, 0
        self.turn_bytes = 0

    def deliver(self, releases: Sequence[Release]) -> None:
        """A turn is durable: send its answers, in one write for each connection."""
        outgoing: dict[ConnectionId, list[bytes]] = {}
        for release in releases:
            if isinstance(release, Send):
                frames = outgoing.get(release.connection)
                if frames is None:
                    outgoing[release.connection] = [release.data, *release.rest]
                else:
                    frames.append(release.data)
                    frames.extend(release.rest)
        for connection_id, frames in outgoing.items():
            connection = self._open.get(connection_id)
            if connection is not None:
                connection.send(frames)
                self.outflow.sent(connection)
        for release in releases:
            if not isinstance(release, Send):
                connection = self._open.get(release.connection)
                if connection is not None:
                    connection.close(release.reason)
        handled, self._in_turn_bytes = self._in_turn_bytes, 0
        for connection_id, connection in self._in_turn.items():
            handled += connection.waiting_bytes
            connection.turn_over(self._waiting_bytes(connection_id))
            handled -= connection.waiting_bytes
            if not connection.gate_open:
                self._watched[connection_id] = connection
        self._in_turn = {}
        self.inflow.shrank(handled)
        self.check_answers()

    def check_answers(self) -> None:
        """Close the connections with the most unread answers, if there are too many bytes of them."""
        self._share_answers(self.outflow.room)

    def mute(self, mutes: Sequence[Mute]) -> None:
        """Clients above their quotas are not read for a while."""
        for mute in mutes:
            connection = self._open.get(mute.connection)
            if connection is not None and mute.muted:
                connection.pause_reading("throttled")
            elif connection is not None:
                connection.last_active = self.clock()
                connection.resume_reading("throttled")

    def peer_of(self, connection_id: ConnectionId) -> str:
        """The client's address; empty if the connection is closed."""
        connection = self._open.get(connection_id)
        return connection.peer if connection is not None else ""

    # -- the end

    def of_broker(self, broker_id: int) -> list[Connection]:
        return [connection for connection in self._open.values() if connection.broker_id == broker_id]

    def abort_all(self) -> None:
        self._closing = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._open.values()):
            connection.abort()

    async def drain(self, limit_s: float) -> None:
        """Wait until all answers have left, but not longer than `limit_s`; then close all connections."""
        self._closing = True
        deadline = self.clock() + limit_s
        while self.clock() < deadline and any(connection.unsent for connection in self._open.values()):
            await asyncio.sleep(0.005)
        if unsent := sum(1 for connection in self._open.values() if connection.unsent):
            log.warning("answers were not read in time", connections=unsent)
        self.abort_all()

    def _plan_sweep(self) -> None:
        self._sweep_due = self.clock() + self._sweep_every_s
        self._sweep_timer = asyncio.get_running_loop().call_later(self._sweep_every_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self.clock()
        if now - self._sweep_due > LATE_S:  # the process was stopped; what its clients sent has not been read yet
            self._plan_sweep()
            return
        idle_s = self.config.connections_max_idle_ms / 1000
        self.inflow.sweep()
        for connection in list(self._open.values()):
            if connection.stirred:
                connection.stirred = False
                connection.last_active = now
            self.outflow.sent(connection)  # answers that needed no turn are not counted when they are written
            silent_s = now - connection.last_active
            if connection.closing and silent_s > CLOSING_S:
                connection.abort()
            elif silent_s > idle_s:
                connection.close(f"idle for {silent_s:.3g} s (connections.max.idle.ms)")
        self._close_excess()
        self.check_answers()
        if self._open:
            self._plan_sweep()
