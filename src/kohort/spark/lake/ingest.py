"""Writes topics to a lake, exactly once, in a consumer group.

A streaming query writes batches to a sink (`tables.py`), which takes each batch once although Spark repeats the last
one after a crash. `row_shape.py` says what the records become. The group's offsets follow the checkpoint and never get
ahead of it. A run ends with a commit of the checkpoint's last finished batch, so every Kafka tool shows the true lag.

On a cluster, spark-submit runs the command itself (`kohort pipeline job`), or a job of a few lines calls `ingest` with
the session of spark-submit and with addresses that all executors can reach:

    from pyspark.sql import SparkSession
    from kohort.spark import ingest

    spark = SparkSession.builder.getOrCreate()
    ingest(spark, bootstrap_servers="kafka:9092", topics=["orders"], output="s3a://lake/orders", group_id="lake")

docs/how-to/spark-clusters.md describes how to install kohort on the executors.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition
from kohort.client.security.security import Security
from kohort.spark.files.hadoop import HadoopDirectory
from kohort.spark.lake import compaction, ingest_settings
from kohort.spark.lake.compaction import Compacted
from kohort.spark.lake.ingest_settings import Kept
from kohort.spark.lake.json_schema import Type, extended, infer
from kohort.spark.lake.lake import Written
from kohort.spark.lake.locks import STALE_S
from kohort.spark.lake.row_shape import JsonSettings, JsonShape, RawShape, RowShape, Typing
from kohort.spark.lake.sample import sample
from kohort.spark.lake.tables import Sink, TableFormat, check_format, parquet_directories, sink
from kohort.spark.options.source import security_of
from kohort.spark.runtime.failures import cause, warn
from kohort.spark.runtime.session import register, timestamps_in_micros
from kohort.spark.source.checkpoint import finished, last_finished, last_planned, query_id

POLL_S = 0.2
RECONCILE_MS = 10_000
COMPACT_EVERY_S = 600.0
"""How often a continuous run compacts."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """The state after a batch. Rows, dead letters, files and bytes are the totals of this run so far."""

    batch: int
    rows: int
    lag: int | None
    """Offsets between the batch's end and the ends of the logs at that time. None: the ends are not known, as for a
    batch of a member (groupMode) that a restart repeats."""
    dead_letters: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Since the start of the query."""
    rows_per_second: float = 0.0
    """Of the last batch."""


@dataclass(frozen=True, slots=True)
class IngestSummary:
    rows: int
    batches: int
    seconds: float
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """The position of the query, according to its checkpoint."""
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets; empty without a group, or if the request failed."""
    dead_letters: int = 0
    files: int = 0
    bytes: int = 0
    """Written by this run; 0 for Delta and Iceberg, which keep their own count."""
    compacted: Compacted | None = None


@dataclass(frozen=True, slots=True)
class Json:
    """Values are JSON objects, and their fields become columns (docs/how-to/ingest.md).

    `schema` is a Spark schema, as DDL (`id BIGINT, at TIMESTAMP`) or in JSON. Without one, the checkpoint's schema is
    used; if it has none, the schema is inferred from `sample_size` records. `refresh` adds new fields of such a sample.
    With `typing` strict, a value with a field of another type becomes a dead letter; with permissive, the field becomes
    null and `_raw` holds the whole value. `keep_rest` keeps fields outside of the schema in `_rest`, as JSON.
    `keep_value` also keeps the value's bytes.
    """

    schema: str | None = None
    typing: Typing = "strict"
    keep_rest: bool = True
    keep_value: bool = False
    sample_size: int = 10_000
    refresh: bool = False


class IngestFailed(RuntimeError):
    """The query ended with an error; the message is Spark's."""


def ingest(
    spark: Any,
    *,
    bootstrap_servers: str,
    topics: Sequence[str],
    output: str | Path,
    checkpoint: str | Path | None = None,
    group_id: str | None = None,
    max_offsets_per_trigger: int | None = None,
    available_now: bool = True,
    interval_s: float = 1.0,
    partition_by: Sequence[str] = ("topic", "date"),
    values: Json | None = None,
    table_format: TableFormat = "parquet",
    dead_letters: str | Path | None = None,
    compact_to: int | None = None,
    options: dict[str, str] | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> IngestSummary:
    """Write topics to a lake, with columns of the record and, given `values`, of its JSON value.

    Starts where the checkpoint ends; without a checkpoint, at the group's committed offsets, or else at the earliest
    records. With `available_now`, ends when everything that existed at the start is written. Otherwise polls for more
    records every `interval_s` seconds, until `stop` returns True. `output`, `checkpoint` and `dead_letters` are paths
    or addresses that Spark knows (with Iceberg, `output` and `dead_letters` are names of tables). The defaults are
    `output`/_checkpoint and `output`/_dead_letters. With `compact_to`, small files are merged into files of about that
    many bytes, at the end and every ten minutes of a continuous run. `options` go to the source. Raises IngestFailed.
    """
    source = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(topics),
        **({"group.id": group_id} if group_id else {"startingOffsets": "earliest"}),
        **({"maxOffsetsPerTrigger": str(max_offsets_per_trigger)} if max_offsets_per_trigger else {}),
        **(options or {}),
    }
    began = time.monotonic()
    at_end = ExitStack()
    try:
        register(spark)
        check_format(spark, table_format)
        where = _checkpoint(spark, checkpoint, output, table_format)
        headers = source.get("includeHeaders", "false").lower() == "true"
        dead = str(dead_letters) if dead_letters is not None else None
        compacting = _Compacting(spark, str(output), table_format, dead, compact_to)

        def make_sink(writer: str) -> Sink:
            return sink(spark, table_format, str(output), dead, writer, partition_by)

        def inferred(size: int) -> Type | None:
            with Cluster(source["kafka.bootstrap.servers"], "kohort-ingest", security=security_of(source)) as cluster:
                return infer(sample(cluster, topics, size))

        batches = at_end.enter_context(closing(_Batches(where, make_sink, headers)))
        batches.recover()  # makes this run the only writer, before anything else is written
        batches.kept = _settings(where, values, partition_by, inferred)
        compacting.recover()
        if group_id:
            source.setdefault("checkpointLocation", str(where))  # lets the source commit at a stop
        frame = spark.readStream.format("kohort").options(**source).load()
        writer = frame.writeStream.foreachBatch(batches.write).option("checkpointLocation", str(where))
        once = {"availableNow": True} if available_now else {"processingTime": f"{interval_s} seconds"}
        follower = _Follower(batches, on_progress, began)
        query = writer.trigger(**once).start()
    except Exception as error:
        at_end.close()
        raise IngestFailed(cause(error)) from error
    try:
        while not query.awaitTermination(POLL_S):
            follower.follow(query)
            if stop():
                break
            compacting.if_due(stop)
    except Exception as error:
        raise IngestFailed(cause(batches.failure or error)) from error
    finally:
        query.stop()
        at_end.close()
        follower.follow(query)
        # Commit after a failure, too: the batches before it are finished.
        positions = finished(where) or {}
        committed = _reconcile(bootstrap_servers, group_id, positions, where, security_of(source)) if group_id else {}
    compacted = None if stop() else compacting.now(stop)
    return dataclasses.replace(follower.summary(last_finished(where), positions, committed), compacted=compacted)


def _checkpoint(
    spark: Any, checkpoint: str | Path | None, output: str | Path, table_format: TableFormat
) -> HadoopDirectory:
    if checkpoint is None:
        if table_format == "iceberg":
            raise ValueError("an Iceberg table has no directory for the checkpoint: it must be given")
        return HadoopDirectory(spark, output) / "_checkpoint"
    return HadoopDirectory(spark, checkpoint)


def _settings(
    checkpoint: HadoopDirectory, values: Json | None, partition_by: Sequence[str], found: Callable[[int], Type | None]
) -> Kept:
    """How values are read, in new batches and in a batch that must be repeated."""
    kept = ingest_settings.load(checkpoint, partition_by)
    settings = _wanted(values, kept.latest, found) if values is not None else None
    planned = last_planned(checkpoint)
    then = kept.then(settings, 0 if planned is None else planned + 1)
    if then is not kept:
        ingest_settings.save(checkpoint, then)
    return then


def _wanted(values: Json, known: JsonSettings | None, found: Callable[[int], Type | None]) -> JsonSettings:
    schema: Type | None = known.schema if known is not None else None
    if values.schema is not None:
        schema = parse_schema(values.schema)
    elif known is None or values.refresh:
        new = found(values.sample_size)
        schema = extended(schema, new) if schema is not None and new is not None else schema or new
    if schema is None:
        raise ValueError("the topics have no JSON object to infer a schema from; give a schema")
    return JsonSettings(schema, values.typing, values.keep_rest, values.keep_value)


def parse_schema(text: str) -> Type:
    """A Spark schema's JSON form, from itself or from DDL. Needs a running session. Raises ValueError."""
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
        if not isinstance(schema, StructType) or not schema.fields:
            raise ValueError("it has no fields")
        return schema.toNullable().jsonValue()
    except Exception as error:
        raise ValueError(f"the schema is neither Spark's DDL nor its JSON: {cause(error)}") from None


@dataclass
class _Batches:
    """Spark calls `write` with each batch: it looks up the batch's settings, writes the batch and keeps the result."""

    checkpoint: HadoopDirectory
    make_sink: Callable[[str], Sink]
    headers: bool
    kept: Kept = field(init=False)
    """The settings; set before the first batch."""
    written: dict[int, Written] = field(default_factory=dict)
    failure: Exception | None = None
    """The error of the last batch; Spark wraps it in a message of many lines."""
    _sink: Sink | None = None

    def recover(self) -> None:
        writer = query_id(self.checkpoint)
        made = self.make_sink(writer or "new")  # for a new query this only checks the output
        if writer is not None:
            self._sink = made
            made.recover()

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def write(self, frame: Any, batch: int) -> None:
        try:
            if self._sink is None:
                self._sink = self.make_sink(query_id(self.checkpoint) or "new")
            settings, partition_by = self.kept.of(batch), self.kept.partition_by
            shape: RowShape = RawShape(partition_by)
            if settings is not None:
                shape = JsonShape(settings, partition_by, headers=self.headers)
            with timestamps_in_micros(frame.sparkSession):
                self.written[batch] = self._sink.write(batch, frame, shape)
        except Exception as error:
            self.failure = error
            raise


def _reconcile(
    bootstrap_servers: str,
    group_id: str,
    positions: dict[TopicPartition, int],
    checkpoint: HadoopDirectory,
    security: Security,
) -> dict[TopicPartition, int]:
    """Commit the checkpoint's positions to the group, in case the run's last commit did not happen.

    The rows are written, so an unreachable cluster or a group with members causes only a warning.
    """
    try:
        with Cluster(bootstrap_servers, "kohort-ingest", api_timeout_ms=RECONCILE_MS, security=security) as cluster:
            committed = cluster.committed(group_id)
            holder = GroupReader(query=query_id(checkpoint), batch=last_finished(checkpoint), host=socket.gethostname())
            behind = {
                place: Committed(offset, -1, holder.metadata())
                for place, offset in positions.items()
                if place not in committed or committed[place].offset < offset
            }
            if behind:
                cluster.commit(group_id, behind)
            return {place: entry.offset for place, entry in (committed | behind).items()}
    except KafkaError as error:
        warn(f"the group {group_id} does not follow the checkpoint: {error}")
        return {}


@dataclass
class _Compacting:
    """Compaction during a run. If it fails, the run continues, and the next compaction tries again."""

    spark: Any
    output: str
    table_format: TableFormat
    dead_letters: str | None
    target: int | None
    _due: float = field(default_factory=lambda: time.monotonic() + COMPACT_EVERY_S)
    _done: Compacted = field(default_factory=Compacted)
    _left: list[HadoopDirectory] = field(default_factory=list)
    """Tables whose lock another compaction seems to hold."""

    def recover(self) -> None:
        """Finish an interrupted compaction: until then readers may miss rows."""
        if self.table_format == "parquet":
            self._left = list(parquet_directories(self.spark, self.output, self.dead_letters))
            self._recover_left()

    def _recover_left(self) -> None:
        self._left = [table for table in self._left if not compaction.recover(table)]
        self._again = time.monotonic() + STALE_S

    def if_due(self, stop: Callable[[], bool]) -> None:
        if self._left and time.monotonic() >= self._again:
            try:
                self._recover_left()
            except Exception as error:
                warn(f"cannot finish an interrupted compaction: {cause(error)}")
        if time.monotonic() >= self._due:
            self.now(stop)
            self._due = time.monotonic() + COMPACT_EVERY_S

    def now(self, stop: Callable[[], bool]) -> Compacted | None:
        """Compact, if that was requested. Returns the totals of this run."""
        if self.target is None:
            return None
        form, dead = self.table_format, self.dead_letters
        try:
            self._done += compaction.compact(
                self.spark, self.output, table_format=form, dead_letters=dead, target_bytes=self.target, stop=stop
            )
        except Exception as error:
            warn(f"the rows are written, but not compacted: {cause(error)}")
        return self._done


@dataclass
class _Follower:
    """Adds up the batches that the query reports, each once."""

    batches: _Batches
    on_progress: Callable[[IngestProgress], None] | None
    began: float
    _seen: dict[int, Written] = field(default_factory=dict)

    def follow(self, query: Any) -> None:
        for report in query.recentProgress:
            written = self.batches.written.get(report.batchId)
            if written is None or report.batchId in self._seen:
                continue
            if written.rows is None:  # one action, so Spark counted each record once
                written = dataclasses.replace(written, rows=report.numInputRows)
            self._seen[report.batchId] = written
            if self.on_progress is not None:
                took = report.durationMs.get("triggerExecution", 0) / 1000
                rate = ((written.rows or 0) + written.dead_letters) / took if took else 0.0
                rows, dead, files, size = self._sums(self._seen.values())
                seconds = time.monotonic() - self.began
                self.on_progress(IngestProgress(report.batchId, rows, lag_of(report), dead, files, size, seconds, rate))

    def summary(
        self, last: int | None, positions: dict[TopicPartition, int], committed: dict[TopicPartition, int]
    ) -> IngestSummary:
        """The summary of the batches up to the last finished one in the checkpoint."""
        all_written = self.batches.written | self._seen
        done = [written for batch, written in all_written.items() if last is not None and batch <= last]
        rows, dead, files, size = self._sums(done)
        return IngestSummary(rows, len(done), time.monotonic() - self.began, positions, committed, dead, files, size)

    @staticmethod
    def _sums(written: Iterable[Written]) -> tuple[int, int, int, int]:
        """Rows, dead letters, files, bytes."""
        all_of = list(written)
        rows, dead_letters = sum(one.rows or 0 for one in all_of), sum(one.dead_letters for one in all_of)
        return rows, dead_letters, sum(one.files or 0 for one in all_of), sum(one.bytes or 0 for one in all_of)


def lag_of(report: Any) -> int | None:
    """The lag after a batch that Spark reports; None if a source has not said where its logs end."""
    lag = 0
    for source in report.sources:
        latest, end = (json.loads(text or "null") or {} for text in (source.latestOffset, source.endOffset))
        if end and not latest:
            return None
        lag += sum(
            max(offset - end.get(topic, {}).get(partition, offset), 0)
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
    return lag
