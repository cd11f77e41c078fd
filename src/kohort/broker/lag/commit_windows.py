"""What Burrow says of a partition that a group reads: OK, WARN, STOP, STALL or REWIND.

The rules are Burrow's with its default settings (linkedin/Burrow, core/internal/evaluator/caching.go,
calculatePartitionStatus): a window of ten commits, no lag is allowed, the ends of the last 100 s count as recent.
Burrow reads all commits from `__consumer_offsets`. Here a window begins when a client first asks for the lag of a
partition in which the group lags, and the commit that is there then is its first one. So Burrow's judgement of a window
with one commit, STOP, is given only if no second one comes for 100 s; until then it is OK.

Commits cost nothing more: once a second, some windows a turn, the upkeep compares the commit in the group's state with
the newest one of each window. Of several commits within a second the last one counts, as with Burrow's setting
min-distance=1.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from kohort.broker.lag.lag_times import FORGET_MS, NEVER, SAMPLE_MS, LagTimes, Ring
from kohort.broker.logs.partition import Partition
from kohort.broker.turn import Millis
from kohort.coordinator.records import Place
from kohort.coordinator.shard import Shard
from kohort.wire.schemas.group_records import OffsetCommitValue

COMMITS = 10
"""In a window (Burrow: intervals)."""
RECENT_MS = 100_000
"""Ends that are no older show whether the group had no lag a short time ago (Burrow: intervals × offset-refresh)."""
MOST_WINDOWS = 4_000
"""Partitions of groups with a window, some 4 MB."""
WINDOWS_A_TURN = 500
"""Windows that are looked after in one turn: less than a millisecond."""
UNKNOWN_LAG = -1


class BurrowStatus(IntEnum):
    """Burrow's numbers (core/protocol/evaluator.go). Its NOTFOUND (0) and ERR (3) are of groups."""

    UNKNOWN = -1
    OK = 1
    WARN = 2
    STOP = 4
    STALL = 5
    REWIND = 6


class Window:
    """The newest commits of a group in a partition, the newest last."""

    __slots__ = ("began_ms", "lags", "offsets", "partition", "times", "used_ms")

    def __init__(self, partition: Partition, now: Millis) -> None:
        self.partition = partition
        self.began_ms = self.used_ms = now
        self.offsets = array("q")
        self.times = array("q")
        self.lags = array("q")
        """When the commit came, or UNKNOWN_LAG."""

    def add(self, commit: OffsetCommitValue, ring: Ring | None) -> None:
        """The commit in the group's state, which may be the newest one of the window still."""
        offset, time = commit.offset, commit.commit_timestamp
        if self.times and (self.times[-1], self.offsets[-1]) == (time, offset):
            return
        end = ring.end_at(time) if ring is not None else None
        self.offsets.append(offset)
        self.times.append(time)
        self.lags.append(UNKNOWN_LAG if end is None else max(end - offset, 0))
        if len(self.times) > COMMITS:
            del self.offsets[0], self.times[0], self.lags[0]

    def status(self, end: int, ring: Ring | None, now: Millis) -> BurrowStatus:
        """`end`: where the log ends now."""
        offsets, times = self.offsets, self.times
        if end <= offsets[-1]:
            return BurrowStatus.OK
        if self._has_stopped(now) and (ring is None or not ring.ended_by(offsets[-1], now - RECENT_MS)):
            return BurrowStatus.STOP
        if len(times) == 1:
            return BurrowStatus.OK
        if _rewound(offsets):
            return BurrowStatus.REWIND
        if 0 in self.lags:
            return BurrowStatus.OK
        if all(offset == offsets[0] for offset in offsets):
            return BurrowStatus.STALL
        known = [lag for lag in self.lags if lag != UNKNOWN_LAG]
        return BurrowStatus.OK if any(later < lag for lag, later in pairwise(known)) else BurrowStatus.WARN

    def _has_stopped(self, now: Millis) -> bool:
        """No commit for longer than the window is long."""
        if len(self.times) == 1:
            return now - self.began_ms > RECENT_MS
        return now - self.times[-1] > self.times[-1] - self.times[0]


def _rewound(offsets: Sequence[int]) -> bool:
    """Whether the first step back was not made good by any later commit."""
    for at in range(1, len(offsets)):
        if offsets[at] < offsets[at - 1]:
            return max(offsets[at:]) < offsets[at - 1]
    return False


Key = tuple[int, str, Place]
"""Shard, group and partition."""


class CommitWindows:
    def __init__(self, shards: Sequence[Shard], ends: LagTimes) -> None:
        self.windows: dict[Key, Window] = {}
        self.due_ms: Millis = NEVER
        """When `sample` is to be called next."""
        self._shards = shards
        self._ends = ends
        self._left: list[Key] = []
        """The windows that have not been looked after in this second."""
        self._began: Millis = 0

    def status(self, key: Key, commit: OffsetCommitValue, partition: Partition, end: int, now: Millis) -> BurrowStatus:
        """Call `LagTimes.lag_ms` of the partition before. UNKNOWN if there is no room for its window."""
        window = self.windows.get(key)
        if window is None or window.partition is not partition:
            if commit.offset >= end:
                return BurrowStatus.OK
            if window is None and len(self.windows) >= MOST_WINDOWS:
                return BurrowStatus.UNKNOWN
            window = self.windows[key] = Window(partition, now)
            if self.due_ms == NEVER:
                self.due_ms = now + SAMPLE_MS
        window.used_ms = now
        ring = self._ends.rings.get(partition.log)
        window.add(commit, ring)
        return window.status(end, ring, now)

    def sample(self, now: Millis) -> None:
        """Note new commits, of WINDOWS_A_TURN windows at a time. Call this in a turn that is due, at its end."""
        if not self._left:
            self._left = list(self.windows)
            self._began = now
        for _ in range(min(WINDOWS_A_TURN, len(self._left))):
            key = self._left.pop()
            window, (shard, group_id, place) = self.windows[key], key
            commit = self._shards[shard].hard.offsets.get(group_id, {}).get(place)
            if commit is None or now - window.used_ms > FORGET_MS:
                del self.windows[key]
            else:
                window.add(commit, self._ends.rings.get(window.partition.log))
        if self._left:
            self.due_ms = now + 1
        else:
            self.due_ms = self._began + SAMPLE_MS if self.windows else NEVER
