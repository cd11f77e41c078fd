"""Spark pipelines on a standalone cluster whose processes are killed, with kohort brought along by `--py-files`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from crash_server import CrashServer
from micro_batches import until
from standalone_cluster import StandaloneCluster, kill
from topic_content import consumed

from kohort.cli.jobs import pipeline
from kohort.client.cluster import Cluster
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.source.checkpoint import finished
from kohort.testing import KohortServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

PATIENCE_S = 180.0
INGEST = Path(pipeline.__file__)

OWN_QUERY = """
import json, sys
import kohort
import pyspark_kohort
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
pyspark_kohort.register(spark)
servers = sys.argv[1]

def where(batches):
    import kohort, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": [kohort.__file__]})

rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "'v' AS value")
rows.write.format("kohort").option("kafka.bootstrap.servers", servers).option("topic", "own").mode("append").save()
stream = spark.readStream.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", "own")
copy = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("kohort")
copy = copy.option("kafka.bootstrap.servers", servers).option("topic", "copy").trigger(availableNow=True)
copy.option("checkpointLocation", sys.argv[2]).start().awaitTermination()
read = spark.read.format("kohort").option("kafka.bootstrap.servers", servers).option("subscribe", "copy").load()
print(json.dumps({
    "driver": kohort.__file__,
    "workers": sorted({row.path for row in spark.range(4).mapInArrow(where, "path string").collect()}),
    "rows": read.count(),
    "keys": read.select("key").distinct().count(),
}))
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.mark.long
def test_a_users_query_reads_and_writes_with_kohort_from_the_zip(
    spark_cluster: StandaloneCluster, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("own", 2)
    cluster.create_topic("copy", 2)
    job = tmp_path / "job.py"
    job.write_text(OWN_QUERY)
    driver = spark_cluster.submit(job, server.bootstrap_servers, str(tmp_path / "checkpoint"))
    out, _ = driver.communicate()
    assert driver.returncode == 0, spark_cluster.errors_of(driver)
    told = json.loads(out.splitlines()[-1])
    assert all("kohort.zip" in path for path in (told["driver"], *told["workers"])), told
    assert (told["rows"], told["keys"]) == (1000, 1000)


class Feed:
    """Produces numbered records without end, each stored once."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20}
        # By default it looks for new partitions every five minutes.
        self._producer = Producer(settings | {"topic.metadata.refresh.interval.ms": 1000})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.produced = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            for _ in range(20):
                self._producer.produce("t", b"%d" % self.produced, b"key-%d" % self.produced)
                self.produced += 1
            self._producer.poll(0)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


@pytest.fixture
def crash_server(tmp_path: Path) -> Iterator[CrashServer]:
    server = CrashServer(tmp_path / "data", tmp_path / "server.log", {"group.initial.rebalance.delay.ms": "0"})
    server.spawn()
    server.wait_ready()
    yield server
    if server.is_running():
        server.kill()


class Ingest:
    """A test's view of a running ingest: the group and the checkpoint, which are never ahead of each other."""

    def __init__(self, address: str, lake: Path) -> None:
        self._cluster = Cluster(address, api_timeout_ms=60_000)
        self._lake = lake

    def committed(self) -> dict[tuple[str, int], int]:
        committed = {place: entry.offset for place, entry in self._cluster.committed("lake").items()}
        reached = finished(ArrowDirectory(self._lake / "_checkpoint")) or {}
        ahead = {place: offset for place, offset in committed.items() if offset > reached.get(place, 0)}
        assert not ahead, f"the group is ahead of the checkpoint {reached}: {ahead}"
        return committed

    def ends(self) -> dict[tuple[str, int], int]:
        partitions = len(self._cluster.topics(["t"])["t"].partitions)
        return self._cluster.offsets([("t", index) for index in range(partitions)], "latest")

    def goes_on(self, after: str) -> None:
        """Wait until all that is there by now is finished and committed."""
        ends = self.ends()
        until(
            lambda: all(self.committed().get(place, 0) >= offset for place, offset in ends.items()),
            f"a commit of {ends} after {after}",
            PATIENCE_S,
        )

    def close(self) -> None:
        self._cluster.close()


@pytest.mark.long
def test_nothing_is_lost_or_doubled_when_executors_server_and_driver_are_killed(
    spark: Any, spark_cluster: StandaloneCluster, crash_server: CrashServer, tmp_path: Path
) -> None:
    lake, address = tmp_path / "lake", crash_server.address
    ingest = Ingest(address, lake)
    feed = None
    arguments = ["ingest", "-b", address, "--topics", "t", "--to", str(lake), "--group", "lake"]
    try:
        with Cluster(address) as cluster:
            cluster.create_topic("t", 2)
        feed = Feed(address)
        driver = spark_cluster.submit(INGEST, *arguments, "--continuous", "0.5")
        ingest.goes_on("the start")
        kill(until(spark_cluster.executors, "an executor", PATIENCE_S)[0])
        ingest.goes_on("an executor's end")
        for pid in until(spark_cluster.python_workers, "a Python worker", PATIENCE_S):
            kill(pid)
        ingest.goes_on("the Python workers' end")
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_partitions([NewPartitions("t", 4)])["t"].result(30)
        until(lambda: ingest.ends()["t", 3] > 0, "records in a new partition", PATIENCE_S)
        ingest.goes_on("the topic's growth")
        crash_server.kill()
        crash_server.spawn()
        crash_server.wait_ready()
        ingest.goes_on("the server's end")
        assert driver.poll() is None, spark_cluster.errors_of(driver)
        spark_cluster.kill_driver(driver)
        ingest.committed()
        feed.end()
        again = spark_cluster.submit(INGEST, *arguments, "-o", "json")
        out, _ = again.communicate()
        assert again.returncode == 0, spark_cluster.errors_of(again)
        assert json.loads(out)["rows"] > 0
        ends = ingest.ends()
        assert ingest.committed() == ends
        assert sum(ends.values()) == feed.produced
    finally:
        if feed is not None:
            feed.end()
        ingest.close()
    rows = [(row.partition, row.offset, bytes(row.value)) for row in spark.read.parquet(str(lake)).collect()]
    with Cluster(address) as cluster:
        log = [(message.partition(), message.offset(), message.value()) for message in consumed(cluster, "t")]
    assert sorted(rows) == log
