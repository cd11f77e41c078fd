"""The tools of the tests of the edge: the edge around an echo, raw clients, a storage that a test can delay."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from echo_broker import EchoBroker

import kohort.server.turns
from kohort.storage.memory import MemoryStorage
from kohort.testing import KohortServer


class Wire(socket.socket):
    """A raw client that speaks frames."""

    def __init__(self, address: str) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.settimeout(10)
        host, _, port = address.rpartition(":")
        self.connect((host, int(port)))

    def ask(self, *frames: bytes) -> list[bytes]:
        self.push(*frames)
        return [self.pull() for _ in frames]

    def push(self, *frames: bytes) -> None:
        self.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    def pull(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self.recv_into(rest)
            if not count:
                raise EOFError(f"closed after {size - len(rest)} of {size} bytes")
            rest = rest[count:]
        return bytes(data)

    @property
    def is_closed(self) -> bool:
        """The server has closed the connection (waits for it)."""
        try:
            return self.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


class SlowStorage(MemoryStorage):
    """Commits in the writer thread, and only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = threading.Event()
        self.sizes: list[int] = []
        self.fail: Exception | None = None

    def commit(self, operations: Any, lease: Any) -> None:
        if operations:
            assert self.may_commit.wait(10)
            if self.fail is not None:
                raise self.fail
            self.sizes.append(len(operations))
        super().commit(operations, lease)


class Edge(KohortServer):
    """The real edge around an EchoBroker."""

    @property
    def broker(self) -> EchoBroker:
        broker: Any = self._running._broker
        return broker

    @property
    def connections(self) -> Any:
        return self._running._connections

    @property
    def listeners_of_server(self) -> Any:
        return self._running._listeners

    def call(self, function: Callable[[], object]) -> None:
        """In the event loop, which does nothing else meanwhile."""

        async def called() -> None:
            function()

        asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    def change(self, **settings: Any) -> None:
        """Settings of the running server."""
        config = replace(self._running.config, **settings)
        self.connections._config_of = lambda broker_id: config

    def hold_commits_in_a_thread(self) -> None:
        """From now on the (slow) storage commits in the writer thread, as SQLite does."""
        turns: Any = self._running._turns
        turns._writer = kohort.server.turns._Writer(self._loop, turns._storage, turns._lease)

    def wire(self, broker_id: int = 1) -> Wire:
        return Wire(self.bootstrap_servers.split(",")[broker_id - 1])


def eventually(condition: Callable[[], object], limit_s: float = 10) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
