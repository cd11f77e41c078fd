"""SASL on a new connection: a guest (door.py) until it has authenticated. Then `Connection` takes its place.

The length of a request is looked at before the request is kept. All requests together are limited too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from kohort.server.security.conversation import Close, Conversation, Done, Hash, Result, Send
from kohort.server.security.door import Door
from kohort.server.security.tls_link import Inside, address_of
from kohort.wire.framing import BadLength

LENGTH_BYTES = 4
TLS_RECORD = b"\x16\x03"
LEFT_BEHIND = 1_048_576
"""Bytes of requests that a client may have sent behind its last message."""


class Owner(Protocol):
    """The part of entrance.py that logins use."""

    door: Door
    delay_s: float

    def hash(self, compute: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Compute in a thread, and call `then` in the event loop."""


class Login:
    """The protocol of a connection that has not authenticated."""

    def __init__(
        self,
        owner: Owner,
        conversation: Conversation,
        broker_id: int,
        listener: str,
        limits: tuple[float, int],
        welcome: Callable[[Done, tuple[str, str]], Inside],
    ) -> None:
        """`limits`: the time of the authentication in seconds, and the size of its largest request. `welcome` makes the
        protocol that takes the place of this one, for the result and the client's software."""
        self.host = ""
        self.peer = "?"
        self._owner = owner
        self._conversation = conversation
        self._broker_id = broker_id
        self.listener = listener
        self._limit_s, self._most = limits
        self._welcome = welcome
        self._received = bytearray()
        self._is_busy = False
        """A result is computed, or an answer is delayed: nothing is read meanwhile."""
        self._asked_at = 0.0
        """When the present request was taken, in seconds. The delay of a failure counts from here: the time of a
        computation, which depends on the user's mechanisms, tells nothing about a name."""
        self._is_over = False
        self._transport: asyncio.Transport

    @property
    def held_bytes(self) -> int:
        return len(self._received)

    # -- the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host, self.peer = address_of(transport)
        if not self._owner.door.enter(self, self._broker_id, self._limit_s, "the authentication"):
            self._is_over = True
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._received and data.startswith(TLS_RECORD):
            self._end("a TLS client came to a listener without TLS: its security.protocol must be SASL_PLAINTEXT")
            return
        self._received += data
        self._owner.door.holds(len(data))
        if len(self._received) > self._most + LEFT_BEHIND:
            self._end("it sent too much before the authentication")
        self._take_frames()

    def _take_frames(self) -> None:
        received = self._received
        while not self._is_busy and not self._is_over and len(received) >= LENGTH_BYTES:
            length = int.from_bytes(received[:LENGTH_BYTES], "big", signed=True)
            if not 0 < length <= self._most:
                self._end(f"malformed request: {BadLength(length, self._most, [])} (sasl.server.max.receive.size)")
                return
            end = LENGTH_BYTES + length
            if len(received) < end:
                return
            frame = bytes(received[LENGTH_BYTES:end])
            del received[:end]
            self._owner.door.holds(-end)
            self._asked_at = time.monotonic()
            self._react(self._conversation.take(frame))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def pause_writing(self) -> None:
        """Its answers are small: a client that reads none of them is not waited for."""
        self._end("it does not read its answers")

    def resume_writing(self) -> None: ...

    # -- what comes of a request

    def _react(self, result: Result) -> None:
        match result:
            case Send():
                self._transport.write(result.data)
            case Hash():
                self._busy()
                self._owner.hash(result.compute, self._hashed)
            case Done():
                self._accepted(result)
            case Close() if result.is_failure:
                self._busy()
                delay = max(self._owner.delay_s - (time.monotonic() - self._asked_at), 0.0)
                asyncio.get_running_loop().call_later(delay, self._refuse, result)
            case Close():
                self._refuse(result)

    def _busy(self) -> None:
        self._is_busy = True
        self._transport.pause_reading()

    def _hashed(self, value: Any) -> None:
        if self._is_over or self._transport.is_closing():
            return
        self._is_busy = False
        self._transport.resume_reading()
        self._react(self._conversation.hashed(value))
        self._take_frames()

    def _refuse(self, result: Close) -> None:
        if not self._is_over and not self._transport.is_closing() and result.data:
            self._transport.write(result.data)
        self._end(result.reason)

    def _accepted(self, result: Done) -> None:
        self._transport.write(result.data)
        rest = bytes(self._received)
        self._leave()
        inside = self._welcome(result, self._conversation.software)
        self._transport.set_protocol(cast(asyncio.BaseProtocol, inside))
        inside.connection_made(self._transport)
        if rest and not self._transport.is_closing():
            inside.data_received(rest)

    def _leave(self) -> None:
        self._is_over = True
        self._owner.door.holds(-len(self._received))
        self._received.clear()
        self._owner.door.leave(self)

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        door = self._owner.door
        door.failures[self.listener] = door.failures.get(self.listener, 0) + 1
        door.log.info("authentication failed", peer=self.peer, listener=self.listener, reason=reason)
        self._transport.close()

    def dismiss(self, reason: str) -> None:
        self._end(reason)
        self._leave()
        self._transport.abort()
