"""`delivery=exactly-once` in a real session: batches that come again, tasks that fail, a driver that is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import exactly_once_application
import pytest
from micro_batches import until

from kohort.client.cluster import Cluster
from kohort.client.records import next_position, records
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PATIENCE_S = 400.0
PARTITIONS = [("u", 0), ("u", 1)]


def committed(cluster: Cluster) -> list[int]:
    """The keys in u that a reader with read_committed gets, each as often as it is there."""
    ends = cluster.offsets(PARTITIONS, "latest", isolation="read_committed")
    positions, found = dict.fromkeys(PARTITIONS, 0), []
    while left := {place: at for place, at in positions.items() if at < ends[place]}:
        for fetched in cluster.fetch(left, isolation="read_committed"):
            place = fetched.topic, fetched.partition
            found += [int(record.key or b"") for record in records(fetched, positions[place])]
            positions[place] = next_position(fetched, positions[place])
    return sorted(found)


def is_settled(cluster: Cluster) -> bool:
    return cluster.offsets(PARTITIONS, "latest", isolation="read_committed") == cluster.offsets(PARTITIONS, "latest")


@pytest.fixture
def fill(cluster: Cluster) -> Callable[[int, int], None]:
    """Topics t and u, and a function that puts numbered records into t."""
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 2)

    def numbers(first: int, end: int) -> None:
        for partition in (0, 1):
            own = range(first + partition, end, 2)
            now = time.time_ns() // 1_000_000
            cluster.produce("t", partition, [NewRecord(b"%d" % number, b"v" * 50, now) for number in own])

    return numbers


def copy(spark: Any, server: KohortServer, checkpoint: Path, *, failing: Path | None = None) -> None:
    """A query from t to u, until it has read what there is. It fails while the file `failing` is there."""
    servers = server.bootstrap_servers
    source = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", "t")
    frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "60").load()
    frame = frame.select("key", "value").repartition(3)
    flag = str(failing or "")

    def check(batches: Any) -> Any:
        from pathlib import Path

        from pyspark import TaskContext

        yield from batches
        if flag and Path(flag).exists() and TaskContext.get().partitionId() == 2:
            raise OSError("this task fails")

    sink = {"kafka.bootstrap.servers": servers, "topic": "u", "delivery": "exactly-once", "kafka.batch.size": "100"}
    writer = frame.mapInArrow(check, "key binary, value binary").writeStream.format("kohort").options(**sink)
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    assert query.awaitTermination(120)


def test_a_batch_that_comes_again_is_written_once(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, fill: Any
) -> None:
    fill(0, 100)
    checkpoint = tmp_path / "checkpoint"
    copy(spark, server, checkpoint)
    assert committed(cluster) == list(range(100))
    server.restart()
    # As if the query had been killed before its last batch was in the commit log.
    for done in ("1", ".1.crc"):
        (checkpoint / "commits" / done).unlink()
    fill(100, 110)
    copy(spark, server, checkpoint)
    assert committed(cluster) == list(range(110))
    assert is_settled(cluster)


def test_a_batch_that_fails_shows_nothing_and_comes_again(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, fill: Any
) -> None:
    fill(0, 60)
    failing = tmp_path / "failing"
    failing.touch()
    with pytest.raises(Exception, match="this task fails"):
        copy(spark, server, tmp_path / "checkpoint", failing=failing)
    assert sum(cluster.offsets(PARTITIONS, "latest").values()) > 0  # the other tasks have sent their rows
    assert committed(cluster) == []
    failing.unlink()
    copy(spark, server, tmp_path / "checkpoint", failing=failing)
    assert committed(cluster) == list(range(60))
    assert is_settled(cluster)


def test_a_write_with_a_number_is_done_once(spark: Any, server: KohortServer, cluster: Cluster, fill: Any) -> None:
    """As `foreachBatch` repeats it."""

    def save(number: int, first: int, end: int, tasks: int) -> None:
        frame = spark.range(first, end, 1, tasks).selectExpr("CAST(id AS STRING) AS key", "'v' AS value")
        given = {"topic": "u", "delivery": "exactly-once", "txnAppId": "job", "txnVersion": str(number)}
        writer = frame.write.format("kohort").option("kafka.bootstrap.servers", server.bootstrap_servers)
        writer.options(**given).mode("append").save()

    save(1, 0, 20, 2)
    save(1, 0, 20, 3)
    save(2, 20, 30, 2)
    assert committed(cluster) == list(range(30))
    with pytest.raises(Exception, match="job, batch 1 comes after batch 2"):
        save(1, 0, 20, 2)
    assert committed(cluster) == list(range(30))
    assert is_settled(cluster)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_row_is_there_once_although_drivers_are_killed_and_tasks_fail(
    server: KohortServer, cluster: Cluster, tmp_path: Path, fill: Any
) -> None:
    total = 0
    chance = random.Random(17)
    command = [
        sys.executable,
        exactly_once_application.__file__,
        server.bootstrap_servers,
        str(tmp_path / "checkpoint"),
    ]

    def open_rows() -> bool:
        return not is_settled(cluster)

    def some_more() -> bool:
        return len(committed(cluster)) > before

    def has_come(moment: Callable[[], bool], driver: subprocess.Popen[bytes]) -> bool:
        assert driver.poll() is None
        return moment()

    for moment in (open_rows, some_more, open_rows, None):
        fill(total, total + 900)
        total += 900
        before = len(committed(cluster))
        with subprocess.Popen([*command, *([] if moment else ["once"])], start_new_session=True) as driver:
            try:
                if moment is None:
                    assert driver.wait(PATIENCE_S) == 0
                else:
                    until(partial(has_come, moment, driver), moment.__name__, PATIENCE_S)
                    until(lambda: chance.random() < 0.02, "a moment later")
                    assert driver.poll() is None
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
        found = committed(cluster)
        assert len(found) == len(set(found))
    assert committed(cluster) == list(range(total))
    assert is_settled(cluster)
