"""Nobody is asked before it has started: a broker listens when its logs are replayed and its first turn is durable."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from kohort.config import Config
from kohort.server.server import Server
from kohort.storage.memory import MemoryStorage


class Peeking(MemoryStorage):
    """Tries to connect whenever the start asks something of it."""

    def __init__(self) -> None:
        super().__init__()
        self.server: Server | None = None
        self.tried: list[str] = []

    def logs(self) -> Any:
        self.peek("replay")
        return super().logs()

    def commit(self, operations: Any, lease: Any) -> None:
        self.peek("first turn")
        super().commit(operations, lease)

    def peek(self, when: str) -> None:
        assert self.server is not None
        [address] = self.server.listening["PLAINTEXT"]
        assert address.port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port), timeout=5)
        self.tried.append(when)


@pytest.mark.conformance("R2", "D2")
def test_a_broker_listens_when_it_can_answer() -> None:
    storage = Peeking()
    server = storage.server = Server(Config(listeners="127.0.0.1:0"), storage)

    async def start_and_stop() -> None:
        await server.start()
        assert storage.tried == ["replay", "first turn"]
        [address] = server.listening["PLAINTEXT"]
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()
        storage.peek = lambda when: None  # type: ignore[method-assign]
        await server.stop()

    asyncio.run(start_and_stop())
