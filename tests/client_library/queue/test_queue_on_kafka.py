"""A work queue on Apache Kafka: outcomes, extension, delays, permits, and kill -9 of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from bench import _kafka
from kafka_peer import LIKE_KOHORT
from queue_world import Work, left, put_all, queue_of, read_all
from running_tasks import running, until

from kohort.client import Job, Reject

LOCK_S = 4.0

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


@pytest.fixture
def node(class_path: str) -> Iterator[Any]:
    shares = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
        "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "500",
    }
    found = _kafka.Node(class_path, LIKE_KOHORT | shares, java_options=_kafka.BRIEF)
    found.start()
    yield found
    found.remove()


async def test_outcomes(node: Any) -> None:
    async def act(job: Job) -> None:
        if job.value == b"bad":
            raise ValueError("no")
        if job.value == b"refused":
            raise Reject("not wanted")
        if job.value == b"slow":
            await asyncio.sleep(2 * LOCK_S)
            assert job.valid

    work = Work(act)
    options: dict[str, Any] = {"dead_letter": "dlq.jobs", "delay_topic": "delays", "group_concurrency": 4}
    async with queue_of(node, max_deliveries=3, **options) as queue, running(queue.run(work, concurrency=8)):
        await put_all(queue, "a", "bad", "refused", "slow")
        await queue.put("later", delay=1)
        await until(lambda: len(work.seen) == 7 and not queue.open_jobs, "all have outcomes", 120)
    assert len(read_all(node, "dlq.jobs")) == 2
    assert sorted(work.done) == ["a", "later", "slow"]
    assert [count for value, count in work.seen if value == "bad"] == [1, 2, 3]
    assert left(node, "g") == 0


async def test_work_goes_on_over_a_kill(node: Any) -> None:
    release = asyncio.Event()
    work = Work(lambda job: release.wait() if job.value == b"slow" else None)
    async with queue_of(node) as queue, running(queue.run(work, concurrency=2)):
        await put_all(queue, "slow", "a")
        await work.count(1)
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        await put_all(queue, "b")
        await work.count(2)
        release.set()
        await work.count(3)
        await until(lambda: not queue.open_jobs, "all are finished")
    assert left(node, "g") == 0
    assert sorted(work.done) == ["a", "b", "slow"]
