"""`groupMode=member`: a streaming query whose driver is a member of its group, and which reads only what it holds.

Several queries, and plain consumers, share the topics of one group this way. Each micro-batch reads partitions that are
this member's own, from the group's committed offsets on; when Spark has written the batch into its commit log, its end
is committed in the member's name. The group decides who reads what and where it goes on, Spark's checkpoint only what a
batch was (`spark/source/member/sharing.py`).

The hand-over. The planning process of the query is the member; its threads heartbeat while a batch runs. When the group
wants partitions back that the batch in progress reads, they are given up when it is finished and committed, and not
before; other partitions at once. Spark says that a batch is finished by its next call of `latestOffset`, which comes at
the next trigger; with the option checkpointLocation the commit log itself is looked at meanwhile. So a clean hand-over
loses nothing and reads nothing twice.

What is lost. A batch that takes longer than the rebalance timeout (kafka.max.poll.interval.ms), or a driver that is out
of reach for a session, loses its partitions. The next owner reads them from the last committed batch on. The query goes
on with what it has, and does not commit for what it has not: rows of one batch are written by both. With kohort as the
cluster the tasks' fetches are refused from that moment on (KIP-848's protocol), and what is refused is left to the new
owner, so that fewer are.

The end. Spark ends the planning process with SIGTERM, or closes its socket when the driver ends: then what is finished
is committed, and the member leaves, so that others need not wait for the session's end. A process that is killed
cannot; its session ends. A static member (kafka.group.instance.id) keeps its partitions for a session in any case.

A restart repeats an unfinished batch first, as it was, before it joins. Then, if the dead member is still in the group,
it commits the batch in that one's name and makes it leave: nobody has to wait for the session's end, and nothing is
read twice. If the session has ended and others have read on, what they read of that batch is in both.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kohort.client.admin.groups import Committed, Committer
from kohort.client.cluster import Cluster
from kohort.client.consumer.blocking import BlockingGroupConsumer
from kohort.client.consumer.options import ConsumerOptions
from kohort.client.consumer.ownership import Partitions
from kohort.client.errors import Closed, KafkaError, NotOwned, ServerError
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.options.source import OptionError, Options
from kohort.spark.source.checkpoint import is_finished
from kohort.spark.source.commits import PLANNING_PROCESS, REFUSED, Commits
from kohort.spark.source.data_source import read_task, tasks_of
from kohort.spark.source.member.sharing import Member, Owned, Sharing, is_ours, member_of, ranges_of, where_to_begin
from kohort.spark.source.plan import BATCH, Json, Planner, Positions, admit, open_cluster, to_json
from kohort.wire.errors import ErrorCode

IDLE_S = 0.1
"""Spark asks for new offsets a hundred times a second when there are none; the cluster is asked this often."""
LOOK_S = 0.1
"""How often the checkpoint is looked at while partitions are to be given up."""
COMMIT_RETRY_S = 0.5
REFUSED_S = 1.0
"""How long nothing is read of a partition that was refused to a batch."""
LEAVE_S = 5.0
"""How long the end of the process may take: nobody waits for it, but the machine may be going down."""


class KohortMemberReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The planning side lives in the query's planning process and is never pickled."""

    def __init__(self, options: Options) -> None:
        assert options.member is not None
        self._options = options
        self._planner: Planner | None = None
        self._member: SparkMember | None = None
        self._target: Positions | None = None
        """Where an availableNow run ends: fixed when it begins."""
        self._latest: Positions = {}
        self._watched: dict[TopicPartition, int] = {}
        """What was held at the last look, each with its epoch: if its topic has another id now, it is another one."""
        self._idle_since = 0.0
        self._batch_at: float | None = None
        self._commit_due = False
        """Whether Spark is going to call commit() before it plans the tasks of the new batch."""

    def __reduce__(self) -> Any:
        return KohortMemberReader, (self._options,)

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    # -- offsets

    def initialOffset(self) -> Json:
        """Nothing: where a partition begins is known when the group assigns it."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.planner.ends(self.planner.partitions(self.planner.named))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        member = self._joined(start)
        member.finished(start)
        deadline = time.monotonic() + member.settle_s
        while True:
            time.sleep(max(0.0, self._idle_since + IDLE_S - time.monotonic()))
            self._idle_since = time.monotonic()
            member.check()
            with member.books() as sharing:
                end = self._plan(sharing, member.owned, start, limit)
            if end is not None:
                return end
            if self._target is None or member.settled(self.planner) or time.monotonic() > deadline:
                return start  # word for word: anything else would be a new batch to Spark

    def _plan(self, sharing: Sharing, owned: Owned, start: Json, limit: ReadLimit) -> Json | None:
        assert self._member is not None
        begin, ends = self._ends(sharing, self._member.not_refused(sharing.held(owned)))
        self._latest = ends
        if self._held_back(begin, ends, limit):
            return None
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        if ends == begin:
            return None
        self._idle_since = 0.0
        self._batch_at = time.monotonic()
        self._commit_due = bool(start)
        return sharing.plan(begin, ends, start, self._member.identity)

    def _ends(self, sharing: Sharing, begin: Positions) -> tuple[Positions, Positions]:
        """Where reading goes on and where the logs end; in an availableNow run, where they ended when it began."""
        there = self.planner.existing({topic for topic, _ in begin})
        begin = {place: offset for place, offset in begin.items() if place[0] in there}  # the group takes the rest back
        recreated = self.planner.take_recreated()
        watched, self._watched = self._watched, {place: sharing.places[place].epoch for place in begin}
        try:
            ends = self.planner.ends_behind(begin, begin)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return {}, {}
        anew = [p for p in sorted(begin) if p[0] in recreated and watched.get(p) == self._watched[p] and begin[p]]
        for topic, index in anew:
            where = f"the group had reached offset {begin[topic, index]} of partition {index}"
            self.planner.lost(f"{topic} was deleted and created again; {where}")
        shorter = {p: ends[p] for p in sorted(begin) if ends[p] < begin[p] and p not in anew}
        for topic, index in shorter:
            what = (
                f"{topic}-{index} ends at offset {ends[topic, index]}, below {begin[topic, index]}, where the group is"
            )
            self.planner.lost(f"{what}. Without these records reading goes on at {ends[topic, index]}")
        moved = shorter | self.planner.beginnings_left(anew)
        begin |= moved
        sharing.go_back(moved)
        if self._target is not None:
            ends = {place: min(offset, self._target.get(place, 0)) for place, offset in ends.items()}
        return begin, {place: max(offset, begin[place]) for place, offset in ends.items()}

    def _held_back(self, begin: Positions, ends: Positions, limit: ReadLimit) -> bool:
        """Whether the batch waits for more records: minOffsetsPerTrigger, for at most maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        delay_s = self._options.max_trigger_delay_ms / 1000
        if self._batch_at is None or time.monotonic() - self._batch_at >= delay_s:
            return False
        return sum(offset - begin[place] for place, offset in ends.items()) < least

    def reportLatestOffset(self) -> Json:
        return to_json(self._latest)

    # -- tasks

    def partitions(self, start: Json, end: Json) -> Any:
        member = self._member
        planned = member is not None and member.planned(end)
        if planned and self._commit_due and start != end:
            raise OptionError(
                "asynchronous progress tracking (asyncProgressTrackingEnabled) is not supported: the group's offsets "
                "could get ahead of the checkpoint"
            )
        # Without BATCH it is one that this query planned when it was no member, and did not finish.
        tasks = tasks_of(self._options, ranges_of(end) if BATCH in end else self.planner.repeated(start, end))
        if planned and member is not None:
            for task in tasks:
                task.reader = self._reader(end)
            for task in tasks[:3]:
                task.reply_to = member.commits.reply_to()
        return tasks

    def _reader(self, end: Json) -> GroupMember | None:
        """In whose name a batch is fetched: at the epoch of its planning. What was lost since is refused, even if it
        has come back: somebody else has had it meanwhile."""
        reader = member_of(end)
        if reader is None or reader.protocol != "consumer":
            return None
        return GroupMember(self._options.group_id or "", reader.member, reader.epoch)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, partition)

    # -- the group

    def commit(self, end: Json) -> None:
        self._commit_due = False

    def _joined(self, start: Json) -> SparkMember:
        if self._member is None:
            # A topic that does not exist would be waited for in silence; one that is gone may be lost.
            self.planner.partitions(() if self._options.fail_on_data_loss or not start else self.planner.named)
            self._member = SparkMember(self._options, start)
            self._member.join()
        return self._member

    def stop(self) -> None:
        """Called where the driver has ended: its socket is closed."""
        if self._member is not None:
            self._member.end()
            self._member = None
        if self._planner is not None:
            self._planner.close()
            self._planner = None


TAKEN_AWAY = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH})
"""Somebody else has the partition, or had it since. (To one that is no member everything is refused, whoever reads; its
commits are, too.)"""


class SparkMember(BlockingGroupConsumer):
    """The query's place in its group, and its books.

    Spark's calls come in the main thread, `on_assigned` and `on_revoked` in a thread of the consumer's: `books` is for
    one of them at a time, a commit included, so that none can come late, after a partition was given up. `on_lost` runs
    in a third thread, and needs no lock: what it is told of does not count any more (see Sharing).
    """

    def __init__(self, options: Options, last: Json) -> None:
        super().__init__(options.bootstrap_servers, options.group_id or "", **_settings(options))
        assert options.member is not None
        self._options = options
        self._last = ranges_of(last)
        """What this query's last batch has read, where a former process finished it."""
        self._done: Json = last
        """The end of the batch that was finished last."""
        self._sharing = Sharing()
        self._lock = threading.Lock()
        self._stirred = threading.Event()
        self._ending = False
        self._again_at = 0.0
        self._other: Cluster | None = None
        """Where it is asked what tasks were refused; nowhere, where nothing is ever refused."""
        self._fenced = True
        """Whether the cluster refuses fetches of those who do not own a partition; only kohort does."""
        self._refused: dict[TopicPartition, float] = {}
        """When tasks were refused a partition that this member believes to be its own."""
        self.commits = Commits(options)
        self.settle_s = options.member.rebalance_timeout_ms / 1000

    @property
    def identity(self) -> Member:
        return Member(self.member_id, self.epoch, self.protocol or "")

    def join(self) -> None:
        former = member_of(self._done)
        if former is not None:
            self._bury(former)
        self.__enter__()
        pattern = self._options.pattern
        if pattern is not None:
            self.subscribe(pattern=anywhere(pattern))
        else:
            self.subscribe(self._options.topics)
        self._end_with_the_process()

    def check(self) -> None:
        """Raises what has ended the membership."""
        if self.failure is not None:
            raise self.failure

    @contextlib.contextmanager
    def books(self) -> Iterator[Sharing]:
        """The books, for one thread. At the process's end nobody waits for whoever was interrupted in them."""
        while not self._lock.acquire(timeout=LOOK_S):
            if self._ending:
                yield self._sharing
                return
        try:
            yield self._sharing
        finally:
            self._lock.release()

    def _bury(self, former: Member) -> None:
        """End the membership of the former process, if it could not itself: first commit in its name what it, or this
        process since, has finished, while nobody else can have its partitions; then let it leave.

        A process that goes on although another one runs on its checkpoint is fenced by that.
        """
        assert self._options.member is not None
        committer = Committer(former.member, former.epoch, self._options.member.instance_id)
        try:
            with open_cluster(self._options) as cluster:
                for place in self._left(cluster, former, {place: row[1] for place, row in self._last.items()}):
                    del self._last[place]
                there = cluster.committed(self.group_id, self._last)
                found = {place: where_to_begin(there.get(place), row) for place, row in self._last.items()}
                behind = {
                    place: to
                    for place, to in found.items()
                    if to is not None and (place not in there or there[place].offset != to)
                }
                metadata = self.commits.holder().metadata()
                cluster.commit_as(self.group_id, _marked(behind, metadata), committer)
                cluster.leave_as(self.group_id, committer, classic=former.protocol == "classic")
        except KafkaError as error:
            print(f"kohort: the former process's membership: {error}", file=sys.stderr, flush=True)

    # -- batches

    def planned(self, end: Json) -> bool:
        """Whether this process has planned the batch that ends here; else it is one of a former process, repeated."""
        batch = self._sharing.batch
        return batch is not None and batch.end == end

    def finished(self, end: Json) -> None:
        """Spark has finished the batch that ends here, or it is asked again. Commits. Raises KafkaError."""
        with self.books() as sharing:
            if self.planned(end):
                self._finish(sharing)
            elif sharing.batch is not None and end == self._done:
                sharing.batch = None  # it was planned, and Spark did not run it
            self._stirred.set()
            if time.monotonic() >= self._again_at:
                self._commit_due(sharing)

    def _finish(self, sharing: Sharing, cluster: Cluster | None = None) -> None:
        """Enter that the batch in progress is done, but for what its tasks have left. Raises KafkaError."""
        batch = sharing.batch
        assert batch is not None
        reader, owned = member_of(batch.end), self.owned
        mine = {place: row[2] for place, row in batch.ranges.items() if owned.get(place) == row[0]}
        left: set[TopicPartition] = set()
        if reader is not None and mine and self._fenced:
            self._other = self._other or open_cluster(self._options)
            left = self._left(cluster or self._other, reader, mine)
        for topic, index in sorted(left):
            self._refused[topic, index] = time.monotonic()
            what = f"the group {self.group_id} has taken away {topic}-{index}; its part of the batch is not committed"
            print(f"kohort: {what}", file=sys.stderr, flush=True)
        self._done = batch.end
        sharing.finish(left)

    def _left(self, cluster: Cluster, reader: Member, ends: Positions) -> set[TopicPartition]:
        """What a batch's tasks may have left because the group refused it to its member. Raises KafkaError.

        Tasks cannot tell the driver. But what is refused to a member at an epoch stays so, whoever has the partition
        later: so it is asked for once more, at the end. That does not depend on what this member has been told so far;
        without fencing of commits the coordinator would take one of a partition that was given to somebody else.
        """
        left: set[TopicPartition] = set()
        rest = dict(ends) if reader.protocol == "consumer" else {}
        as_member = GroupMember(self.group_id, reader.member, reader.epoch)
        try:
            while rest:
                for fetched in cluster.fetch(rest, max_wait_ms=0, partition_max_bytes=1, as_member=as_member):
                    self._fenced = fetched.fenced
                    if not fetched.fenced:
                        return set()
                    del rest[fetched.topic, fetched.partition]
                    if fetched.error in TAKEN_AWAY:
                        left.add((fetched.topic, fetched.partition))
        except ServerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        return left

    def not_refused(self, positions: Positions) -> Positions:
        """Without what was refused a moment ago: the group is about to say so to this member, too."""
        now = time.monotonic()
        return {p: offset for p, offset in positions.items() if now - self._refused.get(p, -math.inf) > REFUSED_S}

    def _commit_due(self, sharing: Sharing) -> bool:
        """Commit what is finished. Whether that succeeded; raises KafkaError only where it never will."""
        due = sharing.due(self.owned)
        if not due:
            return True
        self.commits.look_for_checkpoint()
        try:
            self.commit(_marked(due, self.commits.holder().metadata()))
        except NotOwned:
            self._stirred.set()
            return False  # some are lost; the others are asked for again
        except KafkaError as error:
            if error.code in REFUSED:
                raise
            self._again_at = time.monotonic() + COMMIT_RETRY_S
            print(f"kohort: could not commit to the group {self.group_id}: {error}", file=sys.stderr, flush=True)
            return False
        sharing.committed(due)
        return True

    # -- the group's callbacks

    def on_assigned(self, partitions: Partitions) -> None:
        owned = self.owned
        try:
            there = self.committed(partitions)
            begin = {place: where_to_begin(there.get(place), self._last.get(place)) for place in partitions}
            without = [place for place, offset in begin.items() if offset is None]
            found = self._beginnings(without)
            positions = {place: found[place] if offset is None else offset for place, offset in begin.items()}
            # Whoever has it next begins at the same place, even if this query ends before its first batch does. And it
            # is marked, so that what an operator sets later, perhaps to the same place, is known from it.
            first = {place: offset for place, offset in positions.items() if not is_ours(there.get(place), offset)}
            mine = {place: offset for place, offset in first.items() if place in self.owned}
            self.commit(_marked(mine, self.commits.holder().metadata()))
        except NotOwned:
            pass  # lost already; what is left of them is said by their epochs
        else:
            with self.books() as sharing:
                for place in partitions & owned.keys():
                    sharing.begin(place, owned[place], positions[place], positions[place])
                    self._last.pop(place, None)

    def on_revoked(self, partitions: Partitions) -> None:
        with self.books() as sharing:
            sharing.leaving |= partitions
        while not self._ending:
            self._stirred.clear()
            with self.books() as sharing:
                if not sharing.busy(partitions, self.owned):
                    break
                self._look_into_the_log(sharing)
            self._stirred.wait(LOOK_S)
        while partitions & self.owned.keys():
            self._stirred.clear()
            with self.books() as sharing:
                if self._commit_due(sharing):
                    break
            if self._ending:
                break
            self._stirred.wait(COMMIT_RETRY_S)
        with self.books() as sharing:
            sharing.give_up(partitions)

    def on_lost(self, partitions: Partitions) -> None:
        names = ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
        print(f"kohort: the group {self.group_id} has taken away {names}", file=sys.stderr, flush=True)
        self._stirred.set()

    def _beginnings(self, partitions: list[TopicPartition]) -> Positions:
        """Where to begin without a committed offset. Raises OptionError where that is not to be."""
        starting = self._options.starting
        where = starting if starting in ("earliest", "latest") else self._options.group_fallback
        if where == "fail" and partitions:
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
            raise OptionError(f"startingOffsets=group-or-fail: group {self.group_id} has no offset of {names}")
        return self.offsets(partitions, where, isolation=self._options.isolation) if partitions else {}

    def _look_into_the_log(self, sharing: Sharing, cluster: Cluster | None = None) -> None:
        """Spark may have finished the batch and not come back yet: at the query's end, or with a slow trigger."""
        place, batch = self._options.checkpoint, sharing.batch
        if place is None or batch is None:
            return
        with contextlib.suppress(OSError, ValueError, KafkaError):
            if is_finished(ArrowDirectory(place), batch.end):
                self._finish(sharing, cluster)

    def settled(self, planner: Planner) -> bool:
        """Whether this member has all that the group means it to have now."""
        return planner.target(self.member_id) == set(self.owned) == set(self._sharing.places)

    # -- the end

    def end(self) -> None:
        """Commit what is finished, and leave. Called once, in any thread."""
        self._ending = True
        self._stirred.set()
        with self.books() as sharing, self._open_for_the_end() as cluster:
            if sharing.batch is not None:
                self.commits.look_for_checkpoint()
            self._look_into_the_log(sharing, cluster)
        with contextlib.suppress(Closed, KafkaError):
            self.close()
        self.commits.close()
        if self._other is not None:
            self._other.close()

    def _open_for_the_end(self) -> Cluster:
        """Another connection: whoever was interrupted may have been in the middle of an answer on the other one."""
        limited = min(int(LEAVE_S * 500), self._options.api_timeout_ms)
        return open_cluster(replace(self._options, api_timeout_ms=limited, request_timeout_ms=limited))

    def _end_with_the_process(self) -> None:
        """From now on SIGTERM, by which Spark ends a planning process, leaves the group first. Elsewhere: nothing."""
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is None or spec.name != PLANNING_PROCESS or threading.current_thread() is not threading.main_thread():
            return

        def ended(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
            # In a thread of its own: the main one may have been interrupted while it waited for the member's.
            leaving = threading.Thread(target=self.end, name="kohort-end", daemon=True)
            leaving.start()
            leaving.join(LEAVE_S)
            os._exit(0)

        signal.signal(signal.SIGTERM, ended)


def anywhere(pattern: str) -> str:
    """A pattern for whole names that is looked for anywhere in them, as Spark's source does.

    Flags for all of it, which may stand at its beginning only, become those of a group; that topics' names are ASCII
    need not be said.
    """
    flags = re.match(r"(?:\(\?[aimsux]+\))*", pattern)
    assert flags is not None
    letters = "".join(letter for letter in "imsx" if letter in flags[0])
    end = "\n)" if "x" in letters else ")"  # it may end in a comment
    return f".*(?{letters}:{pattern[flags.end() :]}{end}.*"


def _marked(positions: Positions, metadata: str) -> dict[TopicPartition, int | Committed]:
    return {place: Committed(offset, -1, metadata) for place, offset in positions.items()}


def _settings(options: Options) -> ConsumerOptions:
    member = options.member
    assert member is not None
    return {
        "group_protocol": member.protocol,
        "group_instance_id": member.instance_id,
        "client_id": options.client_id,
        "client_rack": member.rack,
        "assignors": member.assignors,
        "group_remote_assignor": member.remote_assignor,
        "session_timeout_ms": member.session_timeout_ms,
        "heartbeat_interval_ms": member.heartbeat_interval_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "request_timeout_ms": options.request_timeout_ms,
        "api_timeout_ms": options.api_timeout_ms,
        "connect_timeout_ms": options.connect_timeout_ms,
        "metadata_max_age_ms": options.metadata_max_age_ms,
        "security": options.security,
    }
