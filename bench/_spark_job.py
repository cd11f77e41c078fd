"""One Spark session that reads a topic several times over: a process of its own, told its job in JSON.

It prints a line of JSON for each run: seconds, CPU seconds of the JVM and of Python (this process, the planners and the
workers), CPU seconds of the server, and the largest resident memory that a Python worker has had, in MB.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench._process import TICKS, cpu_seconds

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Job:
    source: str
    """kohort, kafka or librdkafka."""
    sink: str
    """noop or Parquet."""
    servers: str
    server_pid: int
    topic: str
    rows: int
    runs: int
    warm_up: int
    """Runs before those."""
    jars: str = ""


@dataclass(frozen=True)
class Run:
    seconds: float
    jvm: float
    python: float
    server: float
    worker_mb: float


def main(words: list[str]) -> None:
    job = Job(**json.loads(words[0]))
    spark = session(job)
    with tempfile.TemporaryDirectory() as folder:
        found = frame(spark, job).count()
        assert found == job.rows, f"{job.source} read {found} of {job.rows} rows"
        for _ in range(job.warm_up):
            write(frame(spark, job), job, folder)
        for _ in range(job.runs):
            print(json.dumps(asdict(measure(spark, job, folder))), flush=True)
    spark.stop()


def session(job: Job) -> Any:
    from bench._spark_source import Librdkafka
    from kohort.spark.runtime.session import spark_session

    config = {"spark.driver.memory": "2g"}
    if job.jars:
        config["spark.jars"] = job.jars
    spark = spark_session("bench", master="local[1]", config=config)
    spark.dataSource.register(Librdkafka)
    return spark


def frame(spark: Any, job: Job) -> Any:
    options = {"kafka.bootstrap.servers": job.servers, "subscribe": job.topic, "startingOffsets": "earliest"}
    return spark.read.format(job.source).options(**options).load()


def write(rows: Any, job: Job, folder: str) -> None:
    if job.sink == "noop":
        rows.write.format("noop").mode("overwrite").save()
    else:
        rows.write.mode("overwrite").parquet(f"{folder}/out")


def measure(spark: Any, job: Job, folder: str) -> Run:
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    with Watch() as watch:
        before, server = cpu(), cpu_seconds(job.server_pid)
        began = time.perf_counter()
        write(frame(spark, job), job, folder)
        seconds = time.perf_counter() - began
        after = cpu()
    used = cpu_seconds(job.server_pid) - server
    python = after[False] - before[False] - watch.cpu
    return Run(seconds, after[True] - before[True], python, used, watch.worker_mb)


def family() -> list[tuple[int, list[str]]]:
    """This process and all its descendants: ids, and the fields of /proc behind the name."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = path.read_text().rpartition(")")
        except OSError:
            continue
        found[int(path.parent.name)] = [name.partition("(")[2], *fields.split()]
    ours = {os.getpid()}
    while more := {pid for pid, fields in found.items() if int(fields[2]) in ours} - ours:
        ours |= more
    return [(pid, found[pid]) for pid in ours if pid in found]


def cpu() -> dict[bool, float]:
    """CPU seconds so far, of JVMs (True) and of the rest, those of children that have ended included."""
    used = {True: 0.0, False: 0.0}
    for _, fields in family():
        own, ended = int(fields[12]) + int(fields[13]), int(fields[14]) + int(fields[15])
        used[fields[0] == "java"] += own / TICKS
        used[False] += ended / TICKS  # nothing but Python ends under these processes
    return used


class Watch:
    """Looks ten times a second for the largest resident memory of a Python worker. `cpu` is what looking took."""

    worker_mb = 0.0
    cpu = 0.0

    def __enter__(self) -> Watch:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            for pid, fields in family():
                if pid != os.getpid() and fields[0] != "java":
                    self.worker_mb = max(self.worker_mb, int(fields[22]) * PAGE / 1e6)
        self.cpu = time.thread_time()


if __name__ == "__main__":
    main(sys.argv[1:])
