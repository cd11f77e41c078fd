"""Logins: each has its user's own connections, and a token that only the user's browser and this process know.

A session ends IDLE_S after the last page that was asked for, LIFE_S after the login, when its bearer token expires, by
a logout, and with the process. The streams and polls of an open page are no use of it, or a page that is left open
would never log out. Sessions are kept by a hash of their tokens.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from kohort.console.shared import Console

IDLE_S = 30 * 60.0
LIFE_S = 8 * 3600.0
MOST = 100
MOST_OF_USER = 10
"""The one that was used longest ago ends for a new one."""

Clock = Callable[[], float]


@dataclass(slots=True, eq=False)
class Session:
    console: Console
    ends_at: float
    used_at: float
    clock: Clock
    has_ended: bool = False
    streams: int = 0
    """Those that are open."""

    def is_over(self) -> bool:
        now = self.clock()
        return self.has_ended or now - self.used_at >= IDLE_S or now >= self.ends_at


class Sessions:
    """For one event loop."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Session] = {}

    def begin(self, console: Console, life_s: float = LIFE_S) -> str:
        """A new session of `console.user`. Returns its token."""
        self.sweep()
        self._make_room([key for key, one in self._known.items() if one.console.user == console.user], MOST_OF_USER)
        self._make_room(list(self._known), MOST)
        token, now = secrets.token_urlsafe(32), self._clock()
        self._known[_key(token)] = Session(console, now + life_s, now, self._clock)
        return token

    def find(self, token: str, *, uses: bool) -> Session | None:
        """`uses`: this begins the idle time anew."""
        session = self._known.get(_key(token))
        if session is None or session.is_over():
            return None
        if uses:
            session.used_at = self._clock()
        return session

    def end(self, session: Session) -> None:
        for key in [key for key, known in self._known.items() if known is session]:
            self._end(key)

    def sweep(self) -> None:
        """End those that are over."""
        for key in [key for key, session in self._known.items() if session.is_over()]:
            self._end(key)

    def living(self) -> list[Session]:
        return [session for session in self._known.values() if not session.is_over()]

    def close(self) -> None:
        for key in list(self._known):
            self._end(key)

    def __len__(self) -> int:
        return len(self._known)

    def _make_room(self, keys: list[str], most: int) -> None:
        if len(keys) >= most:
            self._end(min(keys, key=lambda key: self._known[key].used_at))

    def _end(self, key: str) -> None:
        session = self._known.pop(key)
        session.has_ended = True
        session.console.close()


def _key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
