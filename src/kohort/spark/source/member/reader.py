"""`groupMode=member`: a streaming query whose driver is a member of its group and reads only what it owns.

Several queries and plain consumers share the topics of a group this way. The group decides which member reads which
partition and from which offset; Spark's checkpoint only records what each batch read (`sharing.py`). When Spark's
commit log has a micro-batch, the batch's end is committed in the member's name.

Hand-over. The planning process of the query is the member; its threads send heartbeats while a batch runs. When the
group revokes partitions, the member gives up those of the batch in progress once the batch is finished and committed,
and the others at once. Spark shows that a batch is finished by its next call of `latestOffset`, at the next trigger;
with the option checkpointLocation the member also polls the commit log. No record is lost or read twice.

Lost partitions. A batch that takes longer than kafka.max.poll.interval.ms, or a driver that is unreachable for a
session, loses its partitions, and the next owner reads them from the last committed batch on. The query continues with
what it owns and commits nothing for what it has lost, so both may write the rows of one batch. With kohort as the
cluster and KIP-848's protocol these rows are fewer: the cluster refuses the tasks' fetches from then on, and what it
refuses is left to the new owner (`refusals.py`).

The end. When Spark ends the planning process, the member commits what is finished and leaves. If the process is
killed, its session expires. A static member (kafka.group.instance.id) keeps its partitions for a session in any case.

A restart first repeats an unfinished batch with the same ranges. Then, if the dead member is still in the group, it
commits the batch in that member's name and makes it leave, so nothing is read twice and nobody waits for the session's
end. If the session has expired and other members have read on, both have the records of that batch.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.spark.options.source import Options
from kohort.spark.source.member.membership import Membership
from kohort.spark.source.member.sharing import Sharing, batch_reader, ranges_of
from kohort.spark.source.pacing import PacedReader
from kohort.spark.source.positions import BATCH, Json, Positions, admit, to_json
from kohort.spark.source.tasks import tasks_of
from kohort.wire.errors import ErrorCode


class KohortMemberReader(PacedReader):
    def __init__(self, options: Options) -> None:
        assert options.member is not None
        super().__init__(options)
        self.membership: Membership | None = None
        self._epochs: dict[TopicPartition, int] = {}
        """The partitions of the last look, each with its epoch. Of these, a new topic id means a recreated topic."""

    # -- offsets

    def initialOffset(self) -> Json:
        """Empty: a partition's beginning is known when the group assigns it."""
        return {}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        membership = self._joined(start)
        membership.batch_finished(start)
        deadline = time.monotonic() + membership.rebalance_timeout_s
        while True:
            self._wait_while_idle()
            membership.check()
            with membership.locked() as sharing:
                end = self._plan(membership, sharing, start, limit)
            if end is not None:
                return end
            if self._target is None or membership.is_settled(self.planner) or time.monotonic() > deadline:
                return start  # the same JSON: Spark takes anything else for a new batch

    def _plan(self, membership: Membership, sharing: Sharing, start: Json, limit: ReadLimit) -> Json | None:
        begin, ends = self._ends(sharing, membership.readable(sharing))
        self._latest = ends
        if self._too_few(begin, ends, limit):
            return None
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        if ends == begin:
            return None
        self._batch_planned(first=not start)
        return sharing.plan(begin, ends, start, membership.reader, self.planner.ids)

    def _ends(self, sharing: Sharing, begin: Positions) -> tuple[Positions, Positions]:
        """Where reading continues and where the logs end, now or at the beginning of an availableNow run."""
        existing = self.planner.existing({topic for topic, _ in begin})
        begin = {p: offset for p, offset in begin.items() if p[0] in existing}  # the group revokes the others
        recreated = self.planner.take_recreated()
        before, self._epochs = self._epochs, {place: sharing.places[place].epoch for place in begin}
        try:
            ends = self.planner.ends_from(begin, begin)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return {}, {}
        anew = [p for p in sorted(begin) if p[0] in recreated and before.get(p) == self._epochs[p] and begin[p]]
        for topic, index in anew:
            where = f"the group had reached offset {begin[topic, index]} of partition {index}"
            self.planner.lost(f"{topic} was deleted and created again; {where}")
        shorter = {p: ends[p] for p in sorted(begin) if ends[p] < begin[p] and p not in anew}
        for (topic, index), end in shorter.items():
            self.planner.lost(
                f"{topic}-{index} ends at offset {end}, below {begin[topic, index]}, where the group is. The query "
                f"continues at {end}"
            )
        moved = shorter | self.planner.existing_beginnings(anew)
        begin |= moved
        sharing.reset(moved)
        if self._target is not None:
            ends = {place: min(offset, self._target.get(place, 0)) for place, offset in ends.items()}
        return begin, {place: max(offset, begin[place]) for place, offset in ends.items()}

    def reportLatestOffset(self) -> Json:
        return to_json(self._latest)

    # -- tasks

    def partitions(self, start: Json, end: Json) -> Any:
        if self.membership is None or not self.membership.has_planned(end):
            return tasks_of(self._options, self._repeated(start, end))
        ranges = ranges_of(end)
        if start != end:
            self._check_commit_called()
        return tasks_of(self._options, ranges, self.membership.commits.reply_to(), self._fetching_member(end))

    def _repeated(self, start: Json, end: Json) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges of a batch that an earlier process planned and did not finish."""
        if BATCH not in end:
            return self.planner.repeated(start, end)  # planned before the query became a member
        recreated = self.planner.recreated_since(end)
        self.planner.lost_unread(recreated)
        return {place: row for place, row in ranges_of(end).items() if place[0] not in recreated}

    def _fetching_member(self, end: Json) -> GroupMember | None:
        """The member that the tasks fetch for, at the epoch of the planning.

        A partition that was lost since then is refused, even if it has come back: another member had it meanwhile.
        """
        reader = batch_reader(end)
        if reader is None or reader.protocol != "consumer":
            return None
        return GroupMember(self._options.group_id or "", reader.member, reader.epoch)

    # -- the group

    def commit(self, end: Json) -> None:
        self._commit_expected = False

    def _joined(self, start: Json) -> Membership:
        if self.membership is None:
            # The group would wait silently for a topic that does not exist. A deleted topic may count as lost.
            self.planner.partitions(() if self._options.fail_on_data_loss or not start else self.planner.named)
            recreated = self.planner.recreated_since(start)
            for topic in sorted(recreated):
                self.planner.lost(f"{topic} was deleted and created again since the query's last batch")
            self.membership = Membership(self._options, start, without=recreated)
            self.membership.join()
        return self.membership

    def stop(self) -> None:
        """Spark calls this after the driver has closed its socket."""
        if self.membership is not None:
            self.membership.end()
            self.membership = None
        super().stop()
