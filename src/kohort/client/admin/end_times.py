"""When the ends of logs were where: from that, an estimate of how old the first unread record is. kohort tells the age
itself, so this is for other brokers.

The method is kafka-lag-exporter's: points of (time, end of the log) for each partition; the time of an offset lies on
the line between the two points around it, or on the line through the first and the last point if it is before them. A
partition in which nothing was written between the first and the last point has no rate, so the age of its lag stays
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from kohort.client.metadata import TopicPartition

MOST_POINTS = 60
SPACING_MS = 10_000
"""Between points; the newest one moves with each reading until it is so far from the one before."""
MOST_PARTITIONS = 50_000

Points = tuple[tuple[int, int], ...]


class EndTimes:
    """One thread adds points, and others may read: a partition's points are replaced as a whole."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, Points] = {}

    def note(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        for place, end in ends.items():
            known = self._points.get(place, ())
            if known or len(self._points) < MOST_PARTITIONS:
                self._points[place] = with_point(known, now_ms, end)

    def age_ms(self, place: TopicPartition, offset: int, end: int, now_ms: int) -> int | None:
        """How long ago the record at this offset was written; 0 if there is none."""
        if offset >= end:
            return 0
        written = time_of(self._points.get(place, ()), offset)
        return None if written is None else max(round(now_ms - written), 0)


def with_point(points: Points, now_ms: int, end: int) -> Points:
    """Begins anew if the end fell, as with a topic that was created again. Of equal ends it keeps first and last."""
    if not points or end < points[-1][1]:
        return ((now_ms, end),)
    if now_ms <= points[-1][0]:
        return points
    if len(points) > 1:
        (before_ms, before), (last_ms, last) = points[-2:]
        if before == last == end or (before < last < end and last_ms - before_ms < SPACING_MS):
            points = points[:-1]
    return (*points, (now_ms, end))[-MOST_POINTS:]


def time_of(points: Points, offset: int) -> float | None:
    """When the record at this offset was written, on the line between points."""
    if len(points) < 2:
        return None
    for (begin_ms, begin), (end_ms, end) in pairwise(points):
        if begin <= offset < end:
            return begin_ms + (offset - begin) / (end - begin) * (end_ms - begin_ms)
    (first_ms, first), (last_ms, last) = points[0], points[-1]
    if offset >= last or first == last:
        return None
    return first_ms - (first - offset) / (last - first) * (last_ms - first_ms)
