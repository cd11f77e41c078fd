"""Which connections stay open: a flood of idle ones must not keep others out.

When there are MOST, some end for new ones: of the network that has most of them, those without a new request for
longest. So who opens connections and sends nothing, half a TLS handshake, half a request or half a form, or does not
read answers, loses them first. A browser whose stream ends that way opens it again by itself.
"""

from __future__ import annotations

import gc
import ipaddress
import socket
from asyncio import sslproto
from collections import Counter
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

MOST = 400
RECORD = 16_384
"""The largest record of TLS."""
COLLECT_EVERY = 2_000
"""Connections: those whose handshake has failed are garbage that refers to itself, of 65 kB each."""
AT_ONCE = 16
"""Are taken in a turn of the event loop: those that are there come first."""
QUEUE = 1_024

Peer = tuple[str, int]


class Door(socket.socket):
    """A listening socket, for the event loop. Takes over `listening`."""

    def __init__(self, listening: socket.socket, most: int = MOST) -> None:
        super().__init__(fileno=listening.detach())
        self._most = most
        self._accepted = 0
        self._open: dict[Peer, socket.socket] = {}
        """By the last request, or else the beginning; those that are closed, too, until there are many."""

    def listen(self, _: int = 0, /) -> None:
        """The event loop gives AT_ONCE; the queue of the system is longer."""
        super().listen(QUEUE)

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._accepted += 1
        if self._accepted % COLLECT_EVERY == 0:
            gc.collect()
        if len(self._open) >= self._most:
            self._make_room()
        peer = address[:2]
        self._open.pop(peer, None)
        self._open[peer] = connection
        return connection, address

    def heard(self, peer: Peer) -> None:
        """A connection begins a request."""
        if (connection := self._open.pop(peer, None)) is not None:
            self._open[peer] = connection

    def _make_room(self) -> None:
        """For some connections at once, because this looks at all."""
        self._open = {peer: one for peer, one in self._open.items() if one.fileno() != -1}
        networks = {peer: network_of(peer[0]) for peer in self._open}
        count = Counter(networks.values())
        for _ in range(len(self._open) - self._most + max(self._most // 16, 1)):
            [(largest, _)] = count.most_common(1)
            peer = next(peer for peer in self._open if networks[peer] == largest)
            count[largest] -= 1
            with suppress(OSError):  # the other end was faster
                self._open.pop(peer).shutdown(socket.SHUT_RDWR)  # its transport sees that, and closes it


def network_of(address: str) -> str:
    """The addresses that one machine can choose freely, by one name: those of loopback, and the half of an IPv6
    address that is not the network's."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return "loopback" if found.is_loopback else str(ipaddress.IPv6Network((found, 64), strict=False))
        found = found.ipv4_mapped
    return "loopback" if found.is_loopback else str(found)


def save_memory() -> None:
    """asyncio gives each connection with TLS a buffer of 256 kB, also before its handshake has ended."""
    sslproto.SSLProtocol.max_size = RECORD


class Hears:
    """Tells the door which connections begin requests."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["client"]:
            self._door.heard(tuple(scope["client"]))
        await self._app(scope, receive, send)
