"""The part of the past that a page shows: some partitions, and so much time that the picture stays readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kohort.client.metadata import TopicPartition
from kohort.console.ownership.periods import Past, Period, Span

MOST_PERIODS = 240
"""In one picture: a page has at most 150 kB."""


@dataclass(frozen=True, slots=True)
class Row:
    topic: str
    partition: int
    periods: tuple[Period, ...]


@dataclass(frozen=True, slots=True)
class Window:
    begin_ms: int
    end_ms: int
    rows: tuple[Row, ...]
    rebalances: tuple[Span, ...]
    members: tuple[tuple[str, str], ...]
    """Identity and name of each member in it, by name."""
    earlier_ms: int | None
    """Where the window before this one ends; None if nothing is known before this one."""


def window_of(past: Past, places: Sequence[TopicPartition], until_ms: int | None = None) -> Window:
    """The newest periods of these partitions that begin before `until_ms`, cut at the window's ends."""
    end = past.end_ms if until_ms is None else min(max(until_ms, past.begin_ms + 1), past.end_ms)
    begin = past.begin_ms
    ends = sorted((period.end_ms for place in places for period in _before(past, place, end)), reverse=True)
    if len(ends) > MOST_PERIODS:
        begin = min(ends[MOST_PERIODS], end - 1)
    rows = tuple(Row(*place, _cut(past.periods.get(place, ()), begin, end)) for place in places)
    spans = tuple(span for span in past.rebalances if span.end_ms >= begin and span.start_ms <= end)
    members = {period.identity: period.name for row in rows for period in row.periods}
    return Window(
        begin,
        max(end, begin + 1),
        rows,
        spans,
        tuple(sorted(members.items(), key=lambda member: (member[1], member[0]))),
        begin if begin > past.begin_ms else None,
    )


def _before(past: Past, place: TopicPartition, end: int) -> list[Period]:
    return [period for period in past.periods.get(place, ()) if period.start_ms < end]


def _cut(periods: Sequence[Period], begin: int, end: int) -> tuple[Period, ...]:
    return tuple(
        replace(period, start_ms=max(period.start_ms, begin), end_ms=min(period.end_ms, end))
        for period in periods
        if period.start_ms < end and period.end_ms > begin
    )
