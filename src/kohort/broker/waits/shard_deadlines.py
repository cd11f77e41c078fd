"""The earliest deadline of all shards, without a look at each of them in every turn.

A shard's deadline is read after each of its steps, and enters the heap when it has changed. Outdated entries are
dropped when they reach the top.
"""

from __future__ import annotations

import heapq

from kohort.broker.turn import Millis

SHARDS = 4
"""How many shards act before others are served. Members of hundreds of groups may expire in the same moment."""


class ShardDeadlines:
    def __init__(self) -> None:
        self._current: dict[int, Millis] = {}
        self._heap: list[tuple[Millis, int]] = []

    def set(self, shard: int, deadline: Millis | None) -> None:
        if self._current.get(shard) == deadline:
            return
        if deadline is None:
            self._current.pop(shard, None)
            return
        self._current[shard] = deadline
        heapq.heappush(self._heap, (deadline, shard))
        if len(self._heap) > 2 * len(self._current) + 64:
            self._heap = [(at, index) for index, at in self._current.items()]
            heapq.heapify(self._heap)

    def next(self) -> Millis | None:
        heap = self._heap
        while heap and self._current.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: Millis) -> int | None:
        """The shard with the earliest deadline, if that has come. Let it take its step, which sets its next one."""
        at = self.next()
        if at is None or at > now:
            return None
        shard = heapq.heappop(self._heap)[1]
        del self._current[shard]
        return shard
