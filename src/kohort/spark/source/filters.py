"""Filters that Spark pushes into a batch read: the ranges of offsets that need not be read.

Filters on topic, partition and offset are decided here. One on the time only moves the start to the first record at or
after it, because times need not rise with the offsets; Spark still compares every record that is read. All others stay
with Spark.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from kohort.client.metadata import TopicPartition

Ranges = dict[TopicPartition, tuple[int, int]]
"""Offsets [start, end) by partition."""

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
"""By the names of Spark's filters."""
_WHOLE = ("partition", "offset")
_NEVER_NULL = ("topic", *_WHOLE)


class Narrowing:
    """What the filters that were taken leave of a read."""

    def __init__(self) -> None:
        self._wanted: list[tuple[int, Callable[[Any], bool]]] = []
        """The place of topic (0) or partition (1) in a TopicPartition, and what is true for a wanted one."""
        self._first = 0
        self._end: int | None = None
        self.since_ms: int | None = None
        """No record before the first one at or after this time is wanted; milliseconds since 1970."""

    def take(self, filters: Iterable[Any]) -> list[Any]:
        """Take what can be decided here. Returns the filters that Spark must evaluate."""
        return [one for one in filters if not self._take(type(one).__name__, one)]

    def _take(self, kind: str, one: Any) -> bool:
        column = ".".join(getattr(one, "attribute", ()))
        if kind == "IsNotNull":
            return column in _NEVER_NULL
        if kind == "In" and column in ("topic", "partition"):
            self._wanted.append((column != "topic", set(one.value).__contains__))
            return True
        compare = _COMPARED.get(kind)
        if compare is None:
            return False
        value = one.value
        if column == "topic" and compare is operator.eq:
            self._wanted.append((0, lambda topic: bool(topic == value)))
            return True
        if column in _WHOLE and isinstance(value, int):
            if column == "partition":
                self._wanted.append((1, lambda partition: compare(partition, value)))
            else:
                self._bound(kind, value)
            return True
        if column == "timestamp" and isinstance(value, datetime) and value.tzinfo and not kind.startswith("Less"):
            since_ms = int(value.timestamp() * 1000) - 1  # the product may have been rounded up
            if since_ms > 0:
                self.since_ms = max(self.since_ms or 0, since_ms)
        return False

    def _bound(self, kind: str, value: int) -> None:
        if not kind.startswith("Less"):
            self._first = max(self._first, value + (kind == "GreaterThan"))
        if not kind.startswith("Greater"):
            end = value + (kind != "LessThan")
            self._end = end if self._end is None else min(self._end, end)

    def of(
        self, ranges: Ranges, at_times: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
    ) -> Ranges:
        """The wanted parts. `at_times` tells the first offset at or after a time in milliseconds, -1 for none; it is
        asked after the ends of the ranges are known, so a record that it does not know is behind them."""
        found = {}
        for place, (start, end) in ranges.items():
            if all(is_wanted(place[index]) for index, is_wanted in self._wanted):
                found[place] = max(start, self._first), end if self._end is None else min(end, self._end)
        found = {place: (start, end) for place, (start, end) in found.items() if start < end}
        if self.since_ms is None or not found:
            return found
        since = at_times(dict.fromkeys(found, self.since_ms))
        moved = {p: (max(start, since[p]) if since[p] >= 0 else end, end) for p, (start, end) in found.items()}
        return {place: (start, end) for place, (start, end) in moved.items() if start < end}
