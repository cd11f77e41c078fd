"""Work sharding for programs with threads: `shards` without asyncio.

    def crawl(shard):
        while not shard.wait_ended(60_000):              # sleeps a minute; True when the item is to be given up
            visit(shard.item, token=shard.token)

    with blocking_shards("localhost:9092", "crawlers", ["a.example", "b.example", "c.example"]) as sharding:
        sharding.run(crawl)                              # a thread for each item of this worker

A `Sharding` lives in a thread of the library's (`client/coordination/blocking_member.py`), so assignment, leases and
tokens are the same. One thing differs: a thread cannot be cancelled. The work learns by `shard.wait_ended` or
`shard.valid` that it must end, and another worker gets the item when the work has returned. A function that lists the
items runs in a thread, too, so it may ask a database. All these threads are daemons.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kohort.client.concurrency.worker_thread import WorkerThread
from kohort.client.coordination.blocking_member import BlockingMember
from kohort.client.coordination.callbacks import SESSION_TIMEOUT_MS, check_settings
from kohort.client.coordination.lease import outlast
from kohort.client.coordination.sharding import Items, Shard, Sharding, Weighed, shards
from kohort.client.errors import Misuse

BlockingItems = Weighed | Callable[[], Weighed]


class BlockingSharding(BlockingMember[Sharding]):
    """One worker; made by `blocking_shards`."""

    def __init__(self, inner: Sharding, lister: WorkerThread) -> None:
        super().__init__(inner)
        self._lister = lister
        self._running: asyncio.Task[None] | None = None
        self._working: set[threading.Thread] = set()
        """The threads that work on items."""

    @property
    def shards(self) -> Mapping[str, Shard]:
        """The shards that this worker owns now, by item."""
        return self._inner.shards

    def run(self, work: Callable[[Shard], Any]) -> None:
        """Take part: `work(shard)` runs in a thread of its own for each item. It must return soon after
        `shard.wait_ended()` has returned or `shard.valid` is false; no other worker gets the item before.

        Lasts until it raises: what `Sharding.run` raises; Closed when another thread closes the sharding. The work on
        all items has ended then, and the worker has left the group. `run` may be called again.
        """

        def call(shard: Shard) -> None:
            thread = threading.current_thread()
            self._working.add(thread)
            try:
                result = work(shard) if shard.valid else None  # lost while the thread started
            finally:
                self._working.discard(thread)
            if inspect.iscoroutine(result):
                result.close()
                raise Misuse("run: the work is a coroutine function: those are for `shards`")

        async def in_thread(shard: Shard) -> None:
            await _in_thread(f"kohort-{self.group_id}-{shard.item}", call, shard)

        async def run() -> None:
            if self._running is not None:
                raise Misuse("run: this worker runs already")
            self._running = asyncio.current_task()
            try:
                await self._inner.run(in_thread)
            finally:
                self._running = None

        self._do("run", run)

    def update(self, items: BlockingItems) -> None:
        """As Sharding.update."""
        listed = _listed(items, self._lister)

        async def update() -> None:
            self._inner.update(listed)

        self._do("update", update)

    def close(self) -> None:
        """End the work on all items, leave the group, end the thread. May be called in any thread but those of the
        work, also twice."""
        if threading.current_thread() in self._working:
            raise Misuse("close was called in the work on an item, for whose end it waits; call it in another thread")
        super().close()

    async def _begin(self) -> None:
        await self._inner.__aenter__()

    async def _leave(self) -> None:
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.wait((running,))
        await self._inner.close()
        self._lister.close()


async def _in_thread(name: str, work: Callable[[Shard], None], shard: Shard) -> None:
    """Run `work(shard)` in a thread. A cancellation takes effect when the work has returned."""
    thread = WorkerThread(name)
    working = asyncio.create_task(thread.run(work, shard))
    try:
        await outlast(working)
    except asyncio.CancelledError:
        if working.cancelled() or working.exception() is None:
            raise
    finally:
        thread.close()
    working.result()


def _listed(items: BlockingItems, lister: WorkerThread) -> Items:
    """Items for `Sharding`; a function that lists them runs in the thread `lister`."""
    if not callable(items):
        return items
    function = items

    def listed() -> Awaitable[Weighed]:
        return lister.run(function)

    return listed


def blocking_shards(
    bootstrap_servers: str | Sequence[str],
    group_id: str,
    items: BlockingItems,
    *,
    capacity: float = 1.0,
    refresh_ms: int = 10_000,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **settings: Any,
) -> BlockingSharding:
    """A worker of a group that divides items among its members, for programs with threads; use it in `with`, or with
    `start` and `close`. Items, settings and errors are those of `shards`; a function that lists the items is a plain
    function."""
    check_settings("blocking_shards", settings, ("capacity", "refresh_ms"))
    lister = WorkerThread(f"kohort-items-{group_id}")
    inner = shards(
        bootstrap_servers,
        group_id,
        _listed(items, lister),
        capacity=capacity,
        refresh_ms=refresh_ms,
        session_timeout_ms=session_timeout_ms,
        **settings,
    )
    return BlockingSharding(inner, lister)
