"""A TCP proxy in front of a PostgreSQL's Unix socket, whose connections can be cut in several ways."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

SOCKET = ".s.PGSQL.5432"


class Link:
    """A connection of a client, and the one to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_deaf = False
        """What the server answers is lost."""
        self.passes = threading.Event()
        self.passes.set()
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.passes.wait()
                if source is self.client or not self.is_deaf:
                    target.sendall(data)
        self.close()

    def close(self) -> None:
        self.passes.set()
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Proxy:
    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{SOCKET}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[Link] = []
        self._state = "passes"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._path)
                except OSError:
                    client.close()
                    continue
                link = Link(client, server)
                if self._state == "hangs":
                    link.passes.clear()
                elif self._state == "cut":
                    link.close()
                self._links.append(link)

    def cut(self) -> None:
        """Close all connections, and each new one."""
        self._state = "cut"
        self._close_all()

    def hang(self) -> None:
        """Nothing passes, and nothing is closed."""
        self._state = "hangs"
        for link in self._links:
            link.passes.clear()

    def heal(self) -> None:
        """What hung is closed: the network has forgotten it."""
        self._state = "passes"
        self._close_all()

    def blip(self, pause: float) -> None:
        """The server hears for a moment longer than it is heard; then all connections are closed."""
        links = list(self._links)
        for link in links:
            link.is_deaf = True
        threading.Event().wait(pause)
        self._close_all()

    def _close_all(self) -> None:
        links, self._links = self._links, []
        for link in links:
            link.close()

    def close(self) -> None:
        self._listener.close()
        self._close_all()
