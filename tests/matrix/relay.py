"""A TCP relay between a client and a server: it keeps the smallest request of every API and version that passes.

The server advertises the relay's address, so all of a client's connections go through the relay. After `lose_answer`
it lets a request through and closes the connection instead of answering. The client's next action shows whether it is
idempotent. The test's own requests, which have OWN as their client id, are passed on and not kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

from kohort.wire.batches import read_header
from kohort.wire.codec import decode, is_flexible
from kohort.wire.framing import FrameSplitter, body_offset, read_request_header
from kohort.wire.schemas.produce import ProduceRequest

OWN = "matrix-runner"
PRODUCE = 0
PIECE = 65_536
LARGEST = 110_000_000

Kept = tuple[int, int, int]
"""API key, version, and of Produce the compression of its first batch."""


class Relay:
    """Start it, set the server's address (`target`), stop it."""

    def __init__(self, of: Callable[[str], bool] = lambda client_id: client_id != OWN) -> None:
        """`of` chooses, by client id, the clients whose requests the relay keeps."""
        self._of = of
        self.frames: dict[Kept, bytes] = {}
        self.counts: Counter[int] = Counter()
        """Requests by API key."""
        self.lost = 0
        """Answers that were not delivered."""
        self.target = 0
        self.port = 0
        self._lose: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lose_answer(self, api_key: int) -> None:
        """The answer to the next request of this API is not delivered."""
        self._lose = api_key

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._relay, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            of_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        doomed = asyncio.Event()
        ways = (
            asyncio.create_task(self._requests(reader, to_server, doomed)),
            asyncio.create_task(self._answers(of_server, writer, doomed)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # the end of the relay; the streams' own callback would tell of it
            return
        finally:
            for task in ways:
                task.cancel()
            to_server.close()
            writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        splitter = FrameSplitter(LARGEST)
        try:
            while data := await reader.read(PIECE):
                for frame in splitter.feed(data):
                    if self._passes(frame):
                        doomed.set()
                to_server.write(data)
                await to_server.drain()
        except OSError:  # either side has gone
            return

    async def _answers(
        self, of_server: asyncio.StreamReader, writer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        try:
            while data := await of_server.read(PIECE):
                if doomed.is_set():
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            return

    def _passes(self, frame: bytes) -> bool:
        """True if the answer to the request must be lost."""
        header = read_request_header(frame)
        if not self._of(header.client_id or ""):
            return False
        self.counts[header.api_key] += 1
        codec = _compression(frame, header.api_version) if header.api_key == PRODUCE else 0
        key = (header.api_key, header.api_version, codec)
        if key not in self.frames or len(frame) < len(self.frames[key]):
            self.frames[key] = frame
        if header.api_key != self._lose:
            return False
        self._lose = None
        return True


def _compression(frame: bytes, version: int) -> int:
    request = decode(ProduceRequest, version, frame, body_offset(frame, is_flexible(ProduceRequest, version)))
    return read_header(request.topic_data[0].partition_data[0].records).compression
