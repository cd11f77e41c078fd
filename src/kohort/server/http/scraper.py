"""One scrape at a time. Whoever asks while it runs gets the same answer, so many that ask cost one scrape.

A scrape begins no sooner than REST times its predecessor's duration after that has ended, or LONGEST_REST_S if that is
shorter. So a client that asks again and again takes a quarter of the event loop's time; more, if a scrape takes longer
than a third of LONGEST_REST_S.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

from kohort.broker.metrics.samples import Samples
from kohort.broker.metrics.scrape import Metrics
from kohort.server.http.between_turns import BetweenTurns

REST = 3.0
LONGEST_REST_S = 1.0


class Scraper:
    def __init__(self, metrics: Metrics, between: BetweenTurns) -> None:
        self.count = 0
        """Scrapes that are over."""
        self.last_s = 0.0
        """How long the last one took."""
        self._ended = float("-inf")
        self._metrics = metrics
        self._between = between
        self._running: dict[bool, asyncio.Task[tuple[bytes, ...]]] = {}
        """By format: True for OpenMetrics."""

    async def text(self, *, open_metrics: bool) -> tuple[bytes, ...]:
        """The parts of the text."""
        running = self._running.get(open_metrics)
        if running is None:
            running = self._running[open_metrics] = asyncio.ensure_future(self._after_rest(open_metrics))
            running.add_done_callback(lambda task: self._over(open_metrics, task))
        return await asyncio.shield(running)

    def close(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def _after_rest(self, open_metrics: bool) -> tuple[bytes, ...]:
        rest = self._ended + min(REST * self.last_s, LONGEST_REST_S) - time.perf_counter()
        if rest > 0:
            await asyncio.sleep(rest)
        parts: tuple[bytes, ...] = await self._between.start(self._scrape(open_metrics))
        return parts

    def _over(self, open_metrics: bool, task: asyncio.Task[tuple[bytes, ...]]) -> None:
        del self._running[open_metrics]
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more

    def _scrape(self, open_metrics: bool) -> Generator[None, None, tuple[bytes, ...]]:
        began = time.perf_counter()
        samples: Samples = yield from self._metrics.scrape()
        parts = []
        for part in samples.text(open_metrics=open_metrics):
            parts.append(part)
            yield
        self.count += 1
        self._ended = time.perf_counter()
        self.last_s = self._ended - began
        return tuple(parts)
