"""The history of every group: from the `__consumer_offsets` log of a cluster, or dumps of it, to tables and a report.

First the log records become typed columns. From a running cluster a streaming query with `decode=consumer_offsets`
reads them up to the end that the log has when the query starts; one task reads and writes each file of dumps. Then one
task analyses each partition of the log: all records of a group are in one partition, so nothing is shuffled.

A second run continues the first step where the last run ended (Spark's checkpoint; a note for each file) and makes all
tables again, because later records change the meaning of earlier ones: a span ends, a step back turns out to be a
tooth. A record that is read twice counts once, by its offset in the log.

    from kohort.spark.history import history
    history(spark, output="s3a://lake/groups", bootstrap_servers="kafka:9092")
    history(spark, output="/tmp/groups", files=["/var/lib/kafka/data"], ends="ends.parquet")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc

from kohort.client.cluster import Cluster
from kohort.spark.history import cluster as live
from kohort.spark.history.analysis import TABLES, Context, analyse
from kohort.spark.history.cluster import OFFSETS_TOPIC
from kohort.spark.history.decoding.dumps import ImportedDump, find_dumps, import_dump, topic_names
from kohort.spark.history.ends import Ends, read_ends
from kohort.spark.history.extent import Extent, extent_of, interval_edges
from kohort.spark.history.limits import Limits
from kohort.spark.history.report.findings import BAD, Finding, findings_table, worst_first
from kohort.spark.history.store import HOLDS, HistoryFailed, HistorySummary, Store, by_partition, read_records
from kohort.spark.history.tasks import run_tasks
from kohort.spark.options.source import security_of
from kohort.spark.runtime.failures import cause
from kohort.spark.runtime.session import register, timestamps_in_micros

CLIENT_ID = "kohort-history"


def history(
    spark: Any,
    *,
    output: str | Path,
    bootstrap_servers: str | None = None,
    files: Sequence[str] = (),
    ends: str | None = None,
    isolation: str = "read_committed",
    interval_s: int | None = None,
    limits: Limits | None = None,
    options: Mapping[str, str] | None = None,
    title: str = "",
    on_progress: Callable[[str], None] = lambda _: None,
) -> HistorySummary:
    """Make or extend the history in `output`, a directory that all executors see (a path, or s3, gs, hdfs).

    Read a cluster (`bootstrap_servers`; `options` go to the source, such as kafka.security.protocol), or `files`:
    Parquet with the columns of Spark's Kafka source, or directories of a broker's segments. `ends` names a file
    (Parquet or CSV) with the columns topic, partition, at and end, for the lag of a dump. `isolation` is read_committed
    or read_uncommitted. `interval_s` is the width of the intervals of rates and lag; by default it depends on the
    length of the history. Raises HistoryFailed, KafkaError, DumpError.
    """
    if (bootstrap_servers is None) == (not files):
        raise HistoryFailed("a history needs a cluster (bootstrap_servers) or files, one of the two")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise HistoryFailed(f"isolation is {isolation!r}; it must be read_committed or read_uncommitted")
    began = time.monotonic()
    store = Store(str(output))
    kept = store.table("log_ends")  # the log ends that earlier runs knew
    known = Ends.of(kept) if kept is not None else Ends({})
    if ends is not None:
        known = known.extended(read_ends(ends))
    imported: list[ImportedDump] = []
    names: dict[bytes, str] = {}
    source = {"kafka.bootstrap.servers": bootstrap_servers or "", **(options or {})}
    now = int(time.time() * 1000)
    if bootstrap_servers is not None:
        with _open(bootstrap_servers, source) as cluster:
            live.check_topic(cluster)
        on_progress(f"reading {OFFSETS_TOPIC}")
        _read_live(spark, store, source, isolation)
    else:
        on_progress("decoding the files")
        names = topic_names(files)
        imported = run_tasks(spark, find_dumps(files), partial(import_dump, store, isolation=isolation))
    partitions = by_partition([*_live_files(spark, store), *store.files("records/files")])
    on_progress(f"scanning {len(partitions)} partitions of the log")
    extent = Extent.of(run_tasks(spark, list(partitions.values()), extent_of))
    if bootstrap_servers is None or not extent.records:
        now = max(extent.last, now if bootstrap_servers is not None else 0)
    edges = interval_edges(extent.first, now, interval_s)
    if bootstrap_servers is not None:
        on_progress("reading the end offsets of the topics")
        with _open(bootstrap_servers, source) as cluster:
            names = live.topic_names(cluster)
            known = known.extended(live.ends_over_time(cluster, extent.places, edges, on_progress))
    on_progress("analysing")
    context = Context(edges, now, known, names, limits or Limits())
    work = partitions or {0: {name: [] for name in HOLDS}}  # an empty log has all tables, without rows
    analysed = run_tasks(spark, sorted(work.items()), partial(_analyse_partition, store, context))
    findings = worst_first(finding for part in analysed for finding in part.findings)
    store.write("tables/findings/part-00000.parquet", findings_table(findings))
    store.write("tables/log_ends/part-00000.parquet", known.table())
    summary = HistorySummary(
        records=sum(part.records for part in analysed),
        partitions=len(partitions),
        groups=sum(part.rows["groups"] for part in analysed),
        in_trouble=len({one.group for one in findings if one.severity == BAD}),
        findings=tuple(findings),
        since_ms=extent.first,
        until_ms=now if extent.records else -1,
        rows={name: sum(part.rows[name] for part in analysed) for name in TABLES}
        | {"findings": len(findings), "log_ends": sum(len(at) for at, _ in known.series.values())},
        left_out=sum(one.aborted + one.open for one in imported),
        report=f"{store.root}/report.html",
        seconds=time.monotonic() - began,
    )
    on_progress("writing the report")
    from kohort.spark.history.report.page import report_page  # imports matplotlib and Jinja2

    source_name = title or bootstrap_servers or ", ".join(files)
    (store / "report.html").write_text(report_page(store, summary, source_name))
    return summary


def _open(bootstrap_servers: str, options: Mapping[str, str]) -> Cluster:
    security = security_of({name.lower(): value for name, value in options.items()})
    return Cluster(bootstrap_servers, CLIENT_ID, security=security)


def _read_live(spark: Any, store: Store, source: Mapping[str, str], isolation: str) -> None:
    """Append the records that are new since the last run to records/live. Raises HistoryFailed."""
    register(spark)
    rows = (
        spark.readStream.format("kohort")
        .options(
            **{
                "kafka.isolation.level": isolation,
                "kafka.client.id": CLIENT_ID,
                "failOnDataLoss": "false",
                **source,
                "subscribe": OFFSETS_TOPIC,
                "startingOffsets": "earliest",
                "decode": "consumer_offsets",
            }
        )
        .load()
        .selectExpr("*", "CASE WHEN kind IN (0, 1) THEN 'commits' ELSE 'groups' END AS of", "log_partition AS `in`")
    )
    with timestamps_in_micros(spark):
        try:
            query = (
                rows.writeStream.format("parquet")
                .partitionBy("of", "in")
                .option("path", f"{store.root}/records/live")
                .option("checkpointLocation", f"{store.root}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        except Exception as error:
            raise HistoryFailed(f"reading {OFFSETS_TOPIC} failed: {cause(error)}") from error


def _live_files(spark: Any, store: Store) -> list[str]:
    """The files that Spark's log of its sink names; others come from batches that failed."""
    if not store.files("records/live"):
        return []
    found: list[str] = spark.read.parquet(f"{store.root}/records/live").inputFiles()
    return sorted(unquote(file) if file.startswith("file:") else file for file in found)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """The result of the analysis of a partition."""

    rows: dict[str, int]
    findings: list[Finding]
    records: int
    """The number of records in the log, each counted once."""


def _analyse_partition(store: Store, context: Context, work: tuple[int, Mapping[str, Sequence[str]]]) -> _Analysed:
    """Write all tables of one log partition, given its number and its files."""
    partition, files = work
    tables, findings = analyse(
        read_records(files["commits"], "commits"), read_records(files["groups"], "groups"), context
    )
    for name, table in tables.items():
        store.write(f"tables/{name}/part-{partition:05}.parquet", table)
    rows = {name: table.num_rows for name, table in tables.items()}
    return _Analysed(rows, findings, int(pc.sum(tables["records"].column("records")).as_py() or 0))
