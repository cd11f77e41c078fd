"""Which connections stay open: a flood of idle ones must not keep others out.

When there are MOST, the one that has been without a new request for longest ends for a new one. So who opens connections
and sends nothing, half a TLS handshake, half a request or half a form, or does not read answers, loses them first. A
browser whose stream ends that way opens it again by itself.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

MOST = 400
"""A connection with TLS takes 300 kB."""

Peer = tuple[str, int]


class Door(socket.socket):
    """A listening socket, whose event loop it is for. Takes over `listening`."""

    def __init__(self, listening: socket.socket, most: int = MOST) -> None:
        super().__init__(fileno=listening.detach())
        self._most = most
        self._open: dict[Peer, socket.socket] = {}
        """By the last request, or else the beginning; those that are closed, too, until there are many."""

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
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
        self._open = {peer: one for peer, one in self._open.items() if one.fileno() != -1}
        while len(self._open) >= self._most:
            oldest = self._open.pop(next(iter(self._open)))
            with suppress(OSError):  # the other end was faster
                oldest.shutdown(socket.SHUT_RDWR)  # its transport sees that, and closes it


class Hears:
    """Tells the door which connections begin requests."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["client"]:
            self._door.heard(tuple(scope["client"]))
        await self._app(scope, receive, send)
