"""Repeated requests: the cached answers to heartbeats and commits, by connection.

Most requests of members repeat the one before: a heartbeat is the same bytes but for the correlation id, a commit is
the same but for the offsets. Each cache keeps what the last requests of a connection were read as and what the shard
decided on them. A decision holds while `Shard.version` is the same (coordinator/steady_answer.py).
"""

from __future__ import annotations

from kohort.broker.apis import OFFSET_COMMIT
from kohort.broker.connection import Connection
from kohort.broker.shortcuts.commits import Commits
from kohort.broker.shortcuts.heartbeats import Heartbeats
from kohort.broker.state import BrokerState
from kohort.broker.turn import ConnectionId, Millis

OFFSET_COMMIT_KEY = OFFSET_COMMIT.key.to_bytes(2, "big")


class Repeats:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.heartbeats = Heartbeats(state)
        self.commits = Commits(state)
        self._turn = state.turn
        self._late_ms = state.late_ms

    def answer(self, connection: Connection, frame: bytes) -> bytes:
        """The answer to a request that needs no handler; empty for any other, of which nothing is done."""
        if connection.rules_version != self._state.rules_version:
            self._forget_allowed(connection)
        now = self._turn.now
        if frame[:2] == OFFSET_COMMIT_KEY:
            answer = self.commits.answer(connection, frame, now)
            if answer:
                connection.is_held = False
        else:
            answer = b"" if connection.is_held else self.heartbeats.answer(connection, frame, now)
        if answer and now - connection.arrived >= self._late_ms:
            self._turn.late.append(connection.late(frame, now))
        return answer

    def at_once(self, connection: Connection, data: bytes, now: Millis) -> tuple[bytes, int]:
        """The answers to the requests that `data` begins with, as far as they need no turn; and their size in bytes."""
        if connection.rules_version != self._state.rules_version:
            self._forget_allowed(connection)
        return self.heartbeats.answers(connection, data, now)

    def _forget_allowed(self, connection: Connection) -> None:
        """The rules have changed: from now on the new version decides what is allowed."""
        self.forget(connection.id)
        connection.rules_version = self._state.rules_version

    def forget(self, connection: ConnectionId) -> None:
        self.heartbeats.forget(connection)
        self.commits.forget(connection)

    def validate(self, connection: ConnectionId, now: Millis) -> None:
        """Raises AssertionError if a cached answer differs from the answer that the shard would give."""
        self.heartbeats.validate(connection, now)
        self.commits.validate(connection, now)
