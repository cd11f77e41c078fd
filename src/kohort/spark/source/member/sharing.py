"""The state of a query with `groupMode=member`, without IO: the ranges that it may read and has read.

Each partition has the epoch in which it was assigned and the offset where reading continues. If the partition is lost
and assigned again, the new epoch voids everything noted for the old one, so a loss needs no clean-up.

At most one batch is in progress. A partition that it reads is not given up before the batch is finished.

A batch's end in Spark's checkpoint holds the ends of its ranges by topic and partition and, under START, their
beginnings, so a batch is repeated with the same ranges even if other members own its partitions by then. Under BATCH it
holds a number, because no two batches may have the same end, even if the second one reads again what was lost in the
first; and the member that read it, so that the next process can tell the group that this member is dead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.client.admin.commit_metadata import group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.metadata import TopicPartition
from kohort.spark.source.positions import BATCH, START, Json, Positions, from_json, to_json, with_ids

Owned = Mapping[TopicPartition, int]
"""The member's partitions, each with the epoch in which it was assigned."""


class Progress(NamedTuple):
    """Where reading continues in a partition, and what the group has of that as committed offset."""

    epoch: int
    position: int
    committed: int


class BatchReader(NamedTuple):
    """The member that reads a batch."""

    member: str
    epoch: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in progress."""

    end: Json
    ranges: dict[TopicPartition, tuple[int, int, int]]
    """Epoch, first offset and end offset of each partition."""


@dataclass(slots=True)
class Sharing:
    """Used by one thread at a time."""

    places: dict[TopicPartition, Progress] = field(default_factory=dict)
    leaving: set[TopicPartition] = field(default_factory=set)
    """Partitions that are to be given up: no new batch reads them."""
    batch: Batch | None = None

    def begin(self, place: TopicPartition, epoch: int, position: int) -> None:
        """The group has assigned a partition, with this committed offset."""
        self.places[place] = Progress(epoch, position, position)
        self.leaving.discard(place)

    def readable(self, owned: Owned) -> Positions:
        """The partitions that the next batch may read, and from which offset."""
        return {
            place: known.position
            for place, known in self.places.items()
            if owned.get(place) == known.epoch and place not in self.leaving
        }

    def plan(
        self,
        begin: Positions,
        ends: Positions,
        after: Mapping[str, Any],
        reader: BatchReader,
        ids: Mapping[str, bytes] | None = None,
    ) -> Json:
        """Begin a batch of `readable` partitions. `after` is the end of the batch before, `ids` those of topics."""
        batch = {"number": after.get(BATCH, {}).get("number", 0) + 1, **reader._asdict()}
        end = with_ids({**to_json(ends), START: to_json(begin), BATCH: batch}, ids or {})
        ranges = {place: (self.places[place].epoch, begin[place], until) for place, until in ends.items()}
        self.batch = Batch(end, {place: row for place, row in ranges.items() if row[2] > row[1]})
        return end

    def finish(self, left: Collection[TopicPartition] = ()) -> None:
        """The batch in progress is finished, except for partitions that its tasks have `left` to others."""
        batch, self.batch = self.batch, None
        for place, (epoch, _, until) in (batch.ranges if batch is not None else {}).items():
            known = self.places.get(place)
            if place not in left and known is not None and known.epoch == epoch:
                self.places[place] = known._replace(position=until)

    def reset(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at other offsets: the logs have changed."""
        for place, position in positions.items():
            self.places[place] = self.places[place]._replace(position=position)

    def busy(self, partitions: Collection[TopicPartition], owned: Owned) -> set[TopicPartition]:
        """The partitions that the batch in progress reads and that the member has not lost since."""
        ranges = self.batch.ranges if self.batch is not None else {}
        return {place for place in partitions if place in ranges and owned.get(place) == ranges[place][0]}

    def due(self, owned: Owned) -> Positions:
        """The finished and uncommitted offsets."""
        return {
            place: known.position
            for place, known in self.places.items()
            if known.position != known.committed and owned.get(place) == known.epoch
        }

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        for place, position in positions.items():
            known = self.places.get(place)
            if known is not None:
                self.places[place] = known._replace(committed=position)

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            self.places.pop(place, None)
            self.leaving.discard(place)


def batch_reader(end: Mapping[str, Any]) -> BatchReader | None:
    """The member that has read the batch with this end; None if the query was not a member."""
    batch = end.get(BATCH, {})
    if not batch.keys() >= set(BatchReader._fields):
        return None
    return BatchReader(*(batch[name] for name in BatchReader._fields))


UNKNOWN = -1


def ranges_of(end: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges of a batch of any process. Their beginnings are UNKNOWN if the query was not a member then."""
    begin = from_json(end.get(START, {})) if BATCH in end else {}
    return {place: (begin.get(place, UNKNOWN), until) for place, until in from_json(end).items()}


def is_ours(committed: Committed | None, offset: int) -> bool:
    """True if a query of this source, this one or another, has committed this offset."""
    return committed is not None and committed.offset == offset and group_reader_of(committed.metadata) is not None


def where_to_begin(committed: Committed | None, last: tuple[int, int] | None) -> int | None:
    """Where to begin in an assigned partition: at the group's committed offset, or None if there is none.

    `last` is the partition's range in the last batch that this query finished in an earlier process. If the group is
    still at the beginning of that range, then that process ended before it could commit, nobody has read on since, and
    reading continues after the range. The exception is an offset that an operator has set meanwhile; operators' tools
    do not write the metadata that a query writes with its offsets. A query that was not a member continues after its
    range: the group only followed it.
    """
    at = None if committed is None else committed.offset
    if last is None:
        return at
    begin, until = last
    if begin == UNKNOWN:
        return max(until, at or 0)
    return until if at is None or is_ours(committed, begin) else at
