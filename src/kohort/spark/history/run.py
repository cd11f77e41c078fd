"""The history of every group: from the `__consumer_offsets` log of a cluster, or dumps of it, to tables and a report.

First the log records become typed columns, up to the end that the log has when the run starts, or file by file of
dumps. Then partitions of the log are analysed by themselves: all records of a group are in one partition, so nothing is
shuffled. An engine does both: this process for small logs (`local_engine`), Spark for large ones (`spark_engine`). The
work and its result do not depend on the engine.

A second run continues the first step where the last run ended (Spark's checkpoint, or a note) and makes all tables
again, because later records change the meaning of earlier ones: a span ends, a step back turns out to be a tooth. A
record that is read twice counts once, by its offset in the log.

    from kohort.spark.history import history
    history(None, output="/tmp/groups", bootstrap_servers="kafka:9092")
    history(spark, output="s3a://lake/groups", files=["/var/lib/kafka/data"], ends="ends.parquet")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.client.cluster import Cluster
from kohort.spark.history import cluster as live
from kohort.spark.history.analysis import TABLES, Context, analyse
from kohort.spark.history.cluster import OFFSETS_TOPIC
from kohort.spark.history.coverage import Coverage
from kohort.spark.history.decoding.dumps import ImportedDump, about_records, find_dumps, import_dump, topic_names
from kohort.spark.history.ends import Ends, read_ends
from kohort.spark.history.extent import Extent, extent_of, interval_edges
from kohort.spark.history.journal import Journal, read_journal
from kohort.spark.history.limits import Limits
from kohort.spark.history.local_engine import LocalEngine
from kohort.spark.history.report.findings import BAD, Finding, findings_table, worst_first
from kohort.spark.history.report.journal_findings import of_stories
from kohort.spark.history.spark_engine import SparkEngine
from kohort.spark.history.store import (
    HOLDS,
    HistoryFailed,
    HistorySummary,
    Store,
    TooLarge,
    by_partition,
    part_name,
    read_records,
)
from kohort.spark.options.source import security_of

CLIENT_ID = "kohort-history"
_DEFAULTS = {"kafka.client.id": CLIENT_ID, "failOnDataLoss": "false"}
_ASKED = {"subscribe": OFFSETS_TOPIC, "startingOffsets": "earliest", "decode": "consumer_offsets"}
"""Options of the source, before and after those of the caller."""


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
    most_records: int | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> HistorySummary:
    """Make or extend the history in `output`, a directory that all executors see (a path, or s3, gs, hdfs).

    `spark` is a session, or None: then this process does the work, a million records in seconds; TooLarge is raised if
    there are more than `most_records`. Read a cluster (`bootstrap_servers`; `options` go to the source, such as
    kafka.security.protocol), or `files`: Parquet with the columns of Spark's Kafka source, or directories of a broker's
    segments. `ends` names a file (Parquet or CSV) with the columns topic, partition, at and end, for the lag of a dump.
    `isolation` is read_committed or read_uncommitted. `interval_s` is the width of the intervals of rates and lag; by
    default it depends on the length of the history. Raises HistoryFailed, KafkaError, DumpError.
    """
    if (bootstrap_servers is None) == (not files):
        raise HistoryFailed("a history needs a cluster (bootstrap_servers) or files, one of the two")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise HistoryFailed(f"isolation is {isolation!r}; it must be read_committed or read_uncommitted")
    began = time.monotonic()
    engine = LocalEngine(most_records) if spark is None else SparkEngine(spark)
    store = Store(str(output))
    known = _kept_ends(store)
    if ends is not None:
        known = known.extended(read_ends(ends))
    source = {"kafka.bootstrap.servers": bootstrap_servers or "", **(options or {})}
    journal = Journal.kept(store.table("stories"), "a dump has none")
    imported: list[ImportedDump] = []
    names: dict[bytes, str] = {}
    now = int(time.time() * 1000)
    if bootstrap_servers is not None:
        with _open(bootstrap_servers, source) as cluster:
            live.check_topic(cluster)
            store.keep_to(cluster.cluster_id())
            journal = journal.extended(read_journal(cluster))
        on_progress(f"reading {OFFSETS_TOPIC}")
        engine.read(store, _DEFAULTS | {"kafka.isolation.level": isolation, **source} | _ASKED)
    else:
        on_progress("decoding the files")
        names, dumps = topic_names(files), find_dumps(files)
        if spark is None and most_records is not None and about_records(dumps) > most_records:
            raise TooLarge(most_records)
        imported = engine.run(dumps, partial(import_dump, store, isolation=isolation))
    partitions = by_partition([*store.streamed("records/live"), *store.files("records/files")])
    on_progress(f"scanning {len(partitions)} partitions of the log")
    extents = engine.run(list(partitions.values()), extent_of)
    extent = Extent.of(extents)
    if spark is None and most_records is not None and extent.records > most_records:
        raise TooLarge(most_records)
    if bootstrap_servers is None or not extent.records:
        now = max(extent.last, now if bootstrap_servers is not None else 0)
    edges = interval_edges(extent.first, now, interval_s)
    existing = extent.places
    if bootstrap_servers is not None:
        on_progress("reading the end offsets of the topics")
        with _open(bootstrap_servers, source) as cluster:
            names = live.topic_names(cluster)
            known = known.extended(live.ends_over_time(cluster, existing, edges, on_progress))
        if topics := set(names.values()):
            existing = frozenset(place for place in existing if place[0] in topics)
    on_progress("analysing")
    context = Context(edges, now, known, names, limits or Limits(), journal.stories)
    records = {partition: one.records for partition, one in zip(partitions, extents, strict=True)}
    work = pieces(partitions, records, engine.records_at_once)
    analysed = engine.run(work, partial(_analyse, store, context))
    for name in TABLES:
        store.keep_parts(name, [first for first, _ in work])
    findings = _findings(analysed, journal, context.limits)
    store.write(f"tables/findings/{part_name(0)}", findings_table(findings))
    store.write(f"tables/log_ends/{part_name(0)}", known.table())
    store.write(f"tables/stories/{part_name(0)}", journal.table())
    summary = HistorySummary(
        records=sum(part.records for part in analysed),
        partitions=len(partitions),
        groups=sum(part.rows["groups"] for part in analysed),
        in_trouble=len({one.group for one in findings if one.severity == BAD}),
        findings=tuple(findings),
        since_ms=extent.first,
        until_ms=now if extent.records else -1,
        rows={name: sum(part.rows[name] for part in analysed) for name in TABLES}
        | {"findings": len(findings), "log_ends": sum(len(at) for at, _ in known.series.values())}
        | {"stories": journal.count},
        left_out=sum(one.aborted + one.open for one in imported),
        report=f"{store.root}/report.html",
        seconds=time.monotonic() - began,
        coverage=Coverage.of(
            [part.coverage for part in analysed],
            until_ms=now,
            journal=(journal.count, journal.since_ms, journal.why_not),
            partitions=len(existing),
            ends=len(existing & known.series.keys()),
        ),
        engine="local" if spark is None else "spark",
    )
    on_progress("writing the report")
    from kohort.spark.history.report.page import report_page  # imports matplotlib and Jinja2

    source_name = title or bootstrap_servers or ", ".join(files)
    (store / "report.html").write_text(report_page(store, summary, source_name))
    return summary


def _kept_ends(store: Store) -> Ends:
    """The log ends that earlier runs knew."""
    kept = store.table("log_ends")
    return Ends.of(kept) if kept is not None else Ends({})


def _open(bootstrap_servers: str, options: Mapping[str, str]) -> Cluster:
    security = security_of({name.lower(): value for name, value in options.items()})
    return Cluster(bootstrap_servers, CLIENT_ID, security=security)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """The result of the analysis of some partitions."""

    rows: dict[str, int]
    findings: list[Finding]
    records: int
    """The number of records in the log, each counted once."""
    groups: frozenset[str]
    coverage: pa.Table


Piece = tuple[int, dict[str, list[str]]]
"""Log partitions that are analysed together: the first one, and the files of all."""


def pieces(
    partitions: Mapping[int, Mapping[str, Sequence[str]]], records: Mapping[int, int], at_once: int
) -> list[Piece]:
    """Partitions with their files, as pieces of at most `at_once` records, or of a single partition."""
    made: list[Piece] = []
    size = 0
    for partition in sorted(partitions):
        size += records[partition]
        if not made or size > at_once:
            made.append((partition, {name: [] for name in HOLDS}))
            size = records[partition]
        for name, files in partitions[partition].items():
            made[-1][1][name].extend(files)
    return made or [(0, {name: [] for name in HOLDS})]  # an empty log has all tables, without rows


def _analyse(store: Store, context: Context, piece: Piece) -> _Analysed:
    """Write all tables of a piece."""
    first, files = piece
    tables, findings = analyse(
        read_records(files["commits"], "commits"), read_records(files["groups"], "groups"), context
    )
    for name, table in tables.items():
        store.write(f"tables/{name}/{part_name(first)}", table)
    rows = {name: table.num_rows for name, table in tables.items()}
    records = int(pc.sum(tables["records"].column("records")).as_py() or 0)
    groups = frozenset(tables["groups"].column("group").to_pylist())
    return _Analysed(rows, findings, records, groups, tables["coverage"])


def _findings(analysed: Sequence[_Analysed], journal: Journal, limits: Limits) -> list[Finding]:
    """Those of all partitions, and those of groups that only the journal has."""
    known = {group for part in analysed for group in part.groups}
    elsewhere = {group: stories for group, stories in journal.stories.items() if group not in known}
    return worst_first([*(one for part in analysed for one in part.findings), *of_stories(elsewhere, limits)])
