"""`df.write.format("kohort")` and `writeStream`, checked by a plain consumer; and a task without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from topic_content import consumed

from kohort.client.cluster import Cluster
from kohort.client.records.partitioner import partition_for_key
from kohort.spark.options.sink import SinkOptions, parse_sink
from kohort.spark.sink.data_sink import DeliveryFailed, _Sender, write
from kohort.testing import KohortServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

VALUES = frozenset({"value"})


def save(frame: Any, server: KohortServer, **options: str) -> None:
    writer = frame.write.format("kohort").option("kafka.bootstrap.servers", server.bootstrap_servers)
    writer.options(**{name.replace("_", "."): value for name, value in options.items()}).mode("append").save()


def test_every_column_is_written_and_keys_go_where_java_puts_them(
    spark: Any, server: KohortServer, cluster: Cluster
) -> None:
    cluster.create_topic("t", 5)
    cluster.create_topic("u", 2)
    frame = spark.sql(
        """
        SELECT concat('key-', id) AS key,
               CASE WHEN id % 3 = 0 THEN NULL ELSE concat('value ', id) END AS value,
               't' AS topic,
               CASE WHEN id % 4 = 0 THEN 4 END AS partition,
               array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)),
                     named_struct('key', 'h', 'value', CAST(NULL AS BINARY))) AS headers,
               timestamp_millis(1600000000123 + id) AS timestamp
        FROM range(100)
        """
    )
    save(frame, server)
    messages = consumed(cluster, "t")
    assert sorted(message.key() for message in messages) == sorted(f"key-{n}".encode() for n in range(100))
    for message in messages:
        number = int(message.key().removeprefix(b"key-"))
        assert message.value() == (None if number % 3 == 0 else f"value {number}".encode())
        assert message.partition() == (4 if number % 4 == 0 else partition_for_key(message.key(), 5))
        assert message.headers() == [("h", b"1"), ("h", None)]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1600000000123 + number)
    # The option wins over the column; and what is read can be written.
    read = spark.read.format("kohort").option("kafka.bootstrap.servers", server.bootstrap_servers)
    read = read.option("subscribe", "t").option("includeHeaders", "true").load()
    save(read.drop("partition"), server, topic="u", kafka_compression_type="lz4")
    again = consumed(cluster, "u")
    same = [(message.key(), message.value(), message.headers(), message.timestamp()) for message in messages]
    assert sorted((m.key(), m.value(), m.headers(), m.timestamp()) for m in again) == sorted(same)
    assert all(message.partition() == partition_for_key(message.key(), 2) for message in again)


def test_a_batch_that_cannot_be_written_fails_at_once(spark: Any, server: KohortServer, cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    frame = spark.sql("SELECT 'v' AS value")
    with pytest.raises(Exception, match="SchemaError: there is no topic"):
        save(frame, server)
    writer = frame.write.format("kohort").option("kafka.bootstrap.servers", server.bootstrap_servers)
    with pytest.raises(Exception, match=r'OptionError: kohort\'s sink appends; write with mode\("append"\)') as failed:
        writer.option("topic", "t").mode("overwrite").save()
    assert str(failed.value).index("kohort's sink appends") < str(failed.value).index("Traceback")
    with pytest.raises(Exception, match="DeliveryFailed: a row for t-7 was not delivered: _UNKNOWN_PARTITION"):
        save(spark.sql("SELECT 'v' AS value, 7 AS partition"), server, topic="t")
    assert cluster.offsets([("t", 0)], "latest") == {("t", 0): 0}


def copy(spark: Any, server: KohortServer, checkpoint: Path) -> None:
    """Run a streaming query from t to u until it has read what there is."""
    source = spark.readStream.format("kohort").option("kafka.bootstrap.servers", server.bootstrap_servers)
    source = source.option("subscribe", "t").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "60")
    writer = source.load().select("key", "value").writeStream.format("kohort").option("topic", "u")
    writer = writer.option("kafka.bootstrap.servers", server.bootstrap_servers).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    assert query.awaitTermination(120)


def test_a_stream_continues_and_repeats_its_unfinished_batch(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 2)
    cluster.create_topic("u", 2)
    save(spark.range(100).selectExpr("CAST(id AS STRING) AS key", "'v' AS value"), server, topic="t")
    checkpoint = tmp_path / "checkpoint"
    copy(spark, server, checkpoint)
    server.restart()
    save(spark.range(100, 110).selectExpr("CAST(id AS STRING) AS key", "'v' AS value"), server, topic="t")
    copy(spark, server, checkpoint)
    keys = [int(message.key()) for message in consumed(cluster, "u")]
    assert sorted(keys) == list(range(110))
    # As if the query had been killed before its last batch was in the commit log: the batch is there twice.
    for done in ("2", ".2.crc"):
        (checkpoint / "commits" / done).unlink()
    copy(spark, server, checkpoint)
    keys = [int(message.key()) for message in consumed(cluster, "u")]
    assert sorted(keys) == sorted([*range(110), *range(100, 110)])


def test_a_complete_result_is_appended_anew_with_each_batch(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("counts", 1)
    (tmp_path / "in").mkdir()
    for batch in (1, 2):
        (tmp_path / "in" / f"{batch}.json").write_text('{"word": "a"}\n' * batch)
        words = spark.readStream.schema("word string").json(str(tmp_path / "in")).groupBy("word").count()
        writer = words.selectExpr("word AS key", "CAST(count AS STRING) AS value").writeStream.format("kohort")
        writer = writer.option("kafka.bootstrap.servers", server.bootstrap_servers).option("topic", "counts")
        query = writer.outputMode("complete").trigger(availableNow=True)
        assert query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    assert [(m.key(), m.value()) for m in consumed(cluster, "counts")] == [(b"a", b"1"), (b"a", b"3")]


# -- a task, without Spark


@pytest.fixture
def options(server: KohortServer, cluster: Cluster) -> Iterator[SinkOptions]:
    cluster.create_topic("t", 1)
    yield options_of(server)
    _Sender.kept = None


def options_of(server: KohortServer, delivery_ms: int = 60_000) -> SinkOptions:
    return parse_sink(
        {
            "kafka.bootstrap.servers": server.bootstrap_servers,
            "topic": "t",
            "kafka.buffer.memory": "65536",
            "kafka.delivery.timeout.ms": str(delivery_ms),
            "kafka.request.timeout.ms": "1000",
            "kafka.max.block.ms": "60000",
        }
    )


def batches(count: int, value: bytes) -> Iterator[pa.RecordBatch]:
    for _ in range(count):
        yield pa.RecordBatch.from_pydict({"value": pa.array([value] * 50)})


def test_more_than_the_queue_holds_waits_for_room(
    options: SinkOptions, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Any] = []
    send_late = _Sender._send_late
    monkeypatch.setattr(_Sender, "_send_late", lambda self, record: (late.append(record), send_late(self, record)))
    assert write(options, VALUES, batches(40, b"v" * 1000)).rows == 2000
    assert late  # 2 MB went through a queue of 64 kB
    assert cluster.offsets([("t", 0)], "latest") == {("t", 0): 2000}


def test_a_producer_is_reused_unless_its_task_failed(options: SinkOptions, cluster: Cluster) -> None:
    write(options, VALUES, batches(1, b"v"))
    first = _Sender.kept
    write(options, VALUES, batches(1, b"v"))
    assert _Sender.kept is first

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(1, b"v")
        raise OSError("the rows end here")

    with pytest.raises(OSError, match="the rows end here"):
        write(options, VALUES, broken())
    assert _Sender.kept is None
    write(options, VALUES, batches(1, b"v"))
    assert _Sender.kept is not first
    assert cluster.offsets([("t", 0)], "latest")["t", 0] >= 150


def test_a_row_that_is_too_large_fails_the_task(options: SinkOptions) -> None:
    too_large = r"a row for t was not delivered: MSG_SIZE_TOO_LARGE.*kafka\.max\.request\.size"
    with pytest.raises(DeliveryFailed, match=too_large):
        write(options, VALUES, batches(1, b"v" * 2_000_000))


@pytest.mark.parametrize(
    ("max_block_ms", "message"),
    [
        (60_000, "a row for t-0 was not delivered: _MSG_TIMED_OUT: Local: Message timed out"),
        (200, r"no room in the producer's queue for 200 ms \(kafka\.max\.block\.ms\)"),
    ],
)
def test_a_broker_that_is_gone_fails_the_task(
    server: KohortServer, cluster: Cluster, max_block_ms: int, message: str
) -> None:
    """Either with partition and reason, or because the queue stays full."""
    cluster.create_topic("t", 1)
    options = options_of(server, delivery_ms=2_000)
    _Sender.kept = None
    while _Sender.kept is None:
        with contextlib.suppress(DeliveryFailed):  # a busy machine may need more than two seconds
            write(options, VALUES, batches(1, b"v"))
    server.stop()
    with pytest.raises(DeliveryFailed, match=message):
        write(replace(options, max_block_ms=max_block_ms), VALUES, batches(40, b"v" * 1000))
