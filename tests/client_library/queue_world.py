"""A server with share groups, and what tests of queues look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from running_tasks import until

from kohort.client import Job, WorkQueue
from kohort.client.cluster import Cluster
from kohort.client.queue.remaining import unfinished
from kohort.client.records import FetchedRecord, records
from kohort.testing import KohortServer

SHARES: dict[str, Any] = {
    "group_share_enable": True,
    "group_share_min_record_lock_duration_ms": 1_000,
    "group_share_assignment_interval_ms": 0,
    "group_share_heartbeat_interval_ms": 100,
    "group_share_min_heartbeat_interval_ms": 100,
    "group_min_session_timeout_ms": 100,
}


def queue_of(server: KohortServer, topics: Any = "jobs", group: str | None = "g", **options: Any) -> WorkQueue:
    settings: dict[str, Any] = {"retry_backoff": 0.01, "close_timeout": 5.0, **options}
    return WorkQueue(server.bootstrap_servers, topics, group=group, **settings)


def read_all(server: KohortServer, topic: str) -> list[FetchedRecord]:
    """The committed records of a topic."""
    with Cluster(server.bootstrap_servers) as cluster:
        places = [(topic, partition.index) for partition in cluster.topics([topic])[topic].partitions]
        ends = cluster.offsets(places)
        found: list[FetchedRecord] = []
        for place in places:
            position = 0
            while position < ends[place]:
                for part in cluster.fetch({place: position}, max_wait_ms=100, isolation="read_committed"):
                    some = list(records(part, position))
                    found += some
                    position = max([position, *(record.offset + 1 for record in some)])
                    if not some:
                        position = ends[place]
        return found


class Work:
    """What a handler has seen, and what it is to do with a job."""

    def __init__(self, act: Callable[[Job], Any] | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        """Values, with the count of deliveries."""
        self.done: list[str] = []
        self._act = act

    async def __call__(self, job: Job) -> None:
        value = (job.value or b"").decode()
        self.seen.append((value, job.deliveries))
        if self._act is not None:
            result = self._act(job)
            if asyncio.iscoroutine(result):
                await result
        self.done.append(value)

    async def count(self, number: int) -> None:
        await until(lambda: len(self.done) >= number, f"{number} jobs are done")


async def put_all(queue: WorkQueue, *values: str, **options: Any) -> None:
    await asyncio.gather(*(queue.put(value, **options) for value in values))


def left(server: KohortServer, group: str, topic: str = "jobs") -> int:
    """How many records of a topic the group has not finished."""
    with Cluster(server.bootstrap_servers) as cluster:
        return unfinished(cluster, group, topic)
