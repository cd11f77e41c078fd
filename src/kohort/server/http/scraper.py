"""One scrape at a time. Whoever asks while it runs gets the same answer, so many that ask cost one scrape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

from kohort.broker.metrics.samples import Samples
from kohort.broker.metrics.scrape import Metrics
from kohort.server.http.between_turns import BetweenTurns


class Scraper:
    def __init__(self, metrics: Metrics, between: BetweenTurns) -> None:
        self.count = 0
        """Scrapes that are over."""
        self.last_s = 0.0
        """How long the last one took."""
        self._metrics = metrics
        self._between = between
        self._running: dict[bool, asyncio.Future[tuple[bytes, ...]]] = {}
        """By format: True for OpenMetrics."""

    async def text(self, *, open_metrics: bool) -> tuple[bytes, ...]:
        """The parts of the text."""
        running = self._running.get(open_metrics)
        if running is None or running.done():
            running = self._running[open_metrics] = self._between.start(self._scrape(open_metrics))
        return await asyncio.shield(running)

    def _scrape(self, open_metrics: bool) -> Generator[None, None, tuple[bytes, ...]]:
        began = time.perf_counter()
        samples: Samples = yield from self._metrics.scrape()
        parts = []
        for part in samples.text(open_metrics=open_metrics):
            parts.append(part)
            yield
        self.count += 1
        self.last_s = time.perf_counter() - began
        self._running.pop(open_metrics, None)
        return tuple(parts)
