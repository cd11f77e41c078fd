"""The bytes of links in memory: requests that upstream brokers, and answers that clients, have not read.

They count in the limits of a server (server/inflow.py, server/outflow.py). A transport does not say when its buffer
shrinks. So links that have written are visited again and again until they hold nothing, and their bytes are counted
then, at the latest after MEASURE_BYTES. Until then, what is written counts as if it stayed.

Either side of a link is read as long as the buffer of the other side is below an *allowance*: a part of the room that
is left, so that all links together do not exceed the limits before the next visit. Links that find no room still get
LEAST_BYTES each; above the limits the largest are closed, as those of a server are.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from kohort.server.connections import Connections
from kohort.server.outflow import Writer

VISIT_S = 0.1
BUFFER_BYTES = 1_048_576
"""The largest allowance: bytes in the buffer of a socket above which the other side is not read."""
LEAST_BYTES = 65_536
MEASURE_BYTES = 16_777_216
PART = 4
"""An allowance is this part of the room."""
LINGERING = 8
"""This part of the limit of requests may wait for upstream brokers after the clients have gone."""


class Visited(Protocol):
    """What `Buffers` calls of a link."""

    def visit(self) -> Writer | None:
        """Count the requests that it holds. Returns what counts its answers; None if it need not be visited again."""

    def tend(self) -> None:
        """Called once a visit, when no link is at work."""


class Buffers:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._busy: dict[Visited, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._room_for_requests = 0
        self._room_for_answers = 0
        self._written = 0
        """Bytes since the last visit."""
        self._lingering = 0
        self._measure()

    # -- what a link may have

    def for_requests(self, size: int) -> int:
        """`size` more bytes are written to an upstream broker. Returns the allowance."""
        self._writes(size)
        self._room_for_requests -= size
        return _allowance(self._room_for_requests)

    def for_answers(self, size: int) -> int:
        """`size` more bytes are written to a client. Returns the allowance."""
        self._writes(size)
        self._room_for_answers -= size
        return _allowance(self._room_for_answers)

    def _writes(self, size: int) -> None:
        self._written += size
        if self._written > MEASURE_BYTES:
            self._measure()

    def lingers(self, size: int) -> bool:
        """True if `size` bytes of a client that has gone may wait for an upstream broker. `lingered` ends the wait."""
        if self._lingering + size > self._connections.inflow.limit // LINGERING:
            return False
        self._lingering += size
        return True

    def lingered(self, size: int) -> None:
        self._lingering -= size

    # -- visits

    def visit(self, link: Visited) -> None:
        """Count what this link holds soon."""
        self._busy[link] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(VISIT_S, self._visit)

    def forget(self, link: Visited) -> None:
        self._busy.pop(link, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _visit(self) -> None:
        self._timer = None
        for link in list(self._busy):
            link.tend()
        self._measure()
        if self._busy:
            self._timer = asyncio.get_running_loop().call_later(VISIT_S, self._visit)

    def _measure(self) -> None:
        self._written = 0
        inflow, outflow = self._connections.inflow, self._connections.outflow
        for link in list(self._busy):
            writer = link.visit()
            if writer is None:
                self._busy.pop(link, None)
            else:
                outflow.sent(writer)
        unsent = outflow.unsent
        self._room_for_requests = inflow.room - inflow.total
        self._room_for_answers = outflow.limit - unsent
        if unsent > outflow.limit:
            self._connections.check_answers()


def _allowance(room: int) -> int:
    """One of a few values, because each change of an allowance sets the limits of a transport again."""
    part = room // PART
    if part >= BUFFER_BYTES:
        return BUFFER_BYTES
    return LEAST_BYTES if part < LEAST_BYTES else 1 << (part.bit_length() - 1)
