"""The group's side of a streaming query: finished offsets, who finished them, and when that may be said.

A commit follows Spark's checkpoint and never leads it. What fails is tried again with the next batch; the query goes
on, for the checkpoint and not the group decides where it does. Only an answer that will not change stops it.

The last batch before a stop is the hard one. Spark ends the planning process with SIGTERM and calls nothing; and a
batch that has been planned may or may not have been finished by then. Only the checkpoint knows, and no source is told
where it is. With the option checkpointLocation this one is: then the signal, or the end of the driver, makes the
process look there and commit what is finished before it goes. Without it, the next start commits it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from types import FrameType

from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.options.source import Options
from kohort.spark.source.checkpoint import is_checkpoint, is_finished, last_finished, query_id
from kohort.spark.source.identity import ReplyTo, Tidings
from kohort.spark.source.plan import Json, Positions, from_json, open_cluster
from kohort.wire.errors import ErrorCode

COMMIT_MS = 10_000
"""How long a commit may hold up the planning of the next batch."""
COMMIT_RETRY_S = Backoff(1.0, 60.0, jitter=0)
"""How long nothing is committed after a failure, and after many."""
LAST_COMMIT_MS = 5_000
"""How long the last commit may take: Spark does not wait for it, but the machine may be going down."""

PLANNING_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"

REFUSED = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Answers to a commit that asking again does not change, and that a person must see."""


class Commits:
    """What one planning process commits to its group, over a connection of its own: its time-outs are shorter."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._committed: Positions = {}
        self._failures = 0
        """How many commits have failed since the last that did not."""
        self._again_at = 0.0
        self._warned: set[str] = set()
        self._planned: Json | None = None
        """The end of the newest batch, which may not be finished."""
        self._tidings: Tidings | None = None

    def plan(self, end: Json) -> None:
        """A batch that ends here will be run."""
        self._planned = end

    def reply_to(self) -> ReplyTo | None:
        """Where tasks tell which query and batch they belong to."""
        if self._options.group_id is None:
            return None
        if self._tidings is None:
            self._tidings = Tidings(self._options.bootstrap_servers)
        return self._tidings.reply_to

    def commit(self, positions: Positions) -> None:
        """Commit the end of a finished batch, once. Raises KafkaError only where that will never work."""
        if self._options.group_id is None or time.monotonic() < self._again_at:
            return
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        if not changed:
            return
        if self._cluster is None:
            self._cluster = _open(self._options, COMMIT_MS)
            self.look_for_checkpoint()
        try:
            self._look_around(_commit(self._cluster, self._options.group_id, changed, self.holder()))
        except KafkaError as error:
            if error.code in REFUSED:
                raise
            self._failures += 1
            self._again_at = time.monotonic() + COMMIT_RETRY_S.pause(self._failures)
            self._warn(f"could not commit to the group {self._options.group_id}: {error}{_advice(error)}")
            return
        self._failures = 0
        self._committed.update(changed)

    def finish(self) -> None:
        """Commit the newest batch if the checkpoint says that it is finished. Needs the option checkpointLocation."""
        place, end = self._options.checkpoint, self._planned
        if self._options.group_id is None or end is None or from_json(end).items() <= self._committed.items():
            return
        if place is None:
            self._warn(
                f"stopped; the last batch is not committed to the group {self._options.group_id}, since only the "
                "checkpoint knows whether it is finished. The next start commits it; with the writer's "
                "checkpointLocation as an option of the source, the stop does"
            )
            return
        self.look_for_checkpoint()
        try:
            if not is_finished(ArrowDirectory(place), end):
                return
            # Another connection: a signal may have come in the middle of an answer on the first.
            with _open(self._options, LAST_COMMIT_MS) as cluster:
                _commit(cluster, self._options.group_id, from_json(end), self.holder())
        except (KafkaError, OSError, ValueError) as error:
            self._warn(f"the last finished batch is not committed to the group {self._options.group_id}: {error}")
        else:
            self._planned = None

    def look_for_checkpoint(self) -> None:
        """Warn where the option checkpointLocation is not the place of a checkpoint, when there must be one: without
        it no stop is ever committed, and nothing else would say so."""
        place = self._options.checkpoint
        if place is None:
            return
        try:
            there = is_checkpoint(ArrowDirectory(place))
        except (OSError, ValueError) as error:
            self._warn(f"checkpointLocation {place} cannot be read on {socket.gethostname()}: {error}")
            return
        if not there:
            self._warn(
                f"checkpointLocation {place}: on {socket.gethostname()} there is no checkpoint, neither metadata nor "
                "offsets, so that a stop of the query will not be committed. It has to be the writer's; a path without "
                "a scheme (hdfs:, s3a:, …) is one of this machine"
            )

    def finish_when_ended(self) -> None:
        """From now on SIGTERM, by which Spark ends a planning process, finishes first. Nowhere else: a no-op."""
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if (
            self._options.group_id is None
            or spec is None
            or spec.name != PLANNING_PROCESS
            or threading.current_thread() is not threading.main_thread()
        ):
            return

        def ended(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
            signal.alarm(3 * LAST_COMMIT_MS // 1000)  # a file system that does not answer ends the process
            try:
                self.finish()
            finally:
                os._exit(0)

        signal.signal(signal.SIGTERM, ended)

    def close(self) -> None:
        if self._tidings is not None:
            self._tidings.close()
        if self._cluster is not None:
            self._cluster.close()

    def holder(self) -> GroupReader:
        """Who commits: what the tasks have told, what the checkpoint says, and where this is."""
        told = (self._tidings.hear() if self._tidings is not None else None) or GroupReader()
        if self._options.checkpoint is not None:
            query, batch = _query_and_batch(self._options.checkpoint)
            told = replace(told, query=query or told.query, batch=told.batch if batch is None else batch)
        return replace(told, host=socket.gethostname(), process=os.getpid())

    def _look_around(self, there: dict[TopicPartition, Committed]) -> None:
        """Warn where the group's offsets are not what this query has committed: somebody else uses the group."""
        for (topic, partition), entry in sorted(there.items()):
            mine = self._committed.get((topic, partition))
            if mine is not None and mine != entry.offset:
                other = group_reader_of(entry.metadata)
                if other is not None and other.same_run(self.holder()):
                    return  # another source of this query
                who = f"by {other}" if other is not None else "by a program that does not say who it is"
                self._warn(
                    f"somebody else commits to the group {self._options.group_id}: {topic}-{partition} was set to "
                    f"{entry.offset} {who}, this query had committed {mine}. One query a group, or groupMode=member"
                )
                return

    def _warn(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            print(f"kohort: {what}", file=sys.stderr, flush=True)


def _open(options: Options, timeout_ms: int) -> Cluster:
    limited = min(timeout_ms, options.api_timeout_ms)
    return open_cluster(replace(options, api_timeout_ms=limited, request_timeout_ms=limited))


def _commit(
    cluster: Cluster, group_id: str, positions: Positions, holder: GroupReader
) -> dict[TopicPartition, Committed]:
    """Commit what the group does not have already. Returns what it had. Raises KafkaError."""
    there = cluster.committed(group_id, positions)
    if any(place not in there or there[place].offset != offset for place, offset in positions.items()):
        metadata = holder.metadata()
        cluster.commit(group_id, {place: Committed(offset, -1, metadata) for place, offset in positions.items()})
    return there


def _query_and_batch(place: str) -> tuple[str | None, int | None]:
    """The query's id and its last finished batch, as far as its checkpoint can be read."""
    try:
        directory = ArrowDirectory(place)
        return query_id(directory), last_finished(directory)
    except (OSError, ValueError, KeyError):
        return None, None


def _advice(error: KafkaError) -> str:
    if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
        return " Its offsets stay behind until they have left; groupMode=member shares the group with them"
    return ""
