"""How far a group is behind.

kohort answers with the offsets where the logs end and how old the first uncommitted record is, all partitions at one
instant: tagged fields of OffsetFetch, which other servers skip (docs/wire-extensions.md). With them, the ends are asked
from the leaders after the offsets, and the age is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kohort.client.admin.groups import MANY_GROUPS, Committed, offset_of
from kohort.client.admin.topics import topics
from kohort.client.errors import check
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import LATEST, list_offsets
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.routing import Router
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


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
    burrow: str | None = None
    """OK, WARN, STOP, STALL or REWIND by Burrow's rules. They look at the newest commits, of which the server knows
    those since somebody asks for the lag."""

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
        """The largest lag in milliseconds that is known; None if that of no partition with lag is."""
        worst = max((one.lag_ms for one in self.partitions.values() if one.lag_ms is not None), default=None)
        is_unknown = any(one.lag and one.lag_ms is None for one in self.partitions.values())
        return None if is_unknown and not worst else worst

    @property
    def burrow(self) -> str | None:
        """OK, WARN or ERR: Burrow's status of the group, the worst of its partitions; None if none is known."""
        found = {one.burrow for one in self.partitions.values() if one.burrow is not None}
        if found <= {"OK", "WARN"}:
            return max(found, default=None)
        return "ERR"


def group_lags(router: Router, group_ids: Iterable[str], also: Iterable[TopicPartition]) -> dict[str, GroupLag]:
    wanted = frozenset(also)

    def ask(asked: Sequence[str], connection: Connection) -> dict[str, OffsetsOfGroup]:
        found = {}
        for request in offset_fetches(asked, connection, with_lag=True):
            for group_id, row in answers(request, connection.request(request, OffsetFetchResponse)):
                if not has_no_room(row, len(asked)):
                    check(row.error_code, f"offsets of group {group_id}")
                    found[group_id] = offsets_of(row)
        return found

    answered = router.at_coordinators(group_ids, ask)
    untold = {place for one in answered.values() for place in (wanted | one.committed.keys()) - (one.lags or {}).keys()}
    ends = _ends(router, untold)
    return {group_id: group_lag(one, wanted, ends) for group_id, one in answered.items()}


def _ends(router: Router, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs end; an offset may remain after its topic is deleted."""
    wanted = sorted(places)
    known = topics(router, {topic for topic, _ in wanted}, internal=True, create=False).values()
    led = {(topic.name, part.index) for topic in known for part in topic.partitions if part.leader >= 0}
    return list_offsets(router, {place: LATEST for place in wanted if place in led}, False)


# -- requests and answers, for surveys too


BURROW = {1: "OK", 2: "WARN", 4: "STOP", 5: "STALL", 6: "REWIND"}
"""By Burrow's numbers."""


class OffsetsOfGroup(NamedTuple):
    """All committed offsets of a group. `lags` has their lags, if the server tells them; else it is None."""

    committed: dict[TopicPartition, Committed]
    lags: dict[TopicPartition, PartitionLag] | None
    as_of_ms: int | None


def offset_fetches(group_ids: Sequence[str], connection: Connection, *, with_lag: bool) -> list[OffsetFetchRequest]:
    """All committed offsets of groups of one coordinator. Brokers before Kafka 3.0 take one group a request."""
    if connection.version_of(OffsetFetchRequest) < MANY_GROUPS:
        return [OffsetFetchRequest(group_id=group_id, with_lag=with_lag) for group_id in group_ids]
    groups = tuple(OffsetFetchRequestGroup(group_id=group_id) for group_id in group_ids)
    return [OffsetFetchRequest(groups=groups, with_lag=with_lag)]


Answer = OffsetFetchResponse | OffsetFetchResponseGroup


def answers(request: OffsetFetchRequest, answer: OffsetFetchResponse) -> list[tuple[str, Answer]]:
    """By group."""
    return [(row.group_id, row) for row in answer.groups] if request.groups else [(request.group_id, answer)]


def has_no_room(row: Answer, groups: int) -> bool:
    """Whether the group is to be asked for alone: with so many groups, the answer is too large (kohort:
    queued.max.response.bytes)."""
    return groups > 1 and row.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def offsets_of(row: Answer) -> OffsetsOfGroup:
    """Without refused partitions."""
    committed, lags = {}, {}
    for topic in row.topics:
        for part in topic.partitions:
            if not part.error_code and (offset := offset_of(part)) is not None:
                place = topic.name, part.partition_index
                committed[place] = offset
                lags[place] = PartitionLag(
                    offset,
                    _known(part.end_offset),
                    _known(part.last_stable_offset),
                    _known(part.lag_ms),
                    BURROW.get(part.burrow_status),
                )
    return OffsetsOfGroup(committed, lags, row.as_of_ms) if row.as_of_ms >= 0 else OffsetsOfGroup(committed, None, None)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def group_lag(found: OffsetsOfGroup, also: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> GroupLag:
    """The lag as it is told, or by `ends`."""
    lags = {place: PartitionLag(None, ends.get(place)) for place in also}
    lags |= found.lags or {place: PartitionLag(offset, ends.get(place)) for place, offset in found.committed.items()}
    return GroupLag(dict(sorted(lags.items())), found.as_of_ms)
