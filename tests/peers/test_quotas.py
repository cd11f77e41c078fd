"""A quota of Apache Kafka slows the client and a task of the Spark source: both wait, and no record is lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from bench import _kafka

from kohort.client.cluster import Cluster
from kohort.client.records import next_position, partition_leaders
from kohort.spark.options.source import parse
from kohort.spark.source.read import Range, read_range
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

BYTES_A_SECOND = 40_000
BATCHES = 12


@pytest.fixture(scope="module")
def address(class_path: str) -> Iterator[str]:
    with _kafka.kafka(class_path, {"quota.window.num": "3"}, java_options=_kafka.BRIEF) as (_, (host, port)):
        quota = ["--alter", "--add-config", f"consumer_byte_rate={BYTES_A_SECOND}"]
        command = ["java", "-cp", class_path, "kafka.admin.ConfigCommand", "--bootstrap-server", f"{host}:{port}"]
        subprocess.run([*command, *quota, "--entity-type", "clients", "--entity-default"], check=True, timeout=120)
        with Cluster(f"{host}:{port}") as cluster:
            cluster.create_topic("t", 1)
            for _ in range(BATCHES):
                cluster.produce("t", 0, [NewRecord(None, b"v" * 1_000, int(time.time() * 1000))] * 40)
        yield f"{host}:{port}"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited for quotas."""
    made: list[float] = []
    wait = partition_leaders.Fetching._wait

    def noted(self: partition_leaders.Fetching, throttled: partition_leaders._Throttled, deadline: float) -> bool:
        made.append(throttled.wait_s)
        return wait(self, throttled, deadline)

    monkeypatch.setattr(partition_leaders.Fetching, "_wait", noted)
    return made


def test_a_task_waits_for_a_quota(address: str, waits: list[float]) -> None:
    options = parse({"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.max.partition.fetch.bytes": "100000"})
    rows = sum(one.num_rows for one in read_range(options, Range("t", 0, 0, 40 * BATCHES)))
    assert rows == 40 * BATCHES
    assert waits


def test_a_client_waits_for_a_quota(address: str, waits: list[float]) -> None:
    began, position = time.monotonic(), 0
    with Cluster(address) as cluster:
        while position < 40 * BATCHES:
            for fetched in cluster.fetch({("t", 0): position}, partition_max_bytes=100_000):
                position = next_position(fetched, position)
    assert waits
    assert time.monotonic() - began >= sum(waits)
