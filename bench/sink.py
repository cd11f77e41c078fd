"""Rows per second of the Spark sink: what a task does alone, through Spark, and beside Spark's own sink.

The broker is librdkafka's mock cluster, whose cost is small, so that the sink's shows; the last lines write to kohort's
server. Spark's own sink runs where Maven can get its jars. One core: `local[1]`. Bounded: some ten seconds a line.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from tests.spark import kafka_connector

from bench._process import serving
from kohort.client.cluster import Cluster
from kohort.spark.runtime.session import spark_session
from kohort.spark.sink.data_sink import write
from kohort.spark.sink.options import parse
from kohort.spark.sink.rows import Columns

ROWS = 500_000
BATCH = 10_000
PARTITIONS = 8
REPEATS = 3


def main() -> None:
    mock = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1})
    broker = next(iter(mock.list_topics("mock", timeout=30).brokers.values()))
    address = f"{broker.host}:{broker.port}"
    print(f"{ROWS:,} rows of a key and 100 bytes; best of {REPEATS}")
    print(f"{'':44}{'rows/s':>12}{'rows/s of CPU':>16}")
    for name, headers in (("a task alone, to a mock broker", False), ("the same with two headers a row", True)):
        show(name, *best(lambda headers=headers: alone(address, headers)))
    with tempfile.TemporaryDirectory() as folder:
        jars = connector(Path(folder))
        spark = spark_session("bench", master="local[1]", config={"spark.jars": ",".join(map(str, jars))})
        rows = spark.range(0, ROWS, 1, 1).selectExpr("concat('key-', id) AS key", "repeat('v', 100) AS value").cache()
        rows.count()
        show("through Spark, to a mock broker", *best(lambda: through(rows, address, "kohort")))
        with serving(f"num.partitions={PARTITIONS}") as (_, (host, port), _):
            with Cluster(f"{host}:{port}") as cluster:
                cluster.create_topic("bench", PARTITIONS)
            for format in ["kohort", *(["kafka"] if jars else [])]:
                name = f"through Spark, format {format}, to kohort"
                show(name, *best(lambda f=format: through(rows, f"{host}:{port}", f)))
        spark.stop()


def connector(folder: Path) -> list[Path]:
    try:
        return kafka_connector.fetch(folder)
    except (OSError, subprocess.SubprocessError):
        return []


def best(run: Any) -> tuple[float, float | None]:
    return min((run() for _ in range(REPEATS)), key=lambda took: took[0])


def show(name: str, seconds: float, cpu: float | None) -> None:
    print(f"{name:44}{ROWS / seconds:>12,.0f}{f'{ROWS / cpu:,.0f}' if cpu else '':>16}", flush=True)


def alone(address: str, headers: bool) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process: the producer's threads and those of the mock broker too."""
    header = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}]] * BATCH)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, ROWS, BATCH):
            columns = {
                "key": pa.array([b"key-%d" % n for n in range(first, first + BATCH)]),
                "value": pa.array([b"v" * 100] * BATCH),
            }
            yield pa.RecordBatch.from_pydict(columns | ({"headers": header} if headers else {}))

    ready = list(batches())
    options = parse({"kafka.bootstrap.servers": address, "topic": "mock"})
    wall, cpu = time.perf_counter(), time.process_time()
    write(options, Columns(True, False, False, headers, False), iter(ready))
    return time.perf_counter() - wall, time.process_time() - cpu


def through(rows: Any, address: str, format: str) -> tuple[float, None]:
    wall = time.perf_counter()
    rows.write.format(format).option("kafka.bootstrap.servers", address).option("topic", "bench").mode("append").save()
    return time.perf_counter() - wall, None
