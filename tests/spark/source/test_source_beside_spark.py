"""The same queries on Spark's own Kafka source and on kohort's, against one server: rows and schema are the same.

A query moves from one to the other by the name of its format, with the options that it has; a checkpoint moves with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matrix_stage import VERSIONS, recorded_server
from pyspark.sql import Row

from kohort.client.cluster import Cluster
from kohort.spark.source.positions import MARK
from kohort.wire.batches import NewRecord, encode_batch

PROGRAM = "Spark's Kafka source"
pytestmark = [
    pytest.mark.java,
    pytest.mark.matrix,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.program(
        PROGRAM,
        "batches and streams; kohort's own source reads the same rows, and takes its checkpoint over",
    ),
]

START_MS = 1_700_000_000_000
SOURCES = ("kafka", "kohort")


def offsets(topics: dict[str, list[int]]) -> str:
    return json.dumps({topic: {str(n): offset for n, offset in enumerate(given)} for topic, given in topics.items()})


BATCHES: dict[str, dict[str, str]] = {
    "all": {"subscribe": "orders, payments"},
    "headers": {"subscribe": "orders", "includeHeaders": "true"},
    "pattern": {"subscribePattern": "ord"},
    "assign": {"assign": '{"orders":[2,0]}'},
    "offsets": {
        "subscribe": "orders",
        "startingOffsets": offsets({"orders": [3, -2, 7]}),
        "endingOffsets": offsets({"orders": [9, 11, -1]}),
    },
    "offsets from a checkpoint": {
        "subscribe": "orders",
        "startingOffsets": '{"orders":{"0":3,"1":4,"2":5},"orders@AAAAAAAAAAAAAAAAAAAAAA":{}}',
    },
    "timestamp": {"subscribe": "orders", "startingTimestamp": str(START_MS + 5), "endingTimestamp": str(START_MS + 12)},
    "timestamp of each": {
        "subscribe": "orders",
        "startingOffsetsByTimestamp": offsets({"orders": [START_MS, START_MS + 3, START_MS + 19]}),
        "endingOffsetsByTimestamp": offsets({"orders": [START_MS + 4, START_MS + 30, START_MS + 90]}),
    },
    "no match, latest": {
        "subscribe": "orders",
        "startingTimestamp": str(START_MS + 10_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "tasks": {"subscribe": "orders", "minPartitions": "7", "maxRecordsPerPartition": "6"},
    "appended times": {"subscribe": "clock"},
    "java settings": {
        "subscribe": "orders",
        "kafka.max.poll.records": "7",
        "kafka.fetch.min.bytes": "1",
        "kafka.session.timeout.ms": "10000",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "2",
        "groupIdPrefix": "mine",
        "FAILONDATALOSS": "TRUE",
    },
}
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no match": (
        {"subscribe": "orders", "startingTimestamp": str(START_MS + 10_000)},
        "(?i)no (offset matched|record)",
    ),
    "partition left out": (
        {"subscribe": "orders", "startingOffsets": offsets({"orders": [0]})},
        "(?s)orders-0.*orders-1|differ in orders-1",
    ),
    "latest": ({"subscribe": "orders", "startingOffsets": "latest"}, "latest"),
    "position reset": ({"subscribe": "orders", "kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
    "deserializer": ({"subscribe": "orders", "kafka.key.deserializer": "x"}, "key.deserializer"),
    "nothing chosen": ({}, "subscribe"),
}
STREAMS: dict[str, dict[str, str]] = {
    "all": {"subscribe": "orders,payments", "startingOffsets": "earliest", "includeHeaders": "true"},
    "offsets": {"subscribe": "orders", "startingOffsets": offsets({"orders": [3, -2, -1]})},
    "timestamp": {"subscribePattern": "^orders$", "startingTimestamp": str(START_MS + 5)},
    "limited": {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "17"},
}


def fill(cluster: Cluster) -> None:
    """Every compression, keys and values that are missing or empty, headers with and without values."""
    kept = {"retention.ms": "-1"}
    cluster.create_topic("orders", 3, configs=kept)
    cluster.create_topic("payments", 1, configs=kept)
    cluster.create_topic("clock", 1, configs={"message.timestamp.type": "LogAppendTime"})
    for partition in range(3):
        for codec in range(5):
            records = [
                NewRecord(
                    None if n == 0 else b"k%d" % n,
                    None if n == 1 else b"v%d" % n * n,
                    START_MS + codec * 4 + n,
                    (("a", b"\x00\xff"), ("b", None), ("a", b"")) if n == 2 else (),
                )
                for n in range(4)
            ]
            cluster.produce("orders", partition, encode_batch(records, compression=codec))
    cluster.produce("payments", 0, [NewRecord(b"", b"", 0), NewRecord(b"k", "é".encode(), 1)])
    cluster.produce("clock", 0, [NewRecord(b"k", b"v", 5)] * 3)


def rows(frame: Any) -> list[Row]:
    """Whole rows, times in microseconds, in the order of topic, partition and offset."""
    columns = ["key", "value", "topic", "partition", "offset", "unix_micros(timestamp)", "timestampType"]
    if "headers" in frame.columns:
        columns.append("headers")
    return frame.orderBy("topic", "partition", "offset").selectExpr(*columns).collect()


def run(spark: Any, source: str, options: dict[str, str], folder: Path) -> tuple[Any, Any]:
    """An availableNow run that appends to the rows in a folder. Returns the schema, and where the run ended."""
    frame = spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    end = json.loads(query.recentProgress[-1].sources[0].endOffset)
    end = {name: offsets for name, offsets in end.items() if MARK not in name}
    return frame.schema, end


def streamed(spark: Any, source: str, options: dict[str, str], folder: Path) -> tuple[Any, Any, list[Row]]:
    schema, end = run(spark, source, options, folder)
    return schema, end, rows(spark.read.schema(schema).parquet(str(folder / "rows")))


def version_of(spark: Any) -> str:
    jars = spark.conf.get("spark.jars")
    [connector] = re.findall(r"spark-sql-kafka-[^/,]*-([0-9.]+)\.jar", jars)
    [clients] = re.findall(r"kafka-clients-([0-9.]+)\.jar", jars)
    return f"Spark {spark.version}, connector {connector}, kafka-clients {clients}"


@pytest.fixture(scope="module")
def base(spark: Any) -> Iterator[dict[str, str]]:
    """A server with records, as options."""
    VERSIONS[PROGRAM] = version_of(spark)
    with (
        recorded_server(PROGRAM, of=lambda client: client.startswith("consumer-spark-kafka")) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        fill(cluster)
        yield {"kafka.bootstrap.servers": server.bootstrap_servers}


@pytest.mark.parametrize("name", BATCHES)
def test_batch_reads(spark: Any, base: dict[str, str], name: str) -> None:
    sparks, kohorts = (spark.read.format(source).options(**base, **BATCHES[name]).load() for source in SOURCES)
    assert kohorts.schema == sparks.schema
    found = rows(sparks)
    assert bool(found) == (name != "no match, latest")
    assert rows(kohorts) == found
    if name == "appended times":
        assert {row.timestampType for row in found} == {1}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_of_both_sources(spark: Any, base: dict[str, str], name: str) -> None:
    for source in SOURCES:
        with pytest.raises(Exception, match=REFUSED[name][1]):
            spark.read.format(source).options(**base, **REFUSED[name][0]).load().count()


@pytest.mark.parametrize("name", STREAMS)
def test_streams(spark: Any, base: dict[str, str], tmp_path: Path, name: str) -> None:
    sparks, kohorts = (streamed(spark, source, base | STREAMS[name], tmp_path / source) for source in SOURCES)
    assert sparks[2]
    assert kohorts == sparks


@pytest.mark.parametrize("first", SOURCES)
def test_a_checkpoint_goes_from_one_to_the_other_and_back(
    spark: Any, base: dict[str, str], tmp_path: Path, first: str
) -> None:
    """Three runs on one checkpoint, with new records between the runs: no record is read twice or left out.

    kohort's source writes the topic's id into it, which Spark's does not see.
    """
    topic = f"moving-{first}"
    options = base | {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    second = next(source for source in SOURCES if source != first)
    with Cluster(base["kafka.bootstrap.servers"]) as cluster:
        cluster.create_topic(topic, 2, configs={"retention.ms": "-1"})
        for source in (first, second, first):
            for partition in range(2):
                cluster.produce(topic, partition, [NewRecord(b"k", b"v", 0)] * 5)
            schema, _ = run(spark, source, options, tmp_path)
            ends = (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")
            last = max(ends, key=lambda path: int(path.name))
            assert (f"{topic}{MARK}" in last.read_text()) == (source == "kohort")
    found = rows(spark.read.schema(schema).parquet(str(tmp_path / "rows")))
    assert [(row.partition, row.offset) for row in found] == [(p, n) for p in range(2) for n in range(15)]
