"""The session of an authenticated connection: when it ends, and its re-authentication (KIP-368).

A session without an end has no re-authentication: SaslHandshake is an ordinary request then, which the broker refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kohort.server.connection import Connection
from kohort.server.security.conversation import HANDSHAKE, Close, Conversation, Done, Hash, Result, Send

AGAIN_S = 1.0
"""No sooner after an authentication can the next one begin."""


class Session:
    def __init__(
        self,
        done: Done,
        clock: Callable[[], float],
        begin: Callable[[str, str], Conversation],
        hashing: Callable[[Callable[[], Any], Callable[[Any], None]], None],
        delay_s: float,
    ) -> None:
        """`begin` begins a conversation with a user by a mechanism, `hashing` computes in a thread."""
        self._clock = clock
        self._begin = begin
        self._hash = hashing
        self._delay_s = delay_s
        self._user, self._mechanism = done.user, done.mechanism
        self._conversation: Conversation | None = None
        self._renew(done)
        self.is_busy = False

    def _renew(self, done: Done) -> None:
        self._began = self._clock()
        self._ends = self._began + done.session_ms / 1000

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._ends

    def takes(self, frame: bytes) -> bool:
        """True if this request is one of a re-authentication."""
        if self._conversation is not None:
            return True
        return int.from_bytes(frame[:2], "big") == HANDSHAKE and self._clock() - self._began >= AGAIN_S

    def take(self, connection: Connection, frame: bytes) -> None:
        if self._conversation is None:
            self._conversation = self._begin(self._user, self._mechanism)
        self._react(connection, self._conversation.take(frame))

    def _react(self, connection: Connection, result: Result) -> None:
        match result:
            case Send():
                connection.send_of_session(result.data)
            case Done():
                self._conversation = None
                self._renew(result)
                connection.send_of_session(result.data)
            case Hash():
                self.is_busy = True
                self._hash(result.compute, lambda value: self._hashed(connection, value))
            case Close() if result.is_failure:
                self.is_busy = True
                asyncio.get_running_loop().call_later(self._delay_s, self._refuse, connection, result)
            case Close():
                self._refuse(connection, result)

    def _hashed(self, connection: Connection, value: Any) -> None:
        self.is_busy = False
        if self._conversation is not None and connection.open:
            self._react(connection, self._conversation.hashed(value))
            connection.go_on_with_session()

    def _refuse(self, connection: Connection, result: Close) -> None:
        if connection.open:
            if result.data:
                connection.send_of_session(result.data)
            connection.close(f"re-authentication: {result.reason}")
