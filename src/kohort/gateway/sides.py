"""The two ends of a link besides the client's: the transport of the broker's connection, and the protocol of the
connection to the upstream broker.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterable
from typing import Any, Protocol, cast


class Link(Protocol):
    """The part of link.py that they use."""

    @property
    def unsent(self) -> int: ...
    def own_answered(self, data: bytes) -> None: ...
    def pause_own(self, *, paused: bool) -> None: ...
    def close_own(self) -> None: ...
    def upstream_made(self, transport: asyncio.Transport) -> None: ...
    def upstream_received(self, data: bytes) -> None: ...
    def upstream_lost(self, exc: Exception | None) -> None: ...
    def upstream_full(self, *, is_full: bool) -> None: ...


class Reading:
    """A transport is read as long as there is no reason against it."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self._since: float | None = None
        self._transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self.reasons:
            transport.pause_reading()

    def end(self) -> None:
        self._transport = None

    def pause(self, why: str) -> None:
        if not self.reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self.reasons.add(why)

    def resume(self, why: str) -> None:
        if why in self.reasons:
            self.reasons.discard(why)
            if not self.reasons and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def paused_for(self, now: float) -> float:
        """For how long reading has been paused, as far as earlier calls of this function have noticed."""
        if not self.reasons:
            self._since = None
        elif self._since is None:
            self._since = now
        return 0.0 if self._since is None else now - self._since


class WriteLimit:
    """Of a transport's buffer. A transport looks at its buffer whenever it is set."""

    def __init__(self) -> None:
        self._limit = 0

    def put(self, transport: asyncio.Transport, limit: int) -> None:
        if limit != self._limit:
            self._limit = limit
            transport.set_write_buffer_limits(high=limit, low=limit // 4)


def has_gone(file_number: int) -> bool:
    """True if the peer has closed the socket, even if not all that it sent is read. Always False on other systems than
    Linux."""
    rdhup = getattr(select, "POLLRDHUP", 0)
    if file_number < 0 or not rdhup:
        return False
    poll = select.poll()
    poll.register(file_number, rdhup)
    return bool(poll.poll(0))


class OwnSide:
    """The transport of the broker's connection."""

    def __init__(self, link: Link, client: asyncio.Transport) -> None:
        self._link = link
        self._client = client

    def write(self, data: bytes) -> None:
        self._link.own_answered(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self._link.own_answered(b"".join(pieces))

    def is_closing(self) -> bool:
        return self._client.is_closing()

    def close(self) -> None:
        self._link.close_own()

    def abort(self) -> None:
        self._client.abort()

    def pause_reading(self) -> None:
        self._link.pause_own(paused=True)

    def resume_reading(self) -> None:
        self._link.pause_own(paused=False)

    def get_write_buffer_size(self) -> int:
        return self._link.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The link sets its own."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._client.get_extra_info(name, default)


class UpstreamSide(asyncio.Protocol):
    """The protocol of the connection to the upstream broker."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.upstream_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._link.upstream_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.upstream_lost(exc)

    def pause_writing(self) -> None:
        self._link.upstream_full(is_full=True)

    def resume_writing(self) -> None:
        self._link.upstream_full(is_full=False)
