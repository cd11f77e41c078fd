"""Live pages: a stream for each open page, with the cells that have changed, each second at most.

The page is rendered from cells, and the stream sends cells of the same rows: so a page and its stream cannot differ in
what they show. A row's key is its name, quoted to ASCII. The rows and their order are those of the page: what is read
does not jump. If there are too many streams, a page asks every five seconds instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from kohort.client.errors import KafkaError

EVERY_S = 1.0
STILL_HERE_S = 15.0
SLICE_S = 0.2
MOST_STREAMS = 100
MOST_OF_SESSION = 20
"""So that no user takes the streams of all others."""

Cell = str | tuple[str, str]
"""A text, or a chip: its label and its kind."""
Rows = Mapping[str, Mapping[str, Cell]]


@dataclass(frozen=True, slots=True)
class Live:
    """What may change in a page."""

    rows: Rows = field(default_factory=dict)
    """Cells by the row's key and the cell's name; the row "" has the cells outside of tables."""
    regions: Mapping[str, str] = field(default_factory=dict)
    """HTML, by name."""


Read = Callable[[], Awaitable[Live]]


def difference(before: Live, after: Live) -> dict[str, Any]:
    """What is new or changed, as JSON; empty if nothing is. Rows and cells that are gone stay as they were."""
    rows = {}
    for key, cells in after.rows.items():
        old = before.rows.get(key, {})
        if changed := {name: cell for name, cell in cells.items() if old.get(name) != cell}:
            rows[key] = changed
    regions = {name: html for name, html in after.regions.items() if before.regions.get(name) != html}
    return {name: part for name, part in (("rows", rows), ("regions", regions)) if part}


class Streams:
    """The streams of all pages. They end when the console does, which `ending` says."""

    def __init__(
        self, ending: Callable[[], bool], *, every_s: float = EVERY_S, still_here_s: float = STILL_HERE_S
    ) -> None:
        self.open = 0
        self._ending = ending
        self._every_s = every_s
        self._still_here_s = still_here_s

    async def response(self, request: Request, read: Read) -> Response:
        """A stream, or a single answer for a page that polls."""
        if "text/event-stream" not in request.headers.get("accept", ""):
            return JSONResponse(difference(Live(), await read()))
        session = getattr(request.state, "session", None)
        if self.open >= MOST_STREAMS or self._ending() or (session and session.streams >= MOST_OF_SESSION):
            return PlainTextResponse("too many streams; poll instead\n", 503)
        events = self.events(read) if session is None else self._events_of(session, read)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events_of(self, session: Any, read: Read) -> AsyncIterator[str]:
        session.streams += 1
        try:
            async with aclosing(self.events(read, session.is_over)) as events:
                async for event in events:
                    yield event
        finally:
            session.streams -= 1

    async def events(self, read: Read, is_over: Callable[[], bool] = lambda: False) -> AsyncGenerator[str, None]:
        """Until the console ends, or the session of its reader."""
        loop = asyncio.get_running_loop()
        before, sent_at = Live(), loop.time()
        self.open += 1
        try:
            while not self._ending() and not is_over():
                try:
                    after = await read()
                except (
                    KafkaError,
                    HTTPException,
                ):  # it does not answer, or a story is gone: nothing is known to change
                    after = before
                if changes := difference(before, after):
                    yield f"data: {json.dumps(changes)}\n\n"
                    before, sent_at = after, loop.time()
                elif loop.time() - sent_at >= self._still_here_s:
                    yield ": still here\n\n"
                    sent_at = loop.time()
                await self._pause()
        finally:
            self.open -= 1

    async def _pause(self) -> None:
        """In slices, because the end is a flag that the thread of signals sets."""
        until = asyncio.get_running_loop().time() + self._every_s
        while not self._ending() and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, SLICE_S))
