"""Two Spark applications and a plain consumer share a group, and one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import sharing_application

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

PARTITIONS = 6

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


class Plain(threading.Thread):
    """A consumer of librdkafka that commits what it has read before it reads on."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[tuple[int, int]] = []
        self.held = 0
        self.stop = threading.Event()
        self.failed: BaseException | None = None
        settings = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": "consumer"}
        settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        self._consumer = confluent_kafka.Consumer(settings)

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failed = error

    def _work(self) -> None:
        self._consumer.subscribe(["t"])
        while not self.stop.is_set():
            message = self._consumer.poll(0.05)
            self.held = len(self._consumer.assignment())
            if message is not None and not message.error():
                self.rows.append((message.partition(), message.offset()))
                self._consumer.commit(message, asynchronous=False)
        self._consumer.close()


def until(condition: Callable[[], Any], what: str, *watched: Plain) -> None:
    """An exception of one of `watched` is raised here."""
    deadline = time.monotonic() + 180
    while not condition():
        for consumer in watched:
            if consumer.failed is not None:
                raise consumer.failed
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


@pytest.mark.long
def test_two_applications_and_a_plain_consumer(spark: Any, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    total = 0

    def fill(each: int) -> None:
        nonlocal total
        for partition in range(PARTITIONS):
            cluster.produce("t", partition, [NewRecord(None, b"v", 0)] * each)
        total += each * PARTITIONS

    def committed() -> int:
        return sum(entry.offset for entry in cluster.committed("g").values())

    def members() -> list[int]:
        group = cluster.describe_groups(["g"])["g"]
        return sorted(sum(map(len, member.assigned.values())) for member in group.members)

    def has_left() -> bool:
        """True if the member has left, and was not removed when its session ended."""
        return not members() and cluster.explain_group("g", last=1).stories[-1]["cause"]["what"] == "member left"

    limits = {"group_consumer_min_session_timeout_ms": 100, "group_consumer_min_heartbeat_interval_ms": 100}
    with KohortServer(**limits) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.alter_group_configs(
            "g", {"consumer.session.timeout.ms": "10000", "consumer.heartbeat.interval.ms": "500"}
        )
        cluster.create_topic("t", PARTITIONS)
        fill(100)
        servers, own = server.bootstrap_servers, "kafka.session.timeout.ms=10000"
        script = sharing_application.__file__
        command = [sys.executable, script, servers, str(b), own]
        with subprocess.Popen(command, start_new_session=True) as other:
            query, plain = sharing_application.start(spark, servers, a, own), Plain(servers)
            plain.start()
            try:
                until(lambda: members() == [2, 2, 2] and plain.held == 2, "two partitions each", plain)
                fill(100)
                until(lambda: committed() == total, "all is read, by the three of them", plain)
                assert plain.rows
                before = rows(spark, a) + rows(spark, b) + plain.rows
                assert (len(set(before)), len(before)) == (total, total)  # a clean hand-over, twice: each row once
                fill(100)
                os.killpg(other.pid, signal.SIGKILL)
                until(lambda: committed() == total, "the others go on where it was", plain)
                until(lambda: members() == [3, 3], "they share what it had", plain)
                plain.stop.set()
                plain.join()
                assert plain.failed is None, plain.failed
                until(lambda: members() == [6], "the query has all")
                query.stop()
                until(has_left, "it has left")
            finally:
                query.stop()
                plain.stop.set()
                if other.poll() is None:
                    os.killpg(other.pid, signal.SIGKILL)
        # The query continues at its checkpoint and repeats the unfinished batch.
        sharing_application.start(spark, servers, b, own, trigger={"availableNow": True}).awaitTermination()
        until(has_left, "it has left")
        found = Counter(rows(spark, a) + rows(spark, b) + plain.rows)
        assert len(found) == total
        assert max(found.values()) <= 2
        assert sum(found.values()) - total <= 400  # one batch at most, after the dirty end


def rows(spark: Any, directory: Path) -> list[tuple[int, int]]:
    """The files that the sink's log names."""
    table = spark.read.parquet(str(directory / "rows")).toPandas()
    return list(zip(table["partition"].tolist(), table["offset"].tolist(), strict=True))
