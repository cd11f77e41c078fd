"""Commits of a streaming query to its group: which offsets, under whose name, and when.

A commit follows Spark's checkpoint, which decides where the query resumes, and never gets ahead of it. So a failed
commit is repeated with the next batch. Only an error that a repetition cannot change stops the query.

The last batch before a stop needs the option checkpointLocation, because only the checkpoint tells whether that batch
is finished, and Spark gives its location to no source. Spark ends the planning process with SIGTERM; at SIGTERM or at
the end of the driver the process then commits the batch if it is finished. Without the option, the next start does.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.options.source import Options
from kohort.spark.runtime.failures import warn
from kohort.spark.source.checkpoint import is_checkpoint, is_finished, last_finished, query_id
from kohort.spark.source.identity import IdentityReceiver, ReplyTo
from kohort.spark.source.planner import open_cluster
from kohort.spark.source.positions import Json, Positions, from_json
from kohort.wire.errors import ErrorCode

COMMIT_MS = 10_000
"""The planning of the next batch waits for a commit no longer than this."""
COMMIT_RETRY_S = Backoff(1.0, 60.0, jitter=0)
"""The pauses after failed commits."""
LAST_COMMIT_MS = 5_000
"""The limit of the last commit. Spark does not wait for it, but the machine may be shutting down."""

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
"""Errors of a commit that a repetition does not change and a person must see."""


class Commits:
    """The commits of one planning process. They use a connection of their own, with shorter time-outs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._committed: Positions = {}
        self._failures = 0
        """Failed commits since the last successful one."""
        self._retry_at = 0.0
        self._warned: set[str] = set()
        self.planned: Json | None = None
        """The end of the newest batch, which may not be finished."""
        self._identity: IdentityReceiver | None = None

    def reply_to(self) -> ReplyTo | None:
        """The address to which tasks report their query and batch."""
        if self._options.group_id is None:
            return None
        if self._identity is None:
            self._identity = IdentityReceiver(self._options.bootstrap_servers)
        return self._identity.reply_to

    def commit(self, positions: Positions) -> None:
        """Commit the end of a finished batch, once. Raises KafkaError only if a repetition cannot succeed."""
        if self._options.group_id is None or time.monotonic() < self._retry_at:
            return
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        if not changed:
            return
        if self._cluster is None:
            self._cluster = _open(self._options, COMMIT_MS)
            self.check_checkpoint_location()
        try:
            self._check_others(_commit(self._cluster, self._options.group_id, changed, self.holder()))
        except KafkaError as error:
            if error.code in REFUSED:
                raise
            self._failures += 1
            self._retry_at = time.monotonic() + COMMIT_RETRY_S.pause(self._failures)
            advice = ""
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                advice = " The query's commits succeed once they have left; groupMode=member shares the group with them"
            self._warn(f"could not commit to the group {self._options.group_id}: {error}{advice}")
            return
        self._failures = 0
        self._committed.update(changed)

    def finish(self) -> None:
        """Commit the newest batch if the checkpoint says that it is finished. Needs the option checkpointLocation."""
        location, end = self._options.checkpoint, self.planned
        if self._options.group_id is None or end is None or from_json(end).items() <= self._committed.items():
            return
        if location is None:
            self._warn(
                f"stopped; the last batch is not committed to the group {self._options.group_id}, since only the "
                "checkpoint shows whether it is finished. The next start commits it. To commit at the stop, give the "
                "source the writer's checkpointLocation as an option"
            )
            return
        self.check_checkpoint_location()
        try:
            if not is_finished(ArrowDirectory(location), end):
                return
            # A new connection: a signal may have interrupted the main thread in the middle of a response.
            with _open(self._options, LAST_COMMIT_MS) as cluster:
                _commit(cluster, self._options.group_id, from_json(end), self.holder())
        except (KafkaError, OSError, ValueError) as error:
            self._warn(f"the last finished batch is not committed to the group {self._options.group_id}: {error}")
        else:
            self.planned = None

    def check_checkpoint_location(self) -> None:
        """Warn if checkpointLocation has no checkpoint at a time when there must be one.

        Without this message, users would not notice that stops of the query are never committed.
        """
        location = self._options.checkpoint
        if location is None:
            return
        try:
            exists = is_checkpoint(ArrowDirectory(location))
        except (OSError, ValueError) as error:
            self._warn(f"checkpointLocation {location} cannot be read on {socket.gethostname()}: {error}")
            return
        if not exists:
            self._warn(
                f"checkpointLocation {location}: on {socket.gethostname()} there is no checkpoint, neither metadata "
                "nor offsets, so a stop of the query will not be committed. The option must be the writer's checkpoint "
                "location; a path without a scheme (hdfs:, s3a:, …) is a path on this machine"
            )

    def close(self) -> None:
        if self._identity is not None:
            self._identity.close()
        if self._cluster is not None:
            self._cluster.close()

    def holder(self) -> GroupReader:
        """The author of the commits, from the tasks' reports, the checkpoint, and this process."""
        holder = (self._identity.receive() if self._identity is not None else None) or GroupReader()
        if self._options.checkpoint is not None:
            query, batch = _query_and_batch(self._options.checkpoint)
            holder = replace(holder, query=query or holder.query, batch=holder.batch if batch is None else batch)
        return replace(holder, host=socket.gethostname(), process=os.getpid())

    def _check_others(self, found: dict[TopicPartition, Committed]) -> None:
        """Warn if the group's offsets are not what this query has committed: another program uses the group."""
        for (topic, partition), entry in sorted(found.items()):
            mine = self._committed.get((topic, partition))
            if mine is not None and mine != entry.offset:
                other = group_reader_of(entry.metadata)
                if other is not None and other.same_run(self.holder()):
                    return  # another source of this query
                author = f"by {other}" if other is not None else "by a program without a name"
                self._warn(
                    f"another program commits to the group {self._options.group_id}: {topic}-{partition} was set to "
                    f"{entry.offset} {author}, this query had committed {mine}. Use one group for each query, or "
                    "groupMode=member"
                )
                return

    def _warn(self, what: str) -> None:
        """Print a warning once."""
        if what not in self._warned:
            self._warned.add(what)
            warn(what)


def _open(options: Options, timeout_ms: int) -> Cluster:
    limited = min(timeout_ms, options.api_timeout_ms)
    return open_cluster(replace(options, api_timeout_ms=limited, request_timeout_ms=limited))


def _commit(
    cluster: Cluster, group_id: str, positions: Positions, holder: GroupReader
) -> dict[TopicPartition, Committed]:
    """Commit what the group does not have already. Returns the offsets that it had. Raises KafkaError."""
    found = cluster.committed(group_id, positions)
    if any(place not in found or found[place].offset != offset for place, offset in positions.items()):
        cluster.commit(group_id, with_metadata(positions, holder))
    return found


def with_metadata(positions: Positions, holder: GroupReader) -> dict[TopicPartition, Committed]:
    """The positions as commits that name their author."""
    metadata = holder.metadata()
    return {place: Committed(offset, -1, metadata) for place, offset in positions.items()}


def _query_and_batch(location: str) -> tuple[str | None, int | None]:
    """The query's id and its last finished batch, as far as its checkpoint can be read."""
    try:
        directory = ArrowDirectory(location)
        return query_id(directory), last_finished(directory)
    except (OSError, ValueError, KeyError):
        return None, None
