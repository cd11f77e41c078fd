"""One client's connection: bytes to frames on the way in, answers to bytes on the way out, and the bounds on both.

What was received in one go is cut into frames at once; what a turn releases for a connection leaves in one write.

A connection's *gate* is shut while its requests should not go to the broker: a request is parked there and others wait
behind it already, the client leaves its answers unread, a turn has taken enough from it, or it has sent a Fetch, whose
answer may be large, so that only one is built a turn. Frames that meet a shut gate wait here; when they grow many, the
connection is not read any more, and the kernel's window slows the client down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from kohort.broker.turn import Arrived, Closed, ConnectionId, Opened
from kohort.config import Config
from kohort.server.inflow import Inflow
from kohort.server.log import LimitedLog
from kohort.server.turns import TurnLoop
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import FrameSplitter

QUEUE_BYTES = 1_048_576
"""Frames waiting at a shut gate beyond which reading stops."""
TURN_BYTES = 8_388_608
"""What one connection may contribute to a turn; a single larger frame is let through."""
FETCH = b"\0\1"
"""How a Fetch request begins: its API key."""


class Owner(Protocol):
    """What a connection needs of all connections together (connections.py)."""

    config: Config
    clock: Callable[[], float]
    log: LimitedLog
    inflow: Inflow
    turns: TurnLoop
    arrive: Callable[[Arrived], None]
    wake: Callable[[], None]

    def admit(self, connection: Connection) -> bool:
        """Give the connection its id. False when there are too many."""

    def take(self, connection: Connection, frame: bytes) -> None:
        """A frame joins the next turn."""

    def watch(self, connection: Connection) -> None:
        """Call the connection's `turn_over` after the next turn, as after one that it contributed to."""

    def forget(self, connection: Connection) -> None: ...


class Connection:
    """An asyncio.Protocol by its methods. If it inherited from that, mypyc would make a class of Python's of it, whose
    attributes are looked up by name."""

    def __init__(self, owner: Owner, broker_id: int) -> None:
        self._all = owner
        self._turns = owner.turns
        self.broker_id = broker_id
        self.id = ConnectionId(0)
        self.host = ""
        self.peer = "?"
        self.last_active = owner.clock()
        self.stirred = False
        """It was active since the last sweep; to read the clock each time is what a heartbeat need not pay."""
        self.open = False
        self.gate_open = True
        self.unread = False
        """The client leaves so much unread that its requests wait."""
        self.waiting_bytes = 0
        """Of requests that the broker holds behind a parked one."""
        self.partial = 0
        """Bytes of a begun frame."""
        self._splitter = FrameSplitter(owner.config.socket_request_max_bytes)
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._turn_bytes = 0
        self._paused: set[str] = set()
        self._transport: asyncio.Transport

    @property
    def held_bytes(self) -> int:
        """What `Inflow` counts for this connection, but for frames that the turn loop has taken."""
        return self.partial + self._queue_bytes + self.waiting_bytes

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
        limit = self._all.config.connection_max_queued_bytes
        self._transport.set_write_buffer_limits(high=limit, low=limit // 2)
        self.open = self._all.admit(self)
        if self.open:
            self._all.arrive(Opened(self.id, self.broker_id, self.host))
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.gate_open and not self.partial:
            # What needs no turn is answered here and now.
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
            self.close(f"malformed request: {error}")
            return
        grown = self._splitter.pending - self.partial
        self.partial = self._splitter.pending
        for frame in frames:
            grown += len(frame)
            if self.gate_open:
                self._hand_over(frame)
            else:
                self._queue.append(frame)
                self._queue_bytes += len(frame)
        self._all.inflow.grew(self, grown, finished=bool(frames))
        if self._queue_bytes > QUEUE_BYTES:
            self.pause_reading("queue")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open:
            return
        self.open = False
        # What came before the end of the stream is handled (a producer with acks=0 may leave without waiting), unless
        # it waits behind something whose answer nobody will read.
        while self.gate_open and self._queue:
            self._hand_over_next()
        self._all.arrive(Closed(self.id))
        self._all.forget(self)

    def pause_writing(self) -> None:
        self.unread = True
        self.gate_open = False
        self._all.watch(self)
        self.pause_reading("unread answers")

    def resume_writing(self) -> None:
        self.unread = False
        self.last_active = self._all.clock()
        self.resume_reading("unread answers")
        self._all.wake()

    # -- requests

    def _hand_over(self, frame: bytes) -> None:
        self._all.take(self, frame)
        self._turn_bytes += len(frame)
        if frame[:2] == FETCH or self._turn_bytes > TURN_BYTES:
            self.gate_open = False

    def _hand_over_next(self) -> None:
        frame = self._queue.popleft()
        self._queue_bytes -= len(frame)
        self._hand_over(frame)

    def turn_over(self, waiting_bytes: int) -> None:
        """A turn of its requests is done; so many bytes of them wait in the broker behind a parked one."""
        self._turn_bytes = 0
        self.waiting_bytes = waiting_bytes
        self.gate_open = not waiting_bytes and not self.unread
        while self.gate_open and self._queue:
            self._hand_over_next()
        if not self._queue:
            self.resume_reading("queue")

    # -- answers and the end

    def send(self, frames: list[bytes]) -> None:
        if self._transport.is_closing():
            return
        self.last_active = self._all.clock()
        if len(frames) == 1:
            self._transport.write(frames[0])
        else:
            self._transport.writelines(frames)

    def close(self, reason: str) -> None:
        """Close when what was sent has left."""
        if self.open and not self._transport.is_closing():
            self._all.log.info("connection closed", peer=self.peer, reason=reason)
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self, why: str) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused.add(why)

    def resume_reading(self, why: str) -> None:
        if why in self._paused:
            self._paused.remove(why)
            if not self._paused and not self._transport.is_closing():
                self._transport.resume_reading()
