"""Calls of `Cluster`, which blocks, for an event loop: one after the other, in a thread of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kohort.client.cluster import Cluster
from kohort.client.concurrency.worker_thread import WorkerThread

T = TypeVar("T")


class Lookups:
    """`close` ends the thread, and the cluster's connections with it."""

    def __init__(self, thread_name: str, cluster: Cluster) -> None:
        self._cluster = cluster
        self._thread = WorkerThread(thread_name, cluster.close)

    async def run(self, call: Callable[[Cluster], T]) -> T:
        """The result or exception of `call(cluster)`. Raises Closed."""
        return await self._thread.run(call, self._cluster)

    async def names(self, topics: tuple[str, ...] | None) -> dict[bytes, str]:
        """Topic names by id; of all topics where `topics` is None."""
        found = await self.run(lambda cluster: cluster.topics(topics, internal=True))
        return {topic.topic_id: name for name, topic in found.items() if topic.topic_id is not None and not topic.error}

    async def partition_counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        """The number of partitions of each of these topics that exists."""
        found = await self.run(lambda cluster: cluster.topics(topics))
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.error}

    async def all_topics(self) -> list[str]:
        found = await self.run(lambda cluster: cluster.topics())
        return [name for name, topic in found.items() if not topic.error]

    def close(self) -> None:
        self._thread.close()
