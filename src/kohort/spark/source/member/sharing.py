"""What a query that shares its group may read and has read: the books of `groupMode=member`, without IO.

A partition comes with the epoch in which it came and the offset where reading goes on. Whatever is known of it holds
for that epoch: if it is lost, and comes again, the new epoch makes all that was meant for the old one void. So nobody
has to be stopped when something is lost: it only stops counting.

One batch is in progress at a time. A partition that it reads may not be given up before it is finished.

A batch's end, as Spark keeps it in the checkpoint, is the ends of its ranges by topic and partition, as ever, and under
START their beginnings: so a batch is the same when it is repeated, wherever its partitions are by then. Under BATCH is
a number, because no two batches may have the same end, even if the second one reads again what was lost in the first;
and which member read it, so that the next process can tell the group that this one is dead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.client.admin.commit_metadata import group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.metadata import TopicPartition
from kohort.spark.source.plan import BATCH, START, Json, Positions, from_json, to_json

Owned = Mapping[TopicPartition, int]
"""What the member has, each partition with the epoch in which it came."""


class Place(NamedTuple):
    """Where reading goes on in a partition, and what of that the group knows."""

    epoch: int
    position: int
    committed: int


class Member(NamedTuple):
    """Who reads a batch."""

    member: str
    epoch: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch in progress: of each partition the epoch and the range."""

    end: Json
    ranges: dict[TopicPartition, tuple[int, int, int]]


@dataclass(slots=True)
class Sharing:
    """See the module's text. Not for several threads at once."""

    places: dict[TopicPartition, Place] = field(default_factory=dict)
    leaving: set[TopicPartition] = field(default_factory=set)
    """What is to be given up: no new batch reads it."""
    batch: Batch | None = None

    def begin(self, place: TopicPartition, epoch: int, position: int, committed: int) -> None:
        """A partition has come."""
        self.places[place] = Place(epoch, position, committed)
        self.leaving.discard(place)

    def held(self, owned: Owned) -> Positions:
        """What the next batch may read, and from where."""
        return {
            place: known.position
            for place, known in self.places.items()
            if owned.get(place) == known.epoch and place not in self.leaving
        }

    def plan(self, begin: Positions, ends: Positions, after: Mapping[str, Any], member: Member) -> Json:
        """Begin a batch, of what `held` gave. `after` is the end of the batch before."""
        batch = {"number": number_of(after) + 1, **member._asdict()}
        end: Json = {**to_json(ends), START: to_json(begin), BATCH: batch}
        ranges = {place: (self.places[place].epoch, begin[place], until) for place, until in ends.items()}
        self.batch = Batch(end, {place: row for place, row in ranges.items() if row[2] > row[1]})
        return end

    def finish(self, left: Collection[TopicPartition] = ()) -> None:
        """The batch in progress is done, but for what its tasks have `left`. What was lost meanwhile is somebody
        else's to read."""
        batch, self.batch = self.batch, None
        for place, (epoch, _, until) in (batch.ranges if batch is not None else {}).items():
            known = self.places.get(place)
            if place not in left and known is not None and known.epoch == epoch:
                self.places[place] = known._replace(position=until)

    def go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        """The log begins anew."""
        for place, position in positions.items():
            self.places[place] = self.places[place]._replace(position=position)

    def busy(self, partitions: Collection[TopicPartition], owned: Owned) -> set[TopicPartition]:
        """Which of these the batch in progress still reads for this member."""
        ranges = self.batch.ranges if self.batch is not None else {}
        return {place for place in partitions if place in ranges and owned.get(place) == ranges[place][0]}

    def due(self, owned: Owned) -> Positions:
        """What is finished and not committed."""
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


def number_of(end: Mapping[str, Any]) -> int:
    return int(end.get(BATCH, {}).get("number", 0))


def member_of(end: Mapping[str, Any]) -> Member | None:
    """Who has read the batch that ends here; None for a query that was no member."""
    said = end.get(BATCH, {})
    return Member(*(said[name] for name in Member._fields)) if said.keys() >= set(Member._fields) else None


UNKNOWN = -1


def ranges_of(end: Mapping[str, Any]) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges of a batch, of whichever process; UNKNOWN beginnings where the query was no member then."""
    begin = from_json(end.get(START, {})) if BATCH in end else {}
    return {place: (begin.get(place, UNKNOWN), until) for place, until in from_json(end).items()}


def is_ours(committed: Committed | None, offset: int) -> bool:
    """Whether the group has this offset from a query of this source, this one or another."""
    return committed is not None and committed.offset == offset and group_reader_of(committed.metadata) is not None


def where_to_begin(committed: Committed | None, last: tuple[int, int] | None) -> int | None:
    """Where to begin in a partition that has come: at the group's offset, None where it has none.

    `last` is its range in the last batch that this query finished in a former process. If the group still stands where
    that began, then that process ended before it could commit, and nobody has read on since: unless that is what an
    operator has said meanwhile, whose tools do not write what a query writes beside its offsets. What a query has read
    that was no member, it goes on behind: the group only followed it.
    """
    at = None if committed is None else committed.offset
    if last is None:
        return at
    begin, until = last
    if begin == UNKNOWN:
        return max(until, at or 0)
    return until if at is None or is_ours(committed, begin) else at
