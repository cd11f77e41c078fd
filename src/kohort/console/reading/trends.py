"""The course of each group's lag since the console runs: a point for each reading of the snapshot, half an hour long.

All groups share one line of instants, and a group has an array of lags as long as it. The newest point moves with each
reading until it is far enough from the one before. When the line is full, every second point goes while the points are
closer than SPACING_MS, and later the oldest one. So the course of a young console has points of two seconds, and 15,000
groups take 8 MB.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from kohort.console.reading.snapshot import GroupRow

MOST_POINTS = 60
SPACING_MS = 30_000
UNKNOWN = -1


class Point(NamedTuple):
    at_ms: int
    lag: int


class Trends:
    """The thread that reads the snapshot adds points; pages read them."""

    def __init__(self) -> None:
        self.number = 0
        """How often points were added."""
        self._lock = threading.Lock()
        self._instants = array("q")
        self._every_ms = 0.0
        """The distance of points; 0 for each reading."""
        self._lags: dict[str, array[int]] = {}

    def note(self, now_ms: int, groups: Mapping[str, GroupRow]) -> None:
        with self._lock:
            if self._instants and now_ms <= self._instants[-1]:
                return
            moves = len(self._instants) > 1 and self._instants[-1] - self._instants[-2] < self._every_ms
            if not moves and len(self._instants) == MOST_POINTS:
                self._make_room()
            for group_id in self._lags.keys() - groups.keys():
                del self._lags[group_id]
            for group_id, row in groups.items():
                lags = self._lags.get(group_id)
                if lags is None:
                    lags = self._lags[group_id] = array("q", [UNKNOWN]) * len(self._instants)
                if moves:
                    lags.pop()
                lags.append(UNKNOWN if row.lag is None else row.lag)
            if moves:
                self._instants.pop()
            self._instants.append(now_ms)
            self.number += 1

    def of(self, group_id: str) -> tuple[Point, ...]:
        """The known points of a group, the oldest first."""
        with self._lock:
            lags = self._lags.get(group_id, ())
            return tuple(Point(at, lag) for at, lag in zip(self._instants, lags, strict=False) if lag != UNKNOWN)

    def _make_room(self) -> None:
        spacing = (self._instants[-1] - self._instants[0]) / (len(self._instants) - 1)
        if spacing < SPACING_MS:
            kept, self._every_ms = slice(1, None, 2), 2 * spacing
        else:
            kept = slice(1, None)
        self._instants = self._instants[kept]
        for group_id, lags in self._lags.items():
            self._lags[group_id] = lags[kept]
