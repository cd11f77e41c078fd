"""From topics to partitioned Parquet, exactly once, in a consumer group.

Spark's file sink and its checkpoint make the rows exactly-once over restarts; the group follows the checkpoint and
never leads it. When a run ends, the group is brought up to the last finished batch of the checkpoint, so that any
Kafka tool sees lag 0 where there is none.

Which files count is in the sink's own log, `_spark_metadata`, which Spark's readers follow. A run that is killed in the
middle of a batch leaves files that are not in it; a reader that takes every file in the directory would see them.

On a cluster, `ingest` is called by a job of a few lines, with the session that spark-submit made and with places that
all executors see:

    from pyspark.sql import SparkSession
    from kohort.spark.ingest import ingest

    spark = SparkSession.builder.getOrCreate()
    ingest(spark, bootstrap_servers="kafka:9092", topics=["orders"], output="s3a://lake/orders", group_id="lake")

    $ venv-pack -o env.tar.gz          # or conda-pack: kohort and what it needs, for the executors' machines
    $ spark-submit --archives env.tar.gz#env --conf spark.pyspark.python=env/bin/python job.py
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.groups import Committed
from kohort.client.holders import Holder
from kohort.client.metadata import TopicPartition
from kohort.client.security import Security
from kohort.spark.checkpoint import finished, query_and_batch
from kohort.spark.options import security_of

POLL_S = 0.2
RECONCILE_MS = 10_000


@dataclass(frozen=True, slots=True)
class IngestProgress:
    batch: int
    rows: int
    """Rows of this run so far."""
    lag: int
    """Offsets between the last batch's end and the ends of the logs, as they were then."""


@dataclass(frozen=True, slots=True)
class IngestSummary:
    rows: int
    batches: int
    seconds: float
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Where the query has got to, after its checkpoint."""
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets; empty without a group, or when it could not be asked."""


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
    interval_s: float = 10.0,
    partition_by: Sequence[str] = ("topic", "date"),
    options: dict[str, str] | None = None,
    on_progress: Callable[[IngestProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> IngestSummary:
    """Read topics into Parquet files under `output`, partitioned by `partition_by` (of topic, date, hour, partition).

    Starts at the checkpoint; without one at the group's committed offsets, else at the earliest. Ends when everything
    that was there at the start is written (`available_now`), or when `stop` says so, looking every `interval_s`
    seconds for more. `output` and `checkpoint` are paths or addresses that Spark knows; `checkpoint` is
    `output`/_checkpoint when left out. `options` go to the source as they are. Raises IngestFailed.
    """
    checkpoint = checkpoint or f"{output}/_checkpoint"
    source = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": ",".join(topics),
        **({"group.id": group_id} if group_id else {"startingOffsets": "earliest"}),
        **({"maxOffsetsPerTrigger": str(max_offsets_per_trigger)} if max_offsets_per_trigger else {}),
        **(options or {}),
    }
    rows = (
        spark.readStream.format("kohort")
        .options(**source)
        .load()
        .selectExpr("*", "to_date(timestamp) AS date", "hour(timestamp) AS hour")
    )
    rows = rows.drop(*({"date", "hour"} - set(partition_by)))
    writer = (
        rows.writeStream.format("parquet")
        .partitionBy(*partition_by)
        .option("path", str(output))
        .option("checkpointLocation", str(checkpoint))
    )
    writer = (
        writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=f"{interval_s} seconds")
    )
    began = time.monotonic()
    follower = _Follower(on_progress)
    try:
        query = writer.start()
    except Exception as error:
        raise IngestFailed(_cause(error)) from error
    try:
        while not query.awaitTermination(POLL_S):
            follower.follow(query)
            if stop():
                break
    except Exception as error:
        raise IngestFailed(_cause(error)) from error
    finally:
        query.stop()
        follower.follow(query)
        # After a failure too: the batches before it are finished.
        positions = finished(checkpoint) or {}
        committed = (
            _reconcile(bootstrap_servers, group_id, positions, checkpoint, security_of(source)) if group_id else {}
        )
    return IngestSummary(follower.rows, len(follower.batches), time.monotonic() - began, positions, committed)


def _reconcile(
    bootstrap_servers: str,
    group_id: str,
    positions: dict[TopicPartition, int],
    checkpoint: str | Path,
    security: Security,
) -> dict[TopicPartition, int]:
    """Bring the group up to the checkpoint: the second line, for a run whose last commit did not happen.

    The rows are written, so a cluster that cannot be reached or a group that has members is only a warning.
    """
    try:
        with Cluster(bootstrap_servers, "kohort-ingest", api_timeout_ms=RECONCILE_MS, security=security) as cluster:
            committed = cluster.committed(group_id)
            query, batch = query_and_batch(checkpoint)
            metadata = Holder(query=query, batch=batch, host=socket.gethostname()).metadata()
            behind = {
                place: Committed(offset, -1, metadata)
                for place, offset in positions.items()
                if place not in committed or committed[place].offset < offset
            }
            if behind:
                cluster.commit(group_id, behind)
            return {place: entry.offset for place, entry in (committed | behind).items()}
    except KafkaError as error:
        print(f"kohort: the group {group_id} does not follow the checkpoint: {error}", file=sys.stderr)
        return {}


class _Follower:
    """Adds up a query's progress reports, each batch once."""

    def __init__(self, on_progress: Callable[[IngestProgress], None] | None) -> None:
        self.rows = 0
        self.batches: set[int] = set()
        self._on_progress = on_progress

    def follow(self, query: Any) -> None:
        for report in query.recentProgress:
            if report.batchId in self.batches or not report.numInputRows:
                continue
            self.batches.add(report.batchId)
            self.rows += report.numInputRows
            if self._on_progress is not None:
                self._on_progress(IngestProgress(report.batchId, self.rows, _lag(report)))


def _lag(report: Any) -> int:
    lag = 0
    for source in report.sources:
        if source.latestOffset and source.endOffset:
            latest, end = json.loads(source.latestOffset) or {}, json.loads(source.endOffset) or {}
            lag += sum(
                max(offset - end.get(topic, {}).get(partition, offset), 0)
                for topic, partitions in latest.items()
                for partition, offset in partitions.items()
            )
    return lag


def _cause(error: Exception) -> str:
    """The line of Spark's long message that says what happened: the innermost of ours, else the first that says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("kohort.") and ": " in line]
    javas = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return next(iter(ours[-1:] or javas or lines), type(error).__name__)
