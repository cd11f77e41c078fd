"""The HTTP listener's connections: at most MOST of them, each with one request.

At the limit, the oldest connection that waits for the rest of its request makes room, or else the oldest whose client
does not read: clients that say nothing, or read nothing, keep nobody out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from kohort.config import Address
from kohort.config import Listener as Settings
from kohort.server.arrivals import BACKLOG
from kohort.server.http.connection import Answer, HttpConnection
from kohort.server.http.request import Request
from kohort.server.listeners import HTTP, BoundSockets, are_local

MOST = 10


class HttpDoor:
    def __init__(
        self, address: Address, answer: Callable[[Request], Awaitable[Answer]], *, may_be_insecure: bool
    ) -> None:
        self._answer = answer
        self._open: dict[HttpConnection, None] = {}
        self._hosts: frozenset[str] | None = None
        self._wanted = address
        settings = Settings("http.listener", HTTP, (address,), None)
        self._sockets = BoundSockets(settings, may_be_insecure=may_be_insecure)
        self._servers: list[asyncio.AbstractServer] = []

    @property
    def address(self) -> Address:
        """Where it listens, with the real port."""
        return self._sockets.bound

    def bind(self) -> None:
        """Raises ListenFailed, and ConfigError for an address that must not be open to the network."""
        self._sockets.bind()
        if are_local(self._sockets.hosts):
            self._hosts = frozenset(("localhost", self._wanted.host.lower(), socket.gethostname().lower()))

    async def up(self) -> None:
        """Raises ListenFailed."""
        loop = asyncio.get_running_loop()
        for bound in self._sockets.listen():
            self._servers.append(await loop.create_server(self._connected, sock=bound, backlog=BACKLOG))

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self._sockets.close()
        for connection in list(self._open):
            connection.abort()

    def _connected(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, HttpConnection(self._answer, self._hosts, self._opened, self._closed))

    def _opened(self, connection: HttpConnection) -> bool:
        if len(self._open) >= MOST:
            idle = [other for other in self._open if other.is_reading] or [
                other for other in self._open if other.is_unread
            ]
            if not idle:
                return False
            self._closed(idle[0])
            idle[0].abort()
        self._open[connection] = None
        return True

    def _closed(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)
