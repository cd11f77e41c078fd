"""The Spark side of the demo: what is asked of the Parquet files, and an end without a Java left behind."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.demo.flights import SQL_SCHEMA

STOP_S = 15.0

DELAYS = f"""
WITH flights AS (SELECT from_json(CAST(value AS STRING), '{SQL_SCHEMA}') AS flight FROM {{rows}})
SELECT flight.carrier, flight.month, avg(flight.dep_delay) AS departure, avg(flight.arr_delay) AS arrival
FROM flights
GROUP BY ROLLUP (flight.carrier, flight.month)
"""

CONTENTS = """
SELECT partition, count(*) AS rows, count(DISTINCT offset) AS offsets, max(offset) AS last,
       sum(crc32(value)) AS checksum
FROM {rows}
GROUP BY partition
"""


@dataclass(frozen=True, slots=True)
class Delay:
    """Mean minutes. `month` None: the whole year; `carrier` None too: everybody."""

    carrier: str | None
    month: int | None
    departure: float
    arrival: float


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files hold of one partition of the topic."""

    rows: int
    offsets: int
    """Distinct ones."""
    end: int
    """The largest offset and one."""
    checksum: int


def delays(spark: Any, parquet: Path) -> list[Delay]:
    found = spark.sql(DELAYS, rows=spark.read.parquet(str(parquet))).collect()
    return [Delay(row.carrier, row.month, row.departure, row.arrival) for row in found if row.arrival is not None]


def contents(spark: Any, parquet: Path) -> dict[int, Contents]:
    found = spark.sql(CONTENTS, rows=spark.read.parquet(str(parquet))).collect()
    return {row.partition: Contents(row.rows, row.offsets, row.last + 1, row.checksum) for row in found}


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """What is written on stderr in the block, and later by processes that it starts, goes to a file.

    Java greets with several lines, and neither Spark nor Java has a switch for all of them.
    """
    sys.stderr.flush()
    shown = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)


def stop_spark(spark: Any) -> None:
    """Stop the session and its Java. Spark itself would let the Java live until this process ends."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    _within(STOP_S, spark.stop)
    if gateway is None:
        return
    _within(STOP_S, gateway.shutdown)
    java = gateway.proc
    java.stdin.close()
    try:
        java.wait(STOP_S)
    except Exception:
        java.kill()
        java.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _within(seconds: float, work: Callable[[], Any]) -> None:
    """Do it, but do not wait for ever: the Java may be beyond answering."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
