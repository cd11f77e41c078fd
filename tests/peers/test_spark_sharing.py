"""Queries that share a group of Apache Kafka, in both protocols: clean hand-overs, and a driver that falls silent."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from micro_batches import Query, Running, rows, until

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

PARTITIONS = 8


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_queries_share_a_group_of_kafka(servers_of_kafka: str, tmp_path: Path, protocol: str) -> None:
    topic = f"shared-{protocol}-{time.time_ns()}"
    options = {
        "kafka.bootstrap.servers": servers_of_kafka,
        "subscribe": topic,
        "group.id": topic,
        "groupMode": "member",
    }
    options |= {"kafka.group.protocol": protocol, "maxOffsetsPerTrigger": "500", "kafka.session.timeout.ms": "5000"}
    settings = {"consumer.session.timeout.ms": "5000", "consumer.heartbeat.interval.ms": "200"}
    total = 0
    a, b = tmp_path / "a", tmp_path / "b"
    with Cluster(servers_of_kafka) as cluster:

        def fill(count: int) -> None:
            nonlocal total
            now = int(time.time() * 1000)  # Kafka deletes what is old
            for partition in range(PARTITIONS):
                cluster.produce(topic, partition, [NewRecord(None, b"v", now)] * (count // PARTITIONS))
            total += count

        def committed() -> int:
            return sum(entry.offset for entry in cluster.committed(topic).values())

        cluster.alter_group_configs(topic, settings)  # of the consumer protocol
        cluster.create_topic(topic, PARTITIONS)
        fill(8_000)
        first = Running(Query(a, options))
        until(lambda: committed() > 1_000, "the first one reads")
        second = Running(Query(b, options))
        until(lambda: len(first.mine) == len(second.mine) == 4, "four each")
        fill(800)
        first.stop()
        until(lambda: len(second.mine) == 8, "the second one has all")
        fill(800)
        until(lambda: committed() == total, "all is read")
        found = Counter(rows(a) + rows(b))
        assert (len(found), sum(found.values())) == (total, total)

        # The second one falls silent in a batch; it comes back to its checkpoint, within its session.
        second.done.set()
        second.join()
        fill(80)
        silent = second.query
        silent.pause = silent.fall_silent
        until(silent.step, "a batch whose member is dead")
        (b / "commits" / str(silent.batch)).unlink()
        back = Query(b, options)
        until(lambda: not back.step() and committed() == total, "the batch is repeated and committed")
        back.reader.stop()
        found = Counter(rows(a) + rows(b))
        assert (len(found), sum(found.values())) == (total, total)
