"""A broker that lies: a proxy before a server that changes some of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

JOIN_GROUP = 11

Change = Callable[[int, int, bytes], bytes | None]
"""Takes the API's key and version and the answer with its header; returns what is sent, or None to close."""


def another_error(api: int, version: int, answer: bytes) -> bytes:
    """JoinGroup 9 with a session timeout out of bounds: 42 instead of 26."""
    if (api, version) == (JOIN_GROUP, 9) and answer[9:11] == (26).to_bytes(2, "big"):
        return answer[:9] + (42).to_bytes(2, "big") + answer[11:]
    return answer


def no_answer_to_joins(api: int, version: int, answer: bytes) -> bytes | None:
    return None if api == JOIN_GROUP else answer


def no_protocol(api: int, version: int, answer: bytes) -> bytes:
    """Answers to JoinGroup end after the header."""
    return answer[:5] if api == JOIN_GROUP else answer


class LyingFront:
    """A context manager. Its port is known before it starts, for the server's advertised listener."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def to(self, port: int) -> Self:
        self._port = port
        return self

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, sock=self._listener)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        asked: dict[int, tuple[int, int]] = {}
        to_server = asyncio.ensure_future(self._requests(reader, inner_writer, asked))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                answer = await self._frame(inner_reader)
                changed = self._change(*asked.pop(int.from_bytes(answer[:4], "big")), answer)
                if changed is None:
                    break
                writer.write(len(changed).to_bytes(4, "big") + changed)
        to_server.cancel()
        writer.close()
        inner_writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                frame = await self._frame(reader)
                api, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                asked[int.from_bytes(frame[4:8], "big")] = api, version
                writer.write(len(frame).to_bytes(4, "big") + frame)
        writer.close()

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        size = await reader.readexactly(4)
        return await reader.readexactly(int.from_bytes(size, "big"))
