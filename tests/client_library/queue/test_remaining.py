"""What is left of a queue."""

from __future__ import annotations

import pytest
from queue_world import SHARES, Work, put_all, queue_of
from running_tasks import running, until

from kohort.client.cluster import Cluster
from kohort.client.queue import remaining
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord


async def test_a_queue_is_empty_when_all_is_done() -> None:
    with KohortServer(**SHARES) as server, Cluster(server.bootstrap_servers) as cluster:

        def empty() -> bool:
            return remaining.is_empty(cluster, "g", "jobs", "later")

        assert empty(), "there is no topic yet"
        work = Work()
        async with queue_of(server, delay_topic="later") as queue:
            await put_all(queue, "a", "b")
            await queue.put("c", delay=0.1)
            assert not empty()
            async with running(queue.run(work)):
                await work.count(3)
                await until(empty, "all is done")


async def test_a_job_that_moves_while_the_queue_is_looked_at_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with KohortServer(**SHARES) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("jobs", 1)
        cluster.create_topic("later", 1)
        assert remaining.is_empty(cluster, "g", "jobs", "later")
        look = remaining.unfinished

        def moves_then(*arguments: object) -> int:
            found = look(*arguments)  # type: ignore[arg-type]
            cluster.produce("jobs", 0, [NewRecord(None, b"job", 0)])
            return found

        monkeypatch.setattr(remaining, "unfinished", moves_then)
        assert not remaining.is_empty(cluster, "g", "jobs", "later")
