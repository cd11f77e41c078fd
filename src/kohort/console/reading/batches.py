"""All groups in batches: their members, and how far they are behind.

A cluster can have 15,000 groups, and a group 10,000 members, so a batch is limited by both: by the number of groups,
and by the members and partitions that they had when they were read before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kohort.client.admin.end_times import EndTimes
from kohort.client.admin.groups import Committed, ListedGroup
from kohort.client.admin.lag import GroupLag
from kohort.client.admin.survey import Surveyor
from kohort.client.errors import KafkaError
from kohort.client.metadata import TopicPartition
from kohort.console.reading.snapshot import GroupRow

MOST_GROUPS = 100
MOST_WEIGHT = 5_000
"""Members, or partitions, in one batch."""
UNKNOWN_WEIGHT = 50
OTHER_TYPES = ("streams",)
"""Types of groups whose members and offsets are asked for with other requests."""

T = TypeVar("T")


def in_batches(items: Iterable[T], weight: Callable[[T], int], most: int, most_weight: int) -> Iterator[list[T]]:
    """In their order; an item that is heavier than `most_weight` is a batch of its own."""
    batch: list[T] = []
    total = 0
    for item in items:
        own = weight(item)
        if batch and (len(batch) >= most or total + own > most_weight):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += own
    if batch:
        yield batch


def batches_of(rows: Iterable[GroupRow]) -> Iterator[list[GroupRow]]:
    """Without groups of other types."""
    return in_batches((row for row in rows if row.type not in OTHER_TYPES), weight_of, MOST_GROUPS, MOST_WEIGHT)


def weight_of(row: GroupRow) -> int:
    return UNKNOWN_WEIGHT if row.members is None else max(row.members, row.partitions, 1)


def read_batch(surveyor: Surveyor, times: EndTimes, rows: Sequence[GroupRow]) -> list[GroupRow]:
    """The groups with members and lag. What fails is named in the row's `problem`."""
    listed = [ListedGroup(row.group_id, row.protocol_type, row.state, row.type, row.coordinator) for row in rows]
    try:
        survey = surveyor.survey(listed)
    except KafkaError as error:
        return [unread(row, error.message) for row in rows]
    times.note(survey.at_ms, survey.ends)
    found = []
    for row in rows:
        one = survey.groups[row.group_id]
        if one.error:
            found.append(unread(row, one.error))
            continue
        state, members = one.group.state, len(one.group.members)
        described = replace(row, state=state, protocol=one.group.protocol, members=members, problem="")
        if one.shares is not None:
            known = survey.lag_of(one).partitions
            finished = {place: lag.committed for place, lag in known.items() if lag.committed is not None}
            told = {place: lag.end for place, lag in known.items() if lag.end is not None}
            found.append(replace(with_lags(described, finished, told), age_ms=None, age_told=False))
            continue
        if one.lags is None:
            ends = survey.ends
            ages = (
                times.age_ms(place, offset.offset, ends[place], survey.at_ms)
                for place, offset in one.committed.items()
                if place in ends
            )
            age_ms = max((age for age in ages if age is not None), default=None)
        else:
            ends = {place: lag.end for place, lag in one.lags.items() if lag.end is not None}
            age_ms = GroupLag(one.lags, one.as_of_ms).worst_ms
        counted = with_lags(described, one.committed, ends)
        found.append(replace(counted, age_ms=age_ms, age_told=one.lags is not None))
    return found


def unread(row: GroupRow, problem: str) -> GroupRow:
    unknown = replace(row, members=None, partitions=0, lag=None, age_ms=None, age_told=False, lags={}, problem=problem)
    return replace(unknown, counted=0, committed=0, end=0)


def with_lags(
    row: GroupRow, committed: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, int]
) -> GroupRow:
    lags: dict[str, int | None] = {}
    counted = total = total_end = 0
    for place, offset in committed.items():
        topic, end = place[0], ends.get(place)
        lag, known = None if end is None else max(end - offset.offset, 0), lags.get(topic)
        lags[topic] = known if lag is None else lag + (known or 0)
        if end is not None:
            counted, total, total_end = counted + 1, total + offset.offset, total_end + end
    known_lags = [lag for lag in lags.values() if lag is not None]
    lag = sum(known_lags) if known_lags else None
    known_row = replace(row, partitions=len(committed), lag=lag, lags=lags)
    return replace(known_row, counted=counted, committed=total, end=total_end)
