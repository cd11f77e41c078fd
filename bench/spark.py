"""Rows per second and core from a topic into Spark: kohort's source, Spark's own (JVM), librdkafka's messages.

Needs the extra `spark`. Spark's own source comes from Maven Central where Maven is installed: that of the installed
version, else 4.2.0."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import bench._kafka as apache
from bench import _peers
from bench._process import serving
from bench._run import WORST, Figures, Panel, Run, Subject, Table, Values
from bench._spark_job import WITHOUT, Job
from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord, encode_batch

SOURCES = {"kohort": "kohort", "kafka": "Spark's own (JVM)", "librdkafka": "librdkafka → Arrow"}
SINKS = ("noop", "Parquet")
SIZES = (100, 1_000)
ROWS, QUICK_ROWS = 3_000_000, 300_000
"""Rows of 100 bytes; a quarter of this number for 1 kB."""
RUNS, QUICK_RUNS = 5, 2
WARM_UP, QUICK_WARM_UP = 4, 1
"""Runs before the measured ones: of three million rows the first takes a third more of the JVM's CPU, which is JIT."""
RUNS_WITHOUT = 3
PARTITIONS = 2
BATCH_BYTES = 64 * 1024


def measure(run: Run) -> None:
    if find_spec("pyspark") is None:
        print("Spark is not measured: that needs the extra `spark`")
        return
    kinds = (tuple(SOURCES), SINKS, tuple(map(str, SIZES)))
    sources, sinks, sizes = (run.chosen(kind, kinds) for kind in kinds)
    with tempfile.TemporaryDirectory() as folder:
        jars = _jars(run, Path(folder)) if "kafka" in sources else ""
        if not jars:
            sources = [source for source in sources if source != "kafka"]
        run.result.versions |= _versions()
        for size in map(int, sizes):
            with serving() as (pid, (host, port)):
                servers = f"{host}:{port}"
                rows = fill(servers, size, (QUICK_ROWS if run.quick else ROWS) // (1 if size < 500 else 4))
                for sink in sinks:
                    for source in sources:
                        runs = run.asked or (QUICK_RUNS if run.quick else RUNS)
                        warm_up = QUICK_WARM_UP if run.quick else WARM_UP
                        job = Job(source, sink, servers, pid, "t", rows, runs, warm_up, jars)
                        _run_job(run, job, f"{size:,} bytes, {sink}")
                for source in (source for source in ("kohort", "librdkafka") if source in sources):
                    for _ in range(RUNS_WITHOUT):
                        job = Job(source, WITHOUT, servers, pid, "t", rows // PARTITIONS, 1, 0)
                        _run_job(run, job, f"{size:,} bytes, {WITHOUT}")


def _versions() -> dict[str, str]:
    import numba
    import pyspark

    modules = "interpreted" if _peers.why_not_compiled() else "compiled"
    return {"hot modules": modules, "Spark": pyspark.__version__, "numba": numba.__version__}


def fill(servers: str, size: int, rows: int) -> int:
    """Fill a topic with records of this size and keys of 10 bytes. Returns the number of records."""
    each = BATCH_BYTES // (size + 24)
    batch = encode_batch([NewRecord(b"key%07d" % n, b"v" * size, 1_700_000_000_000 + n) for n in range(each)])
    with Cluster(servers) as cluster:
        cluster.create_topic("t", PARTITIONS, configs={"retention.ms": "-1"})
        count = rows // each // PARTITIONS
        for _ in range(count):
            cluster.produce_batches({("t", partition): batch for partition in range(PARTITIONS)})
    return count * PARTITIONS * each


def _run_job(run: Run, job: Job, row: str) -> None:
    """Each run of a process is a round. The load of other processes is unknown: Spark's end unobserved."""
    command = [sys.executable, "-m", "bench._spark_job", json.dumps(dataclasses.asdict(job))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1_800)
    if done.returncode:
        print(f"{row}, {SOURCES[job.source]}: failed", flush=True)
        return
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            run.add(row, job.source, json.loads(line), None)


def _jars(run: Run, folder: Path) -> str:
    """The jars of Spark's own source and its dependencies, separated by commas; empty if they are not available."""
    import pyspark

    if not shutil.which("mvn"):
        print("Spark's own source is not measured: that needs Maven")
        return ""
    try:
        apache.fetch_spark_connector(folder, pyspark.__version__)
    except RuntimeError as error:
        print(f"Spark's own source is not measured: not to be had from Maven Central\n{str(error)[-500:]}")
        return ""
    connector = next(folder.glob("spark-sql-kafka-*.jar"))
    run.result.versions["Spark's Kafka source"] = connector.stem.rpartition("-")[2]
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def _cpu(values: Values) -> str:
    return "; ".join(f"{values[name]:.2f}" if name in values else "–" for name in ("jvm_s", "python_s", "server_s"))


TABLES = (
    Table("Rows a second and core; a second", lambda v: f"{v['rows_s_core']:,.0f}; {v['rows_s']:,.0f}"),
    Table("CPU of the JVM; of Python; of the server, seconds", _cpu),
    Table("Largest memory of a Python worker, MB", lambda v: f"{v[WORST + 'worker_mb']:.0f}"),
)
PANELS = tuple(
    Panel(f"Into Spark, {sink}", f"100 bytes, {sink}", "rows_s_core", "million rows a second and core", 1e-6)
    for sink in SINKS
)
SUBJECT = Subject("spark", measure, TABLES, PANELS, columns=SOURCES, shown=Figures.typical, pinned=False)
