"""Topics with transactions, read by kohort's source and by Spark's own: both see the same.

The log has committed and aborted transactions, plain records between them, markers at its end, and a transaction that
is still open. Its producers are librdkafka's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FORMATS = ("kohort", pytest.param("kafka", marks=pytest.mark.java))


class Producers:
    """Transactional producers of the topic t, one by one, and a plain one."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._open: dict[str, Any] = {}
        self._plain = Producer({"bootstrap.servers": servers})

    def send(self, name: str, *values: str, partition: int = 0) -> None:
        """Send in the producer's open transaction, or in a new one."""
        producer = self._open.get(name)
        if producer is None:
            producer = self._open[name] = Producer({"bootstrap.servers": self._servers, "transactional.id": name})
            producer.init_transactions(30)
            producer.begin_transaction()
        for value in values:
            producer.produce("t", value.encode(), partition=partition)
        assert producer.flush(30) == 0

    def plain(self, *values: str, partition: int = 0) -> None:
        for value in values:
            self._plain.produce("t", value.encode(), partition=partition)
        assert self._plain.flush(30) == 0

    def end(self, name: str, *, committed: bool) -> None:
        producer = self._open.pop(name)
        producer.commit_transaction(30) if committed else producer.abort_transaction(30)


@pytest.fixture
def producers(server: KohortServer, cluster: Cluster) -> Producers:
    cluster.create_topic("t", 2)
    made = Producers(server.bootstrap_servers)
    made.send("a", "a1", "a2")
    made.plain("p1")
    made.send("b", "b1")
    made.send("b", "b2", partition=1)
    made.end("a", committed=False)
    made.send("a", "a3")
    made.end("b", committed=True)
    made.plain("p2", partition=1)
    made.end("a", committed=True)
    made.send("c", "c1", partition=1)
    made.end("c", committed=False)  # the log of partition 1 ends with an aborted record and a marker
    return made


COMMITTED = ["a3", "b1", "b2", "p1", "p2"]
ABORTED = ["a1", "a2", "c1"]


def options(server: KohortServer, format: str, level: str, **more: str) -> dict[str, str]:
    name = "isolation.level" if format == "kohort" else "kafka.isolation.level"
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", name: level}
    return {**given, "startingOffsets": "earliest", **more}


def values(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_read_sees_what_its_level_says(
    spark: Any, server: KohortServer, producers: Producers, format: str
) -> None:
    def read(level: str, **more: str) -> list[str]:
        return values(spark.read.format(format).options(**options(server, format, level, **more)).load())

    assert read("read_committed") == COMMITTED
    assert read("read_uncommitted") == sorted([*COMMITTED, *ABORTED])
    # Cuts of the log inside of a transaction and at a marker.
    for cut in (1, 4):
        where = f'{{"t":{{"0":{cut},"1":0}}}}'
        until = f'{{"t":{{"0":{cut},"1":5}}}}'
        parts = read("read_committed", startingOffsets=where), read("read_committed", endingOffsets=until)
        assert sorted([*parts[0], *parts[1]]) == sorted([*COMMITTED, "b2", "p2"])
    producers.send("d", "d1")
    producers.plain("p3")
    assert read("read_committed") == COMMITTED
    assert read("read_uncommitted") == sorted([*COMMITTED, *ABORTED, "d1", "p3"])
    producers.end("d", committed=True)
    assert read("read_committed") == sorted([*COMMITTED, "d1", "p3"])


@pytest.mark.parametrize(
    ("format", "more"),
    [
        ("kohort", {}),
        ("kohort", {"group.id": "g", "groupMode": "member"}),
        pytest.param("kafka", {}, marks=pytest.mark.java),
    ],
    ids=["kohort", "kohort, a member", "kafka"],
)
def test_a_stream_reads_on_when_a_transaction_ends(
    spark: Any, server: KohortServer, producers: Producers, tmp_path: Path, format: str, more: dict[str, str]
) -> None:
    """Runs of availableNow end at the last stable offset, with failOnDataLoss."""

    def run() -> list[str]:
        given = options(server, format, "read_committed", **more)
        stream = spark.readStream.format(format).options(**given).load()
        writer = stream.select("value").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        return values(spark.read.parquet(str(tmp_path / "rows")))

    assert run() == COMMITTED
    producers.send("d", "d1", "d2")
    producers.plain("p3")
    producers.send("e", "e1", partition=1)
    assert run() == COMMITTED
    producers.end("e", committed=False)
    assert run() == COMMITTED
    producers.end("d", committed=True)
    assert run() == sorted([*COMMITTED, "d1", "d2", "p3"])
