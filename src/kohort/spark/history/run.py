"""The history of every group: the `__consumer_offsets` log of a cluster, or dumps of one, to tables and a report.

Two steps. First the log becomes typed columns, once: from a running cluster by a streaming query that ends where the
log ended when it began (`decode=consumer_offsets`, so the bytes are decoded where they are fetched), from dumps by one
task a file, which reads, decodes and writes by itself. Then each partition of the log is analysed by one task, because
everything of a group stands in one partition; Spark only says who does what.

A second run goes on with the first step where the last one ended (Spark's checkpoint; a note for each file), and makes
all tables anew, because what comes later changes what was meant before: a span ends, a step back turns out to be a
tooth. A record that was read twice counts once: it has its place in the log.

    from kohort.spark.history import history
    history(spark, output="s3a://lake/groups", bootstrap_servers="kafka:9092")
    history(spark, output="/tmp/groups", files=["/var/lib/kafka/data"], ends="ends.parquet")
"""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from kohort.client.cluster import Cluster
from kohort.spark.history import cluster as live
from kohort.spark.history.cluster import OFFSETS_TOPIC
from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.decoding.dumps import DumpError, Taken, inputs, take, topic_names
from kohort.spark.history.ends import Ends
from kohort.spark.history.report.findings import Finding, findings_table
from kohort.spark.history.report.incidents import Limits
from kohort.spark.history.store import Store, by_partition, filesystem, read_records
from kohort.spark.history.tables.analysis import TABLES, Context, analyse
from kohort.spark.history.tables.commits import milliseconds
from kohort.spark.options.source import security_of
from kohort.spark.runtime.session import register, timestamps_in_micros

INTERVALS_S = (1, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600)
MOST_INTERVALS = 120
CLIENT_ID = "kohort-history"


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """What a run has done."""

    records: int
    """Log records in the history, those of earlier runs included."""
    partitions: int
    """Partitions of the log that hold any."""
    groups: int
    in_trouble: int
    findings: tuple[Finding, ...]
    """The worst first."""
    since_ms: int
    until_ms: int
    """What the history spans; -1 where there is nothing."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    left_out: int = 0
    """Records of dumps that belong to transactions without an end, or to aborted ones."""
    report: str = ""
    seconds: float = 0.0


class HistoryFailed(RuntimeError):
    """The history could not be made; the message says why."""


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
    """Make or go on with the history in `output`, a directory that all executors see (a path, or an s3, gs or hdfs
    address).

    From a cluster (`bootstrap_servers`; `options` go to the source, such as kafka.security.protocol), or from `files`:
    Parquet with the columns of Spark's Kafka source, or directories of a broker's segments. `ends` names a file
    (Parquet or CSV) with topic, partition, at and end, for the lag of a dump. `isolation` is read_committed or
    read_uncommitted. `interval_s` is the width of the intervals of rates and lag; left out, it follows from the time
    that the history spans. Raises HistoryFailed, KafkaError, DumpError.
    """
    if (bootstrap_servers is None) == (not files):
        raise HistoryFailed("a history is made of a cluster (bootstrap_servers) or of files, one of the two")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise HistoryFailed(f"isolation is {isolation!r}; it takes read_committed or read_uncommitted")
    began = time.monotonic()
    store = Store(str(output))
    given = _given_ends(ends) if ends is not None else None
    taken: list[Taken] = []
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
        names = topic_names(list(files))
        taken = each(spark, inputs(list(files)), lambda one: take(store, one, isolation))
    parts = by_partition([*_live_files(spark, store), *store.files("records/files")])
    on_progress(f"looking through {len(parts)} partitions of the log")
    seen = _Extent.of(each(spark, list(parts.values()), _extent))
    if bootstrap_servers is None or not seen.records:
        now = max(seen.last, now if bootstrap_servers is not None else 0)
    edges = _edges(seen.first, now, interval_s)
    known = _kept_ends(store)
    if given is not None:
        known = live.merged(known, given)
    if bootstrap_servers is not None:
        on_progress("asking where the logs ended")
        with _open(bootstrap_servers, source) as cluster:
            names = live.topic_names(cluster)
            known = live.merged(known, live.ends_over_time(cluster, seen.places, edges, on_progress))
    context = Context(edges, now, known, names, limits or Limits())
    on_progress("analysing")
    work = [(number, of) for number, of in sorted(parts.items())]
    done = each(spark, work, lambda one: _analyse(store, one[0], one[1], context))
    told = sorted(
        (finding for part in done for finding in part.findings),
        key=lambda one: (one.severity != "bad", -one.weight, one.group),
    )
    store.write("tables/findings/part-00000.parquet", findings_table(told))
    store.write("tables/log_ends/part-00000.parquet", known.table())
    summary = HistorySummary(
        records=sum(part.records for part in done),
        partitions=len(parts),
        groups=sum(part.groups for part in done),
        in_trouble=len({one.group for one in told if one.severity == "bad"}),
        findings=tuple(told),
        since_ms=seen.first,
        until_ms=now if seen.records else -1,
        rows={name: sum(part.rows[name] for part in done) for name in TABLES}
        | {"findings": len(told), "log_ends": sum(len(at) for at, _ in known.series.values())},
        left_out=sum(one.aborted + one.open for one in taken),
        report=f"{store.root}/report.html",
        seconds=time.monotonic() - began,
    )
    on_progress("writing the report")
    from kohort.spark.history.report.page import report  # matplotlib: for this alone

    store.write_text("report.html", report(store, summary, title or bootstrap_servers or ", ".join(files)))
    return summary


def _open(bootstrap_servers: str, options: Mapping[str, str]) -> Cluster:
    security = security_of({name.lower(): value for name, value in options.items()})
    return Cluster(bootstrap_servers, CLIENT_ID, security=security)


# -- the first step


def _read_live(spark: Any, store: Store, source: Mapping[str, str], isolation: str) -> None:
    """What the log has gained since the last run, to records/live. Raises HistoryFailed."""
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
            raise HistoryFailed(f"reading {OFFSETS_TOPIC} failed: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("kohort.") and ": " in line]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Invalid)\b", line)]
    return next(iter([*ours[-1:], *raised[-1:], *lines[:1]]), type(error).__name__)


def _live_files(spark: Any, store: Store) -> list[str]:
    """The files that count: Spark's log of its sink says which, and its readers follow that."""
    if not store.files("records/live"):
        return []
    found: list[str] = spark.read.parquet(f"{store.root}/records/live").inputFiles()
    return sorted(found)


# -- Spark says who does what


def each(spark: Any, work: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
    """One task for each; what they return, in order. Raises DumpError or HistoryFailed."""
    if not work:
        return []
    pieces = [pickle.dumps(one) for one in work]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(do(pickle.loads(pieces[number])))
                yield pa.RecordBatch.from_pydict({"number": [number], "result": pa.array([result], pa.binary())})

    try:
        rows = spark.range(0, len(work), 1, len(work)).mapInArrow(run, "number long, result binary").collect()
    except Exception as error:
        text = str(error)
        if "DumpError" in text:
            raise DumpError(text.split("DumpError: ")[-1].splitlines()[0]) from None
        raise HistoryFailed(_cause(error)) from error
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]


# -- the second step


@dataclass(frozen=True, slots=True)
class _Extent:
    """What there is in the log, or in a part of it."""

    records: int
    """As they were read: one that came by two ways is two."""
    first: int
    last: int
    """Milliseconds; -1 where there is nothing."""
    places: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, parts: Sequence[_Extent]) -> _Extent:
        firsts = [part.first for part in parts if part.first >= 0]
        return cls(
            sum(part.records for part in parts),
            min(firsts, default=-1),
            max((part.last for part in parts), default=-1),
            frozenset().union(*(part.places for part in parts)) if parts else frozenset(),
        )


def _extent(files: Mapping[str, Sequence[str]]) -> _Extent:
    parts = []
    for of, ones in files.items():
        for file in ones:
            system, path = filesystem(file)
            places = ["commit_topic", "commit_partition"] if of == "commits" else []
            read = pq.read_table(
                path, filesystem=system, columns=["log_time", *places], read_dictionary=places[:1], partitioning=None
            )
            read = read.unify_dictionaries()
            at = milliseconds(read.column("log_time"))
            at = at[at >= 0]
            pairs = read.group_by(places).aggregate([]).to_pylist() if places else []
            found = frozenset((one["commit_topic"], one["commit_partition"]) for one in pairs if one["commit_topic"])
            first, last = (int(at.min()), int(at.max())) if len(at) else (-1, -1)
            parts.append(_Extent(read.num_rows, first, last, found))
    return _Extent.of(parts)


@dataclass(frozen=True, slots=True)
class _Analysed:
    rows: dict[str, int]
    findings: list[Finding]
    groups: int
    records: int
    """Of the log, each once."""


def _analyse(store: Store, partition: int, files: Mapping[str, Sequence[str]], context: Context) -> _Analysed:
    tables, told = analyse(read_records(files["commits"], "commits"), read_records(files["groups"], "groups"), context)
    for name, table in tables.items():
        store.write(f"tables/{name}/part-{partition:05}.parquet", table)
    rows = {name: table.num_rows for name, table in tables.items()}
    records = int(pc.sum(tables["records"].column("records")).as_py() or 0)
    return _Analysed(rows, told, tables["groups"].num_rows, records)


def _edges(first: int, last: int, interval_s: int | None) -> Numbers:
    """The edges of the intervals, in milliseconds: round ones, and the end."""
    if first < 0:
        return np.array([max(last, 0), max(last, 0) + 1], np.int64)
    span = max(last - first, 1)
    fitting = (width for width in INTERVALS_S if span / (width * 1000) <= MOST_INTERVALS)
    width = (interval_s or next(fitting, INTERVALS_S[-1])) * 1000
    edges = np.arange(first // width * width, last, width, dtype=np.int64)
    return np.append(edges, max(last, edges[-1] + 1))


def _given_ends(place: str) -> Ends:
    """Raises HistoryFailed."""
    try:
        return Ends.of(_read_ends(place))
    except ValueError as error:  # other columns, or columns of other types
        raise HistoryFailed(f"{place}: {error}") from None


def _read_ends(place: str) -> pa.Table:
    system, path = filesystem(place)
    try:
        with system.open_input_file(path) as file:
            read = pyarrow.csv.read_csv(file) if path.endswith(".csv") else pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise HistoryFailed(f"{place}: {error}") from None
    if "at" in read.column_names and pa.types.is_integer(read.schema.field("at").type):
        micros = pc.multiply(read.column("at"), 1000).cast(pa.timestamp("us", tz="UTC"))
        read = read.set_column(read.column_names.index("at"), "at", micros)
    return read


def _kept_ends(store: Store) -> Ends:
    """What earlier runs knew."""
    table = store.table("log_ends")
    return Ends.of(table) if table is not None else Ends({})
