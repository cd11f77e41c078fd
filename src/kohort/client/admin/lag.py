"""How far a group is behind.

kohort answers with the offsets where the logs end and how old the first uncommitted record is, all partitions at one
instant: tagged fields of OffsetFetch, which other servers skip (docs/wire-extensions.md). With them, the ends are asked
from the leaders after the offsets, and the age is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.client.admin.groups import Committed, Fetched, fetch_offsets, offset_of
from kohort.client.admin.topics import topics
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import LATEST, list_offsets
from kohort.client.wire.routing import Router


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """None is unknown: nothing committed, no such partition any more, or a server that does not tell."""

    committed: Committed | None
    end: int | None
    """Where the log ends."""
    stable_end: int | None = None
    """Where readers of committed records stop."""
    lag_ms: int | None = None
    """The age of the record at the committed offset; 0 if the log has none."""

    @property
    def lag(self) -> int | None:
        """In records; 0 for an offset beyond the end."""
        return None if self.committed is None or self.end is None else max(self.end - self.committed.offset, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    partitions: Mapping[TopicPartition, PartitionLag]
    as_of_ms: int | None
    """The instant of all these, by the server's clock; None if they are not of one instant."""

    @property
    def total(self) -> int | None:
        """In records; None if no partition's lag is known."""
        known = [one.lag for one in self.partitions.values() if one.lag is not None]
        return sum(known) if known else None

    @property
    def worst_ms(self) -> int | None:
        """The largest lag in milliseconds; None if none is known."""
        return max((one.lag_ms for one in self.partitions.values() if one.lag_ms is not None), default=None)


def group_lags(router: Router, group_ids: Iterable[str], also: Iterable[TopicPartition]) -> dict[str, GroupLag]:
    wanted = frozenset(also)
    answers = {group_id: fetch_offsets(router, group_id, None, with_lag=True) for group_id in dict.fromkeys(group_ids)}
    untold = {place for answer in answers.values() if answer.as_of_ms < 0 for place in answer.rows}
    for answer in answers.values():
        untold |= wanted - answer.rows.keys()
    ends = _ends(router, untold)
    return {group_id: _group_lag(answer, wanted, ends) for group_id, answer in answers.items()}


def _group_lag(answer: Fetched, also: frozenset[TopicPartition], ends: Mapping[TopicPartition, int]) -> GroupLag:
    told = answer.as_of_ms >= 0
    found = {place: PartitionLag(None, ends.get(place)) for place in also}
    for place, row in answer.rows.items():
        offset = offset_of(row)
        if told:
            numbers = (row.end_offset, row.last_stable_offset, row.lag_ms)
            found[place] = PartitionLag(offset, *(None if number < 0 else number for number in numbers))
        elif offset is not None:
            found[place] = PartitionLag(offset, ends.get(place))
    return GroupLag(dict(sorted(found.items())), answer.as_of_ms if told else None)


def _ends(router: Router, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end; an offset may remain after its topic is deleted."""
    wanted = sorted(places)
    known = topics(router, {topic for topic, _ in wanted}, internal=True, create=False).values()
    led = {(topic.name, part.index) for topic in known for part in topic.partitions if part.leader >= 0}
    return list_offsets(router, {place: LATEST for place in wanted if place in led}, False)
