"""TLS in front of a server without TLS: it forwards decrypted bytes to the server, and encrypts the answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import Self

from own_certificates import Issued
from running_tasks import cancel
from scripted_broker import server_context

CHUNK = 64 * 1024


class TlsFront:
    """A context manager. Its port is known before it starts, for the server's advertised listener."""

    def __init__(self, issued: Issued, folder: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._context = server_context(issued, folder)

    def to(self, address: str) -> Self:
        self._host, _, self._port = address.rpartition(":")
        return self

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, sock=self._listener, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        await cancel(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(self._host, int(self._port))
        with contextlib.suppress(asyncio.CancelledError):  # at the end
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        writer.close()
        inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()
