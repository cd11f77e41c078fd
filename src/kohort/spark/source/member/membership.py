"""The membership of a query in its group: joins, commits finished batches, gives partitions up, leaves.

Spark's calls come in the main thread, `on_assigned` and `on_revoked` in a thread of the consumer's. `locked` admits one
of them at a time, including its commit, so no commit is sent after its partition was given up. `on_lost` runs in a
third thread and takes no lock: lost partitions stop counting by their epochs (see `sharing.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from kohort.client.admin.groups import Committer
from kohort.client.cluster import Cluster
from kohort.client.consumer.blocking import BlockingGroupConsumer
from kohort.client.consumer.ownership import Partitions
from kohort.client.errors import Closed, KafkaError, NotOwned
from kohort.client.metadata import TopicPartition
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.options.source import Options
from kohort.spark.options.values import OptionError
from kohort.spark.runtime.failures import warn
from kohort.spark.source.checkpoint import is_finished
from kohort.spark.source.commits import REFUSED, Commits, with_metadata
from kohort.spark.source.member.consumer import settings, subscribe
from kohort.spark.source.member.refusals import Refusals
from kohort.spark.source.member.sharing import (
    BatchReader,
    Owned,
    Sharing,
    batch_reader,
    is_ours,
    ranges_of,
    where_to_begin,
)
from kohort.spark.source.planner import Planner, open_cluster
from kohort.spark.source.positions import Json, Positions
from kohort.spark.source.termination import call_at_sigterm

CHECKPOINT_POLL_S = 0.1
"""How often the checkpoint is read while partitions are to be given up."""
COMMIT_RETRY_S = 0.5
LEAVE_S = 5.0
"""The limit for the end of the process. Nobody waits for it, but the machine may be shutting down."""


class Membership:
    """The query as a member of its group. `last` is the end of the last batch that Spark has finished.

    `without` are topics that were deleted and created again since: nothing of them has been read.
    """

    def __init__(
        self,
        options: Options,
        last: Json,
        consumer: BlockingGroupConsumer | None = None,
        without: Collection[str] = (),
    ) -> None:
        assert options.member is not None
        self._options = options
        self._group_id = options.group_id or ""
        self._consumer = consumer or _Consumer(self, options)
        self._instance_id = options.member.instance_id
        self._last_ranges = {place: row for place, row in ranges_of(last).items() if place[0] not in without}
        """The ranges of this query's last batch, if an earlier process finished it."""
        self._finished_end: Json = last
        """The end of the batch that was finished last."""
        self._sharing = Sharing()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        """Set when a batch is finished or partitions are lost."""
        self._ending = False
        self._retry_at = 0.0
        self._refusals = Refusals(self._group_id)
        self._refusals_cluster: Cluster | None = None
        self.commits = Commits(options)
        self.rebalance_timeout_s = options.member.rebalance_timeout_ms / 1000

    @property
    def owned(self) -> Owned:
        return self._consumer.owned

    @property
    def reader(self) -> BatchReader:
        return BatchReader(self._consumer.member_id, self._consumer.epoch, self._consumer.protocol or "")

    @contextlib.contextmanager
    def locked(self) -> Iterator[Sharing]:
        """The shared state, for one thread. At the end of the process, no thread is waited for."""
        while not self._lock.acquire(timeout=CHECKPOINT_POLL_S):
            if self._ending:
                yield self._sharing
                return
        try:
            yield self._sharing
        finally:
            self._lock.release()

    # -- joining

    def join(self) -> None:
        former = batch_reader(self._finished_end)
        if former is not None:
            self._end_former_membership(former)
        self._consumer.__enter__()
        subscribe(self._consumer, self._options)
        call_at_sigterm(self.end, LEAVE_S)

    def _end_former_membership(self, former: BatchReader) -> None:
        """End the membership of an earlier process that could not do so itself.

        Before it leaves, commit the offsets that it (or this process since) has finished, while no other member can
        have its partitions. If that process still runs, it is fenced by this.
        """
        committer = Committer(former.member, former.epoch, self._instance_id)
        try:
            with open_cluster(self._options) as cluster:
                ends = {place: end for place, (_, end) in self._last_ranges.items()}
                for place in self._refusals.find(cluster, former, ends):
                    del self._last_ranges[place]
                there = cluster.committed(self._group_id, self._last_ranges)
                found = {place: where_to_begin(there.get(place), row) for place, row in self._last_ranges.items()}
                uncommitted = {
                    place: to
                    for place, to in found.items()
                    if to is not None and (place not in there or there[place].offset != to)
                }
                offsets = with_metadata(uncommitted, self.commits.holder())
                cluster.commit_as(self._group_id, offsets, committer)
                cluster.leave_as(self._group_id, committer, classic=former.protocol == "classic")
        except KafkaError as error:
            warn(f"cannot end the former process's membership: {error}")

    def check(self) -> None:
        """Raises the error that has ended the membership, if any."""
        if self._consumer.failure is not None:
            raise self._consumer.failure

    def is_settled(self, planner: Planner) -> bool:
        """True if this member has all partitions that the group intends for it."""
        return planner.target(self._consumer.member_id) == set(self.owned) == set(self._sharing.places)

    # -- batches

    def readable(self, sharing: Sharing) -> Positions:
        """The partitions that the next batch may read, and from which offset."""
        return self._refusals.without(sharing.readable(self.owned))

    def has_planned(self, end: Json) -> bool:
        """True if this process has planned the batch with this end; otherwise it repeats an earlier process's batch."""
        batch = self._sharing.batch
        return batch is not None and batch.end == end

    def batch_finished(self, end: Json) -> None:
        """Spark has finished the batch with this end, or asks again after it. Commits. Raises KafkaError."""
        with self.locked() as sharing:
            if self.has_planned(end):
                self._finish(sharing)
            elif sharing.batch is not None and end == self._finished_end:
                sharing.batch = None  # Spark did not run the planned batch
            self._changed.set()
            if time.monotonic() >= self._retry_at:
                self._commit_finished(sharing)

    def _finish(self, sharing: Sharing, cluster: Cluster | None = None) -> None:
        """Mark the batch in progress as finished, except for what its tasks were refused. Raises KafkaError."""
        batch = sharing.batch
        assert batch is not None
        reader, owned = batch_reader(batch.end), self.owned
        mine = {place: row[2] for place, row in batch.ranges.items() if owned.get(place) == row[0]}
        refused: set[TopicPartition] = set()
        if reader is not None and mine and self._refusals.cluster_fences:
            self._refusals_cluster = self._refusals_cluster or open_cluster(self._options)
            refused = self._refusals.find(cluster or self._refusals_cluster, reader, mine)
            self._refusals.note(refused)
        for topic, index in sorted(refused):
            what = f"the group {self._group_id} has taken away {topic}-{index}; its part of the batch is not committed"
            warn(what)
        self._finished_end = batch.end
        sharing.finish(refused)

    def _finish_if_in_checkpoint(self, sharing: Sharing, cluster: Cluster | None = None) -> None:
        """Spark may have finished the batch without a further call: at the query's end, or with a slow trigger."""
        location, batch = self._options.checkpoint, sharing.batch
        if location is None or batch is None:
            return
        with contextlib.suppress(OSError, ValueError, KafkaError):
            if is_finished(ArrowDirectory(location), batch.end):
                self._finish(sharing, cluster)

    def _commit_finished(self, sharing: Sharing) -> bool:
        """Commit what is finished. False if that must be repeated. Raises KafkaError if a repetition cannot help."""
        due = sharing.due(self.owned)
        if not due:
            return True
        self.commits.check_checkpoint_location()
        try:
            self._consumer.commit(with_metadata(due, self.commits.holder()))
        except NotOwned:
            self._changed.set()
            return False  # some partitions are lost; the next attempt is for the others
        except KafkaError as error:
            if error.code in REFUSED:
                raise
            self._retry_at = time.monotonic() + COMMIT_RETRY_S
            warn(f"could not commit to the group {self._group_id}: {error}")
            return False
        sharing.committed(due)
        return True

    # -- the group's callbacks

    def on_assigned(self, partitions: Partitions) -> None:
        owned = self.owned
        try:
            there = self._consumer.committed(partitions)
            begin = {place: where_to_begin(there.get(place), self._last_ranges.get(place)) for place in partitions}
            without = [place for place, offset in begin.items() if offset is None]
            found = self._beginnings(without)
            positions = {place: found[place] if offset is None else offset for place, offset in begin.items()}
            # Committed at once, so that the next owner begins at the same offset even if this query ends before its
            # first batch does; and marked as ours, to tell it from the same offset set by an operator later.
            first = {place: offset for place, offset in positions.items() if not is_ours(there.get(place), offset)}
            mine = {place: offset for place, offset in first.items() if place in self.owned}
            self._consumer.commit(with_metadata(mine, self.commits.holder()))
        except NotOwned:
            pass  # lost already; the epochs of the others tell which are left
        else:
            with self.locked() as sharing:
                for place in partitions & owned.keys():
                    sharing.begin(place, owned[place], positions[place])
                    self._last_ranges.pop(place, None)

    def on_revoked(self, partitions: Partitions) -> None:
        with self.locked() as sharing:
            sharing.leaving |= partitions
        while not self._ending:
            self._changed.clear()
            with self.locked() as sharing:
                if not sharing.busy(partitions, self.owned):
                    break
                self._finish_if_in_checkpoint(sharing)
            self._changed.wait(CHECKPOINT_POLL_S)
        while partitions & self.owned.keys():
            self._changed.clear()
            with self.locked() as sharing:
                if self._commit_finished(sharing):
                    break
            if self._ending:
                break
            self._changed.wait(COMMIT_RETRY_S)
        with self.locked() as sharing:
            sharing.give_up(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        names = ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
        warn(f"the group {self._group_id} has taken away {names}")
        self._changed.set()

    def _beginnings(self, partitions: list[TopicPartition]) -> Positions:
        """Where to begin without a committed offset. Raises OptionError if the options forbid that."""
        starting = self._options.starting
        where = starting if starting in ("earliest", "latest") else self._options.group_fallback
        if where == "fail" and partitions:
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
            raise OptionError(f"startingOffsets=group-or-fail: group {self._group_id} has no offset of {names}")
        if not partitions:
            return {}
        return self._consumer.offsets(partitions, where, isolation=self._options.isolation)

    # -- the end

    def end(self) -> None:
        """Commit what is finished, and leave. Called once, in any thread."""
        self._ending = True
        self._changed.set()
        limited = min(int(LEAVE_S * 500), self._options.api_timeout_ms)
        # A new connection: the interrupted thread may have left the other one in the middle of a response.
        options = replace(self._options, api_timeout_ms=limited, request_timeout_ms=limited)
        with self.locked() as sharing, open_cluster(options) as cluster:
            if sharing.batch is not None:
                self.commits.check_checkpoint_location()
            self._finish_if_in_checkpoint(sharing, cluster)
        with contextlib.suppress(Closed, KafkaError):
            self._consumer.close()
        self.commits.close()
        if self._refusals_cluster is not None:
            self._refusals_cluster.close()


class _Consumer(BlockingGroupConsumer):
    """Passes the group's callbacks on to the membership."""

    def __init__(self, membership: Membership, options: Options) -> None:
        super().__init__(options.bootstrap_servers, options.group_id or "", **settings(options))
        self._membership = membership

    def on_assigned(self, partitions: Partitions) -> None:
        self._membership.on_assigned(partitions)

    def on_revoked(self, partitions: Partitions) -> None:
        self._membership.on_revoked(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        self._membership.on_lost(partitions)
