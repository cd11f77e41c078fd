"""The connections that have not finished TLS and SASL: *guests*. They may cost little.

A guest has a limited time and sends a limited number of bytes. There are at most MOST_GUESTS; a further one takes the
place of the one that has waited longest, because most of those that wait long will never finish. When all guests hold
more than GUEST_BYTES, the one that holds the most is closed. A TLS handshake takes
about half a millisecond of the event loop. Handshakes share half of the loop's time, so that a thousand clients that
reconnect at once do not keep the others waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kohort.server.log import LimitedLog

MOST_GUESTS = 1_000
GUEST_BYTES = 16 * 1024 * 1024
"""Bytes of all guests that are in memory."""
PASS_S = 0.004
"""Time of the event loop that handshakes take at once; then the loop is free for as long."""


class Guest(Protocol):
    host: str
    peer: str
    listener: str

    @property
    def held_bytes(self) -> int:
        """Bytes of it that are in memory."""

    def dismiss(self, reason: str) -> None:
        """Close it without an answer."""


class Handshake(Protocol):
    def go_on(self) -> None:
        """The next step of a handshake; about half a millisecond."""


class Door:
    """`admit` gets a client's host, a broker and a listener, and returns why the connection is refused, or "". A
    connection that is not refused counts until `left` is called, with the host and the listener."""

    def __init__(
        self, admit: Callable[[str, int, str], str], left: Callable[[str, str], None], log: LimitedLog
    ) -> None:
        self.log = log
        self.bytes = 0
        self.failures: dict[str, int] = {}
        """How many authentications have failed, by listener."""
        self._admit = admit
        self._left = left
        self._guests: dict[Guest, asyncio.TimerHandle] = {}
        self._handshakes: deque[Handshake] = deque()
        self._is_planned = False

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: Guest, broker_id: int, limit_s: float, what: str) -> bool:
        """False if the connection is refused. `what` must end within `limit_s`."""
        if refusal := self._admit(guest.host, broker_id, guest.listener):
            self.log.info("connection refused", peer=guest.peer, reason=refusal)
            return False
        self._guests[guest] = self._timer(guest, limit_s, what)
        if len(self._guests) > MOST_GUESTS:
            next(iter(self._guests)).dismiss(f"{MOST_GUESTS} other connections have not authenticated either")
        return True

    def limit(self, guest: Guest, limit_s: float, what: str) -> None:
        """The guest does something else now, which has a time of its own."""
        self._guests[guest].cancel()
        self._guests[guest] = self._timer(guest, limit_s, what)

    def _timer(self, guest: Guest, limit_s: float, what: str) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(limit_s, guest.dismiss, f"{what} took longer than {limit_s:.3g} s")

    def leave(self, guest: Guest) -> None:
        """It has authenticated, or it is closed. A second call does nothing."""
        timer = self._guests.pop(guest, None)
        if timer is not None:
            timer.cancel()
            self._left(guest.host, guest.listener)

    def holds(self, size: int) -> None:
        """`size` more bytes (or fewer) are in memory for guests."""
        self.bytes += size
        while self.bytes > GUEST_BYTES and self._guests:
            largest = max(self._guests, key=lambda guest: guest.held_bytes)
            if not largest.held_bytes:
                break
            largest.dismiss("it holds most of the memory of connections that have not authenticated")

    def close_all(self) -> None:
        self._handshakes.clear()
        for guest in list(self._guests):
            guest.dismiss("the server stops")

    # -- handshakes

    def queue(self, handshake: Handshake) -> None:
        self._handshakes.append(handshake)
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        ends = time.perf_counter() + PASS_S
        while self._handshakes:
            self._handshakes.popleft().go_on()
            if time.perf_counter() >= ends:
                break
        self._is_planned = bool(self._handshakes)
        if self._is_planned:
            asyncio.get_running_loop().call_later(PASS_S, self._run)
