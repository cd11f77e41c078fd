"""Records that are written and committed per second, of each group: means over about the last half minute.

Consumers commit every few seconds, so a shorter time would show steps. All groups share a few instants, and a group has
the sums of its committed offsets and of the ends of its logs then: 2 MB for 15,000 groups.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from kohort.console.reading.snapshot import GroupRow

MOST_POINTS = 4
SPACING_MS = 10_000
"""The newest point moves with each reading until it is so far from the one before."""
UNKNOWN = -1
WIDTH = 3
"""Numbers of a point: partitions that are counted, committed offsets, ends."""


class Rate(NamedTuple):
    written: float
    committed: float


class Rates:
    """The thread that reads the snapshot adds points; pages read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._instants: list[int] = []
        self._sums: dict[str, array[int]] = {}

    def note(self, now_ms: int, groups: Mapping[str, GroupRow]) -> None:
        with self._lock:
            instants = self._instants
            if instants and now_ms <= instants[-1]:
                return
            moves = len(instants) > 1 and instants[-1] - instants[-2] < SPACING_MS
            drops = not moves and len(instants) == MOST_POINTS
            for group_id in self._sums.keys() - groups.keys():
                del self._sums[group_id]
            for group_id, row in groups.items():
                sums = self._sums.get(group_id)
                if sums is None:
                    sums = self._sums[group_id] = array("q", [UNKNOWN]) * (WIDTH * len(instants))
                if moves:
                    del sums[-WIDTH:]
                elif drops:
                    del sums[:WIDTH]
                sums.extend((row.counted, row.committed, row.end))
            if moves:
                instants.pop()
            elif drops:
                del instants[0]
            instants.append(now_ms)

    def of(self, group_id: str) -> Rate | None:
        """None before the second reading, and if partitions have come or gone since. Steps back count as none."""
        with self._lock:
            sums = self._sums.get(group_id)
            if sums is None or len(self._instants) < 2:
                return None
            counted, committed, end = sums[-WIDTH:]
            for number, at_ms in enumerate(self._instants[:-1]):
                before, committed_before, end_before = sums[WIDTH * number : WIDTH * (number + 1)]
                if before == counted and counted > 0:
                    seconds = (self._instants[-1] - at_ms) / 1000
                    return Rate(max(end - end_before, 0) / seconds, max(committed - committed_before, 0) / seconds)
            return None
