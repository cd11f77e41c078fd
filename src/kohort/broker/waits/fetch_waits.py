"""Fetches that wait for data (long poll): the logs they watch, the bytes they still miss, their deadlines.

Appended bytes become readable with the commit. So an append only marks a fetch as woken, and the broker answers it in
the next turn. While a transaction is open, appended bytes are not readable for readers of committed records: its marker
wakes them. The heap orders deadlines; entries of fetches that were answered earlier are dropped when they reach the
top.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Any, Protocol

from kohort.broker.turn import Millis
from kohort.coordinator.events import RequestId
from kohort.storage.protocol import LogKey

MOST_PARTITIONS = 200_000
"""Partitions of all fetches that wait. A fetch waits if it names at most an eighth of what is left of them."""
SMALL = 100
"""A fetch of so many partitions may always wait."""
TURN_WORK = 2_000
"""Partitions that are read in a turn for fetches that have waited."""
FETCH_WORK = 5
"""A fetch costs as much as so many partitions, besides its partitions."""


ShareLog = tuple[LogKey, str]
"""A log, as a share group reads it."""


class Watched(Protocol):
    """A partition (logs/partition.py)."""

    @property
    def log(self) -> LogKey: ...
    @property
    def holds_readers(self) -> bool:
        """True if readers of committed records wait for a marker."""


class FetchWait:
    __slots__ = (
        "committed",
        "context",
        "deadline_ms",
        "logs",
        "missing_bytes",
        "reads",
        "reads_left",
        "request",
        "share",
        "shares",
        "size",
    )

    def __init__(self, request: Any, context: Any, size: int, deadline_ms: Millis, *, committed: bool = False) -> None:
        self.request = request
        self.context = context
        self.size = size
        """How many partitions the request names."""
        self.deadline_ms = deadline_ms
        self.committed = committed
        """True if it reads committed records alone."""
        self.logs: tuple[LogKey, ...] = ()
        """Those that it watches: bytes that are appended to them may complete it."""
        self.missing_bytes = 0
        self.reads: dict[LogKey, Any] = {}
        """By log: what an earlier turn has asked storage for (reads.py)."""
        self.reads_left = 0
        """How many of these are not done."""
        self.share: Any = None
        """Of a fetch of a share group: what its handler has so far (handlers/shares/fetch.py)."""
        self.shares: tuple[ShareLog, ...] = ()
        """The share-partitions that such a fetch waits for, instead of `logs`."""


class FetchWaits:
    def __init__(self) -> None:
        self.woken: dict[RequestId, FetchWait] = {}
        """The next turn answers these, in the order of waking."""
        self._parked: dict[RequestId, FetchWait] = {}
        self._by_log: dict[LogKey, dict[RequestId, FetchWait]] = {}
        self._by_share: dict[LogKey, dict[str, list[RequestId]]] = {}
        """By log and share group, in order: the oldest first, also if it was woken in between."""
        self._heap: list[tuple[Millis, RequestId]] = []
        self._partitions = 0
        """How many partitions the parked fetches name."""

    def __len__(self) -> int:
        """How many fetches wait."""
        return len(self._parked)

    def has_room(self, size: int) -> bool:
        """True if a fetch of so many partitions may wait. Large ones leave room for others."""
        return size <= max(SMALL, (MOST_PARTITIONS - self._partitions) // 8)

    def park(self, wait: FetchWait, *, woken: bool = False) -> None:
        """`woken`: the next turn answers it, or parks it again."""
        request_id = wait.context.request_id
        self._parked[request_id] = wait
        self._partitions += wait.size
        for log in wait.logs:
            self._by_log.setdefault(log, {})[request_id] = wait
        for log, group in wait.shares:
            insort(self._by_share.setdefault(log, {}).setdefault(group, []), request_id)
        if woken:
            self.woken[request_id] = wait
        heapq.heappush(self._heap, (wait.deadline_ms, request_id))
        if len(self._heap) > 2 * len(self._parked) + 64:
            self._heap = [(parked.deadline_ms, parked_id) for parked_id, parked in self._parked.items()]
            heapq.heapify(self._heap)

    def remove(self, request_id: RequestId) -> FetchWait | None:
        wait = self._parked.pop(request_id, None)
        if wait is None:
            return None
        self._partitions -= wait.size
        self.woken.pop(request_id, None)
        if wait.shares:
            self._remove_share(wait)
        for log in wait.logs:
            watching = self._by_log.get(log)
            if watching is not None:
                watching.pop(request_id, None)
                if not watching:
                    del self._by_log[log]
        return wait

    def abandon(self, request_id: RequestId) -> None:
        """The client of a fetch has gone. What it was woken for is for somebody else."""
        was_woken = request_id in self.woken
        wait = self.remove(request_id)
        if wait is not None and was_woken:
            for log, group in wait.shares:
                self.share_freed(log, group)

    def _remove_share(self, wait: FetchWait) -> None:
        request_id = wait.context.request_id
        for log, group in wait.shares:
            groups = self._by_share.get(log, {})
            waiting = groups.get(group, [])
            at = bisect_left(waiting, request_id)
            if at < len(waiting) and waiting[at] == request_id:
                del waiting[at]
            if not waiting:
                groups.pop(group, None)
                if not groups:
                    self._by_share.pop(log, None)

    def share_freed(self, log: LogKey, group: str, behind: RequestId | None = None) -> None:
        """There may be records for a member of a share group. The fetch that has waited longest takes them, and then
        wakes the next one if there are more. `behind`: a fetch that did not take them; only later fetches are woken."""
        waiting = self._by_share.get(log, {}).get(group)
        if waiting:
            at = 0 if behind is None else bisect_right(waiting, behind)
            if at < len(waiting) and waiting[at] not in self.woken:
                self.woken[waiting[at]] = self._parked[waiting[at]]

    def appended(self, partition: Watched, size: int) -> None:
        """`size` bytes become readable with this turn's commit."""
        for group in self._by_share.get(partition.log, ()):
            self.share_freed(partition.log, group)
        watching = self._by_log.get(partition.log)
        if watching is None:
            return
        undecided = partition.holds_readers
        for request_id, wait in watching.items():
            if undecided and wait.committed:
                continue
            wait.missing_bytes -= size
            if wait.missing_bytes <= 0:
                self.woken[request_id] = wait

    def wake(self, logs: Iterable[LogKey]) -> None:
        """These logs were deleted, moved or trimmed, or got a marker."""
        for log in logs:
            self.woken.update(self._by_log.get(log, {}))
            for waiting in self._by_share.get(log, {}).values():
                self.woken.update({request_id: self._parked[request_id] for request_id in waiting})

    def take_waiting(self, request_id: RequestId) -> FetchWait | None:
        """Remove a fetch, unless it is woken and the next turn answers it."""
        return None if request_id in self.woken else self.remove(request_id)

    def take_woken(self) -> list[FetchWait]:
        """Remove some woken fetches, in the order of waking; others stay for the next turn."""
        taken: list[FetchWait] = []
        work = 0
        while self.woken and work < TURN_WORK:
            work += self._take(next(iter(self.woken)), taken)
        return taken

    def take_due(self, now: Millis) -> list[FetchWait]:
        """Remove some fetches whose deadline has come; others stay for the next turn."""
        taken: list[FetchWait] = []
        work = 0
        while self._heap and self._heap[0][0] <= now and work < TURN_WORK:
            work += self._take(heapq.heappop(self._heap)[1], taken)
        return taken

    def _take(self, request_id: RequestId, taken: list[FetchWait]) -> int:
        """Remove a fetch. Returns how much work its answer is."""
        wait = self.remove(request_id)
        if wait is None:
            return 0
        taken.append(wait)
        return FETCH_WORK + len(wait.logs) + len(wait.shares)

    def take_all(self) -> list[FetchWait]:
        return [wait for request_id in list(self._parked) if (wait := self.remove(request_id)) is not None]

    def next_deadline(self) -> Millis | None:
        while self._heap and self._heap[0][1] not in self._parked:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
