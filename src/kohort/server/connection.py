"""One client's connection: received bytes to frames, answers to bytes, and the limits of both.

Received bytes are cut into frames at once. All that a turn releases for a connection leaves in one write.

A connection has a *gate*, which is shut while its requests should not go to the broker:

- a request is parked there and others wait behind it already;
- the client does not read its answers;
- the turn has taken enough requests from this connection;
- the connection has sent a Fetch. Its answer may be large, so a turn builds only one for each connection.

Frames that arrive at a shut gate wait here. When they grow many, the connection is not read any more, and TCP's window
slows the client down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from kohort.broker.apis import outlasts
from kohort.broker.authorization import ANONYMOUS, Principal
from kohort.broker.turn import Arrived, Closed, ConnectionId, Opened, Unread
from kohort.config import Config
from kohort.server.inflow import Inflow
from kohort.server.log import LimitedLog
from kohort.server.turns import TurnLoop
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import FrameSplitter

QUEUE_BYTES = 262_144
"""Frames waiting at a shut gate beyond which reading stops."""
TURN_BYTES = 8_388_608
"""Bytes that one connection may contribute to a turn. A single larger frame passes."""
FAIR_BYTES = 262_144
"""Bytes that one connection may contribute when all of them have contributed ALL_TURN_BYTES."""
ALL_TURN_BYTES = 2_097_152
"""To receive so many bytes takes some three milliseconds, and to commit them eight."""
FRAME_BYTES = 4_096
"""A frame counts for so many bytes more: a turn takes up to 2,048 small ones of a connection."""
FETCH = b"\0\1"
"""The first bytes of a Fetch request: its API key."""


TLS_RECORD = b"\x16\x03"
"""A TLS client's first bytes. As a frame's length they would be 369 MB."""
TLS_CAME = "a TLS client came to a listener without TLS: its security.protocol must be PLAINTEXT or SASL_PLAINTEXT"


class Owner(Protocol):
    """The part of connections.py that a connection uses."""

    config: Config
    clock: Callable[[], float]
    log: LimitedLog
    inflow: Inflow
    turns: TurnLoop
    turn_bytes: int
    """What all connections have contributed to the next turn, counted as for one of them."""
    arrive: Callable[[Arrived], None]
    is_ready: Callable[[ConnectionId], bool]

    def admit(self, connection: Connection) -> bool:
        """Give the connection its id. False when there are too many."""

    def take(self, connection: Connection, frame: bytes) -> None:
        """A frame joins the next turn."""

    def watch(self, connection: Connection) -> None:
        """Call the connection's `turn_over` after the next turn, as after one that it contributed to."""

    def is_quiet(self, connection: Connection, *, after_turn: bool) -> bool:
        """True if all requests of the connection are answered."""

    def forget(self, connection: Connection) -> None: ...


class Session(Protocol):
    """The part of security/session.py that a connection uses."""

    @property
    def is_busy(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    def takes(self, frame: bytes) -> bool:
        """True if a re-authentication is under way, or if this request begins one."""

    def take(self, connection: Any, frame: bytes) -> None: ...


class Connection:
    """An asyncio.Protocol by its methods. If it inherited from asyncio.Protocol, mypyc would make a plain Python class
    of it, with slow attributes."""

    def __init__(
        self,
        owner: Owner,
        broker_id: int,
        listener: str,
        principal: Principal = ANONYMOUS,
        software: tuple[str, str] = ("", ""),
    ) -> None:
        self._all = owner
        self._turns = owner.turns
        self.broker_id = broker_id
        self.listener = listener
        self.principal = principal
        self.software = software
        self.session: Session | None = None
        """None if it has no end."""
        self._is_renewing = False
        """The first request in the queue belongs to a re-authentication."""
        self.id = ConnectionId(0)
        self.host = ""
        self.peer = "?"
        self.file_number = -1
        """Of its socket; -1 if it is unknown."""
        self.last_active = owner.clock()
        self.stirred = False
        """It was active since the last sweep. Heartbeats set this instead of reading the clock."""
        self.open = False
        self.gate_open = True
        self.unread = False
        """The client leaves so many answers unread that its requests wait."""
        self.waiting_bytes = 0
        """Bytes of its requests that wait in the broker, behind a parked one or for a later turn."""
        self.partial = 0
        """Bytes of an incomplete frame."""
        self.missing = 0
        """Bytes that this frame still needs."""
        self.forwarded = 0
        """Bytes of requests that a gateway forwards, and that have not left."""
        self._splitter = FrameSplitter(owner.config.socket_request_max_bytes)
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._turn_bytes = 0
        self._paused: set[str] = set()
        self._transport: asyncio.Transport

    @property
    def held_bytes(self) -> int:
        """The bytes that `Inflow` counts for this connection, without the frames that the turn loop has taken."""
        return self.partial + self._queue_bytes + self.waiting_bytes + self.forwarded

    @property
    def is_awaited(self) -> bool:
        """Only the client can make the held bytes fewer: its requests wait behind a parked one, or for it to read
        answers or to send the rest of a frame."""
        if self.unread or (self.waiting_bytes and not self._all.is_ready(self.id)):
            return True
        return not self.waiting_bytes and self.partial > 0 and not self._paused

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host = peer[0]
            self.peer = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self.file_number = socket.fileno()
        limit = self._all.config.connection_max_queued_bytes
        self._transport.set_write_buffer_limits(high=limit, low=limit // 2)
        self.open = self._all.admit(self)
        if self.open:
            self._all.arrive(Opened(self.id, self.broker_id, self.host, self.principal, self.listener, self.software))
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.gate_open and not self.partial and (self.session is None or not self.session.is_over):
            # Requests that need no turn are answered here.
            answers, size = self._turns.at_once(self.id, data)
            if size:
                self.stirred = True
                self._transport.write(answers)
                if size == len(data):
                    return
                data = data[size:]
        self.last_active = self._all.clock()
        try:
            frames = self._splitter.feed(data)
        except ProtocolError as error:
            self.close(TLS_CAME if data.startswith(TLS_RECORD) else f"malformed request: {error}")
            return
        grown = self._splitter.pending - self.partial
        self.partial = self._splitter.pending
        self.missing = self._splitter.missing
        for frame in frames:
            grown += len(frame)
            if self.gate_open and (self.session is None or self._may_pass(frame)):
                self._hand_over(frame)
            else:
                self._queue.append(frame)
                self._queue_bytes += len(frame)
        self._all.inflow.grew(self, grown, finished=bool(frames))
        if self._is_renewing:
            self._renew(after_turn=False)
        if self._queue_bytes > QUEUE_BYTES:
            self.pause_reading("queue")

    def collects(self, held: int, missing: int) -> None:
        """The gateway collects a request that this connection may not get: its bytes count as those of a frame here."""
        grown, self.partial, self.missing = held - self.partial, held, missing
        self._all.inflow.grew(self, max(grown, 0), finished=not missing)
        if grown < 0:
            self._all.inflow.shrank(-grown)

    def forwards(self, held: int) -> None:
        """So many bytes of this client wait in the gateway for the upstream broker."""
        grown, self.forwarded = held - self.forwarded, held
        if grown > 0:
            self._all.inflow.grew(self, grown, finished=True)
        elif grown:
            self._all.inflow.shrank(-grown)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open:
            return
        self.open = False
        # Changes that arrived before the end are handled: a producer with acks=0, or a member that leaves, may close
        # without waiting. The answers of other requests would have no reader. Without a session, nothing is handled.
        is_over = self.session is not None and (self._is_renewing or self.session.is_over)
        for frame in () if is_over else tuple(filter(outlasts, self._queue)):
            self._queue_bytes -= len(frame)
            self._all.take(self, frame)
        self._all.arrive(Closed(self.id))
        self._all.forget(self)

    def pause_writing(self) -> None:
        self.unread = True
        self.gate_open = False
        self._all.arrive(Unread(self.id, unread=True))
        self._all.watch(self)
        self.pause_reading("unread answers")

    def resume_writing(self) -> None:
        self.unread = False
        self.last_active = self._all.clock()
        self.resume_reading("unread answers")
        self._all.arrive(Unread(self.id, unread=False))

    # -- requests

    def _may_pass(self, frame: bytes) -> bool:
        """False if a request must not reach the broker: it belongs to a re-authentication, which waits until all
        requests before it are answered; or the session is over, which closes the connection."""
        assert self.session is not None
        if self.session.takes(frame):
            self.gate_open = False
            self._is_renewing = True
            return False
        if self.session.is_over:
            self.gate_open = False
            self.close("the session is over (connections.max.reauth.ms)")
            return False
        return True

    def _renew(self, *, after_turn: bool) -> None:
        """Go on with the re-authentication, if all requests before it are answered."""
        session = self.session
        assert session is not None
        if not session.takes(b"") and not self._all.is_quiet(self, after_turn=after_turn):
            self._all.watch(self)
            return
        while self._queue and not session.is_busy and self.open and not self.closing:
            if not session.takes(self._queue[0]):
                self._is_renewing = False
                self._open_gate()
                return
            frame = self._queue.popleft()
            self._queue_bytes -= len(frame)
            session.take(self, frame)
            self._all.inflow.shrank(len(frame))
        if not self._queue and not session.is_busy and not session.takes(b""):
            self._is_renewing = False
            self._open_gate()

    def go_on_with_session(self) -> None:
        if self._is_renewing and self.open:
            self._renew(after_turn=False)

    def send_of_session(self, data: bytes) -> None:
        """An answer of the re-authentication."""
        self.last_active = self._all.clock()
        if not self._transport.is_closing():
            self._transport.write(data)

    def _open_gate(self) -> None:
        self.gate_open = not self.waiting_bytes and not self.unread
        while self.gate_open and self._queue:
            self._hand_over_next()
        if not self._queue:
            self.resume_reading("queue")

    def _hand_over(self, frame: bytes) -> None:
        self._all.take(self, frame)
        size = FRAME_BYTES + len(frame)
        self._turn_bytes += size
        self._all.turn_bytes += size
        if frame[:2] == FETCH or (
            self._turn_bytes > FAIR_BYTES and (self._turn_bytes > TURN_BYTES or self._all.turn_bytes > ALL_TURN_BYTES)
        ):
            self.gate_open = False

    def _hand_over_next(self) -> None:
        if self.session is not None and not self._may_pass(self._queue[0]):
            return
        frame = self._queue.popleft()
        self._queue_bytes -= len(frame)
        self._hand_over(frame)

    def turn_over(self, waiting_bytes: int) -> None:
        """A turn with its requests is over. `waiting_bytes` of its requests wait in the broker."""
        self._turn_bytes = 0
        self.waiting_bytes = waiting_bytes
        if self._is_renewing:
            self._renew(after_turn=True)
        else:
            self._open_gate()

    # -- answers and the end

    def send(self, frames: list[bytes]) -> None:
        if self._transport.is_closing():
            return
        if self.session is not None and self.session.is_over and not self._is_renewing:
            self.abort_for("the session is over (connections.max.reauth.ms): its answers are dropped")
            return
        self.last_active = self._all.clock()
        if len(frames) == 1:
            self._transport.write(frames[0])
        else:
            self._transport.writelines(frames)

    def close(self, reason: str) -> None:
        """Close when everything sent has left."""
        if self.open and not self._transport.is_closing():
            self._all.log.info("connection closed", peer=self.peer, reason=reason)
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def abort_for(self, reason: str) -> None:
        """Close without sending what has not left."""
        self._all.log.info("connection closed", peer=self.peer, reason=reason)
        self.abort()

    def pause_reading(self, why: str) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused.add(why)

    def resume_reading(self, why: str) -> None:
        if why in self._paused:
            self._paused.remove(why)
            if not self._paused and not self._transport.is_closing():
                self._transport.resume_reading()
