"""Rows per second and core out of a topic through Spark: kohort's source, Spark's own (JVM), librdkafka's messages.

One kohort server, one topic for each size of records, and a Spark session (local[1]) for each source and sink, warmed
up. Rows are divided by the CPU seconds of JVM and Python together, garbage collection and what is left of JIT included,
so the figure holds on a busy machine; half a second that a query costs without any rows is in it. The server's CPU is
beside it. `noop` takes every column of every row and drops it; Parquet is Spark's default, snappy. Then the same
without Spark: a range of a partition into Arrow batches, in one process.
Spark's own source comes from Maven Central where Maven is at hand: that of the installed version, else the nearest one
that is there. Takes a quarter of an hour; `--rows`, `--runs`, `--sources`, `--sinks`, `--sizes` make it shorter.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench._process import memory_mb, serving
from bench._spark_job import Job, Run
from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord, encode_batch

JAVA = Path(__file__).parent / "java" / "spark"
SOURCES = ("kohort", "kafka", "librdkafka")
NAMES = {"kohort": "kohort", "kafka": "Spark's own (JVM)", "librdkafka": "librdkafka → Arrow"}
SINKS = ("noop", "parquet")
SIZES = (100, 1000)
PARTITIONS = 2
BATCH_BYTES = 64 * 1024
NEAREST = (("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
"""Versions of the source and of the token provider that it needs, if those of the installed Spark are not there."""


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    with tempfile.TemporaryDirectory() as folder:
        jars = _jars(Path(folder)) if "kafka" in options.sources else ""
        for size in options.sizes:
            rows = options.rows // (1 if size < 500 else 4)
            with serving() as (pid, (host, port), _):
                servers = f"{host}:{port}"
                rows = fill(servers, size, rows)
                print(f"\n{rows:,} records of {size} bytes in {PARTITIONS} partitions, {options.runs} runs, median")
                header = f"{'source':20} {'sink':8} {'rows/s/core':>12} {'rows/s':>10} {'JVM s':>7} {'Python s':>9}"
                print(f"{header} {'server s':>9} {'worker MB':>10}")
                for sink in options.sinks:
                    for source in options.sources:
                        if source != "kafka" or jars:
                            job = Job(source, sink, servers, pid, "t", rows, options.runs, jars)
                            _report(job, list(_runs(job)))
                for way in ("kohort", "librdkafka"):
                    if way in options.sources:
                        _alone(way, servers, rows)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench spark")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of 100 bytes; a quarter of them of 1 kB")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--sinks", nargs="*", choices=SINKS, default=SINKS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    return parser.parse_args(words)


def fill(servers: str, size: int, rows: int) -> int:
    """A topic with records of this size, keys of 10 bytes. Returns how many."""
    each = BATCH_BYTES // (size + 24)
    batch = encode_batch([NewRecord(b"key%07d" % n, b"v" * size, 1_700_000_000_000 + n) for n in range(each)])
    with Cluster(servers) as cluster:
        cluster.create_topic("t", PARTITIONS, configs={"retention.ms": "-1"})
        count = rows // each // PARTITIONS
        for _ in range(count):
            cluster.produce_batches({("t", partition): batch for partition in range(PARTITIONS)})
    return count * PARTITIONS * each


def _runs(job: Job) -> Iterator[Run]:
    command = [sys.executable, "-m", "bench._spark_job", json.dumps(dataclasses.asdict(job))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1_800)
    if done.returncode:
        print(f"{NAMES[job.source]:20} {job.sink:8} failed", flush=True)
        return
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield Run(**json.loads(line))


def _report(job: Job, runs: list[Run]) -> None:
    if not runs:
        return
    typical = sorted(runs, key=lambda run: run.jvm + run.python)[len(runs) // 2]
    worker = "" if job.source == "kafka" else f"{max(run.worker_mb for run in runs):.0f}"
    print(
        f"{NAMES[job.source]:20} {job.sink:8} {job.rows / (typical.jvm + typical.python):12,.0f} "
        f"{job.rows / typical.seconds:10,.0f} {typical.jvm:7.2f} {typical.python:9.2f} {typical.server:9.2f} "
        f"{worker:>10}",
        flush=True,
    )


def _jars(folder: Path) -> str:
    """Spark's own source and what it needs, with commas between them; empty where it cannot be had."""
    import pyspark

    if not shutil.which("mvn"):
        print("Spark's own source is not measured: that needs Maven")
        return ""
    for version, tokens in ((pyspark.__version__, pyspark.__version__), *NEAREST):
        into = folder / f"{version}-{tokens}"
        command = ["mvn", "-q", "-B", "-s", str(JAVA / "settings.xml"), "-f", str(JAVA / "pom.xml")]
        command += [f"-Dspark.version={version}", f"-Dtoken.version={tokens}", f"-DoutputDirectory={into}"]
        done = subprocess.run([*command, "dependency:copy-dependencies"], capture_output=True, text=True, timeout=500)
        if done.returncode == 0:
            print(f"Spark {pyspark.__version__}, its own source {version} (token provider {tokens})")
            return ",".join(str(jar) for jar in sorted(into.glob("*.jar")))
    print(f"Spark's own source is not measured: not to be had from Maven Central\n{done.stdout[-500:]}")
    return ""


ALONE = "import sys; from bench.spark import read_alone; print(*read_alone(*sys.argv[1:]))"


def _alone(way: str, servers: str, rows: int) -> None:
    """A way into Arrow without Spark, in a process of its own."""
    took = []
    for _ in range(3):
        command = [sys.executable, "-c", ALONE, way, servers]
        numba = {**os.environ, "KOHORT_SPARK_DECODER": "numba"}  # from the first record on
        done = subprocess.run(command, env=numba, capture_output=True, text=True, check=True)
        took.append([float(word) for word in done.stdout.split()])
    found, seconds, cpu, before, peak = sorted(took, key=lambda one: one[2])[1]
    assert found == rows // PARTITIONS, f"{way} read {found} rows"
    print(
        f"{NAMES[way]:20} {'no Spark':8} {found / cpu:12,.0f} {found / seconds:10,.0f} {'':7} {cpu:9.2f} {'':9} "
        f"{peak:10.0f}  (of these {before:.0f} before the first record)",
        flush=True,
    )


def read_alone(way: str, servers: str) -> tuple[int, float, float, float, float]:
    """Reads one partition: rows, seconds, CPU seconds, and resident MB before and at most."""
    from bench._spark_source import read as read_messages
    from kohort.spark.options import parse
    from kohort.spark.read import Range, read_range

    options = parse({"kafka.bootstrap.servers": servers, "subscribe": "t"})
    with Cluster(servers) as cluster:
        end = cluster.offsets([("t", 0)])["t", 0]
    before = memory_mb(os.getpid())
    for _ in range(2):  # a worker that has read before has loaded what there is to load
        cpu, began = time.process_time(), time.perf_counter()
        batches = read_range(options, Range("t", 0, 0, end)) if way == "kohort" else read_messages(servers, "t", 0)
        rows = sum(batch.num_rows for batch in batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return rows, time.perf_counter() - began, time.process_time() - cpu, before, peak
