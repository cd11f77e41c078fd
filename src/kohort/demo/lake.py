"""The Spark side of the demo: a session with a clean end, and the queries over the Parquet files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kohort.cli.interrupt import interrupts
from kohort.demo.flights import SQL_SCHEMA
from kohort.spark.runtime.session import spark_session

START_S = 30.0
STOP_S = 15.0
GRACE_S = 3.0
LOOK_EVERY_S = 0.1

_T = TypeVar("_T")

DELAYS = f"""
WITH flights AS (SELECT from_json(CAST(value AS STRING), '{SQL_SCHEMA}') AS flight FROM {{rows}})
SELECT flight.carrier, flight.month, avg(flight.dep_delay) AS departure, avg(flight.arr_delay) AS arrival
FROM flights
GROUP BY CUBE (flight.carrier, flight.month)
"""

CONTENTS = """
SELECT partition, count(*) AS rows, count(DISTINCT offset) AS offsets, max(offset) AS last,
       sum(crc32(value)) AS checksum
FROM {rows}
GROUP BY partition
"""


def delays(spark: Any, parquet: Path) -> list[Any]:
    """Rows of mean minutes. `month` None: the whole year; `carrier` None: all of them together."""
    found = spark.sql(DELAYS, rows=spark.read.parquet(str(parquet))).collect()
    return [row for row in found if row.arrival is not None]


def contents(spark: Any, parquet: Path) -> dict[int, Any]:
    """For each partition of the topic a row of CONTENTS."""
    found = spark.sql(CONTENTS, rows=spark.read.parquet(str(parquet))).collect()
    return {row.partition: row for row in found}


class Spark:
    """A session and its Java process: `start`, and `stop` in any case.

    All calls of the session run in one thread. So an interrupt ends the caller's wait, and neither a call of PySpark,
    which would leave a stack trace, nor a Java process that is just starting. PySpark leaves the Java of a stopped
    session alive until this process ends; `stop` ends it.
    """

    def __init__(self, app_name: str, log: Path, config: dict[str, str]) -> None:
        self.stopping = threading.Event()
        """Set by `stop`, for work that can end early."""
        self._app_name = app_name
        self._log = log
        self._config = config
        self._session: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._running: Future[Any] | None = None

    def call(self, work: Callable[[Any], _T]) -> _T:
        """Run `work` with the session in the thread, and wait for its result."""
        return self._result_of(lambda: work(self._session))

    def _result_of(self, work: Callable[[], _T]) -> _T:
        self._running = future = self._thread.submit(work)
        while not future.done():
            interrupts.check()
            wait((future,), LOOK_EVERY_S)
        return future.result()

    def start(self) -> None:
        with _stderr_to(self._log):
            self._result_of(self._start)

    def _start(self) -> None:
        self._session = spark_session(self._app_name, config=self._config)

    def stop(self) -> None:
        from pyspark import SparkContext

        self.stopping.set()
        if self._running is not None:
            wait((self._running,), START_S if self._session is None else GRACE_S)
        if self._session is not None:
            _within(STOP_S, self._session.stop)
        gateway: Any = SparkContext._gateway
        if gateway is not None:
            _end_java(gateway)
            SparkContext._gateway = SparkContext._jvm = None
        self._thread.shutdown()


def _end_java(gateway: Any) -> None:
    _within(STOP_S, gateway.shutdown)
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Send stderr of the block, and of processes that it starts, to a file.

    Java prints several lines at its start, and neither Spark nor Java has a switch for all of them.
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


def _within(seconds: float, work: Callable[[], Any]) -> None:
    """Run `work`, but wait no longer than `seconds`: the Java process may not answer any more."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
