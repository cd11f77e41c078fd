"""One Spark session that reads a topic several times: a process of its own, with its job in JSON as the argument.

Without Spark, the process reads one partition into Arrow batches.

It prints a line of JSON for each run: rows a second and core, rows a second, the CPU seconds of the JVM, of Python
(this process, the planners and the workers) and of the server, and the largest memory of a Python worker in MB.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from bench._machine import TICKS, cpu_seconds, descendants, largest_memory_mb, stat

WITHOUT = "no Spark"


@dataclass(frozen=True)
class Job:
    source: str
    """kohort, kafka or librdkafka."""
    sink: str
    """noop, Parquet or WITHOUT."""
    servers: str
    server_pid: int
    topic: str
    rows: int
    runs: int
    warm_up: int
    """Runs before those."""
    jars: str = ""


def main(words: list[str]) -> None:
    job = Job(**json.loads(words[0]))
    if job.sink == WITHOUT:
        print(json.dumps(read_alone(job)))
        return
    spark = session(job)
    with tempfile.TemporaryDirectory() as folder:
        found = frame(spark, job).count()
        assert found == job.rows, f"{job.source} read {found} of {job.rows} rows"
        for _ in range(job.warm_up):
            write(frame(spark, job), job, folder)
        for _ in range(job.runs):
            print(json.dumps(measure(spark, job, folder)), flush=True)
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


def measure(spark: Any, job: Job, folder: str) -> dict[str, float]:
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    before, server = cpu(), cpu_seconds(job.server_pid)
    began = time.perf_counter()
    write(frame(spark, job), job, folder)
    seconds = time.perf_counter() - began
    after, used = cpu(), cpu_seconds(job.server_pid) - server
    jvm, python = after[True] - before[True], after[False] - before[False]
    found = {
        "rows_s_core": job.rows / (jvm + python),
        "rows_s": job.rows / seconds,
        "jvm_s": jvm,
        "python_s": python,
        "server_s": used,
    }
    # Spark's own source has no worker in Python.
    return found if job.source == "kafka" else {**found, "worker_mb": largest_worker_mb()}


def cpu() -> dict[bool, float]:
    """CPU seconds so far, of JVMs (True) and of the rest, those of children that have ended included."""
    used = {True: 0.0, False: 0.0}
    for fields in filter(None, map(stat, descendants(os.getpid()))):
        own, ended = int(fields[12]) + int(fields[13]), int(fields[14]) + int(fields[15])
        used[fields[0] == "java"] += own / TICKS
        used[False] += ended / TICKS  # nothing but Python ends under these processes
    return used


def largest_worker_mb() -> float:
    """The largest memory that one of the Python workers has had."""
    workers = [pid for pid in descendants(os.getpid())[1:] if stat(pid)[:1] != ["java"]]
    return max(map(largest_memory_mb, workers), default=0.0)


def read_alone(job: Job) -> dict[str, float]:
    """Read partition 0."""
    os.environ["KOHORT_SPARK_DECODER"] = "numba"  # from the first record on
    from bench._spark_source import read as read_messages
    from kohort.client.cluster import Cluster
    from kohort.spark.options.source import parse
    from kohort.spark.source.read import Range, read_range

    options = parse({"kafka.bootstrap.servers": job.servers, "subscribe": job.topic})
    with Cluster(job.servers) as cluster:
        end = cluster.offsets([(job.topic, 0)])[job.topic, 0]
    for _ in range(2):  # the second reading has all code loaded
        cpu, began = time.process_time(), time.perf_counter()
        if job.source == "kohort":
            batches = read_range(options, Range(job.topic, 0, 0, end))
        else:
            batches = read_messages(job.servers, job.topic, 0)
        rows = sum(batch.num_rows for batch in batches)
    used = time.process_time() - cpu
    assert rows == job.rows, f"{job.source} read {rows} of {job.rows} rows"
    return {
        "rows_s_core": rows / used,
        "rows_s": rows / (time.perf_counter() - began),
        "python_s": used,
        "worker_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
