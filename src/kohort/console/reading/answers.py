"""Answers of the cluster that several pages share, and the clients that ask.

A question is asked once at a time; who asks the same meanwhile gets the same answer. An answer is kept for a second,
and for five times as long as it took: the description of 10,000 members is asked for less often than that of two. An
answer that took long is given again while the next one is awaited, so that pages come quickly.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from kohort.client.cluster import Cluster

CLIENTS = 4
KEPT_S = 1.0
KEPT_TIMES = 5
LONG_S = 0.2
STALE_S = 30.0
"""The oldest answer that is given while the next one is awaited."""
MOST_ANSWERS = 100

T = TypeVar("T")


@dataclass(slots=True)
class _Answer:
    task: asyncio.Task[Any]
    asked_at: float
    done_at: float = 0.0
    stale: _Answer | None = None
    """The answer before, for as long as this one is awaited."""

    @property
    def took_s(self) -> float:
        """0 without an answer."""
        failed = not self.task.done() or self.task.cancelled() or self.task.exception() is not None
        return 0.0 if failed else self.done_at - self.asked_at

    def is_fresh(self, now: float) -> bool:
        return not self.task.done() or now - self.done_at < max(KEPT_S, KEPT_TIMES * (self.done_at - self.asked_at))


class Answers:
    """For the event loop of the pages. `close` closes the clients; one that is in use after its answer."""

    def __init__(self, open_cluster: Callable[[], Cluster], clock: Callable[[], float] = time.monotonic) -> None:
        self.open_cluster = open_cluster
        self._clock = clock
        self._free: queue.LifoQueue[Cluster] = queue.LifoQueue()
        self._closed = False
        self._limit: CapacityLimiter | None = None
        self._known: dict[Hashable, _Answer] = {}

    async def get(self, key: Hashable, ask: Callable[[Cluster], T]) -> T:
        """The answer to a question, which `key` names. Raises what `ask` raises."""
        now = self._clock()
        known = self._known.get(key)
        if known is None or not known.is_fresh(now):
            before, known = known, self._ask(key, ask, now)
            if before is not None and before.took_s > LONG_S and now - before.done_at < STALE_S:
                known.stale = before
        if known.stale is not None and not known.task.done():
            return known.stale.task.result()  # type: ignore[no-any-return]
        return await asyncio.shield(known.task)

    async def do(self, ask: Callable[[Cluster], T], *, changes: bool = False) -> T:
        """What `ask` returns, for nobody else. If it `changes` something, answers may be wrong afterwards: they are
        forgotten. Raises what `ask` raises."""
        try:
            return await self._run(ask)  # type: ignore[no-any-return]
        finally:
            if changes:
                self._known.clear()

    def close(self) -> None:
        self._closed = True
        while not self._free.empty():
            self._free.get().close()

    def _ask(self, key: Hashable, ask: Callable[[Cluster], Any], now: float) -> _Answer:
        answer = _Answer(asyncio.ensure_future(self._run(ask)), now)
        self._known.pop(key, None)
        old = [one for one, known in self._known.items() if known.task.done() and now - known.done_at > STALE_S]
        for one in old:  # a group of 10,000 members is 10 MB
            del self._known[one]
        self._known[key] = answer
        while len(self._known) > MOST_ANSWERS:
            self._known.pop(next(iter(self._known)))

        def done(task: asyncio.Task[Any]) -> None:
            answer.done_at, answer.stale = self._clock(), None
            if not task.cancelled():
                task.exception()  # whoever waits has it; without one asyncio would complain

        answer.task.add_done_callback(done)
        return answer

    async def _run(self, ask: Callable[[Cluster], Any]) -> Any:
        if self._limit is None:
            self._limit = CapacityLimiter(CLIENTS)
        # The end of the console does not wait for a broker: the threads are daemons.
        return await to_thread.run_sync(self._with_client, ask, abandon_on_cancel=True, limiter=self._limit)

    def _with_client(self, ask: Callable[[Cluster], Any]) -> Any:
        try:
            cluster = self._free.get_nowait()
        except queue.Empty:
            cluster = self.open_cluster()
        try:
            return ask(cluster)
        finally:
            self._free.put(cluster)
            if self._closed:
                self.close()
