"""A Spark data source that reads through librdkafka's Python messages, for comparison: the usual way in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kohort.spark.options.source import COLUMNS
from kohort.spark.source.read import TYPES

SCHEMA = pa.schema([pa.field(name, TYPES[name]) for name in COLUMNS])
AT_ONCE = 10_000


class Librdkafka(DataSource):
    @classmethod
    def name(cls) -> str:
        return "librdkafka"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: Any) -> DataSourceReader:
        return LibrdkafkaReader(dict(self.options))


class LibrdkafkaReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.servers, self.topic = options["kafka.bootstrap.servers"], options["subscribe"]

    def partitions(self) -> list[InputPartition]:
        topics = consumer(self.servers).list_topics(self.topic, 30).topics
        return [InputPartition(partition) for partition in topics[self.topic].partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self.servers, self.topic, partition.value)


def consumer(servers: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})


def read(servers: str, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
    """All records of a partition, as Arrow with the schema of Spark's source."""
    from confluent_kafka import TopicPartition

    client = consumer(servers)
    _, end = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    client.assign([TopicPartition(topic, partition, 0)])
    position = 0
    while position < end:
        messages = client.consume(AT_ONCE, timeout=1.0)
        for message in messages:
            assert message.error() is None, message.error()
        if messages:
            position = messages[-1].offset() + 1
            yield _batch(messages, topic, partition)
    client.close()


def _batch(messages: list[Any], topic: str, partition: int) -> pa.RecordBatch:
    times = pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", tz="UTC"))
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic), len(messages)),
        pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
        pa.array([message.offset() for message in messages], pa.int64()),
        times.cast(pa.timestamp("us", tz="UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), len(messages)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
