"""Fetches that wait for data (long poll): the logs they watch, the bytes they still miss, their deadlines.

Appended bytes become readable with the commit. So an append only marks a fetch as woken, and the broker answers it in
the next turn. The heap orders deadlines; entries of fetches that were answered earlier are dropped when they reach the
top.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from kohort.broker.turn import Millis
from kohort.coordinator.events import RequestId
from kohort.storage.protocol import LogKey


class FetchWait:
    __slots__ = ("context", "deadline_ms", "logs", "missing_bytes", "request")

    def __init__(
        self, request: Any, context: Any, logs: tuple[LogKey, ...], missing_bytes: int, deadline_ms: Millis
    ) -> None:
        self.request = request
        self.context = context
        self.logs = logs
        self.missing_bytes = missing_bytes
        self.deadline_ms = deadline_ms


class FetchWaits:
    def __init__(self) -> None:
        self.woken: dict[RequestId, FetchWait] = {}
        """The next turn answers these, in the order of waking."""
        self._parked: dict[RequestId, FetchWait] = {}
        self._by_log: dict[LogKey, dict[RequestId, FetchWait]] = {}
        self._heap: list[tuple[Millis, RequestId]] = []

    def park(self, wait: FetchWait) -> None:
        request_id = wait.context.request_id
        self._parked[request_id] = wait
        for log in wait.logs:
            self._by_log.setdefault(log, {})[request_id] = wait
        heapq.heappush(self._heap, (wait.deadline_ms, request_id))
        if len(self._heap) > 2 * len(self._parked) + 64:
            self._heap = [(parked.deadline_ms, parked_id) for parked_id, parked in self._parked.items()]
            heapq.heapify(self._heap)

    def remove(self, request_id: RequestId) -> FetchWait | None:
        wait = self._parked.pop(request_id, None)
        if wait is None:
            return None
        self.woken.pop(request_id, None)
        for log in wait.logs:
            watching = self._by_log.get(log)
            if watching is not None:
                watching.pop(request_id, None)
                if not watching:
                    del self._by_log[log]
        return wait

    def appended(self, log: LogKey, size: int) -> None:
        """`size` bytes become readable with this turn's commit."""
        watching = self._by_log.get(log)
        if watching is None:
            return
        for request_id, wait in watching.items():
            wait.missing_bytes -= size
            if wait.missing_bytes <= 0:
                self.woken[request_id] = wait

    def wake(self, logs: Iterable[LogKey]) -> None:
        """These logs were deleted, moved or trimmed."""
        for log in logs:
            self.woken.update(self._by_log.get(log, {}))

    def take_waiting(self, request_id: RequestId) -> FetchWait | None:
        """Remove a fetch, unless it is woken and the next turn answers it."""
        return None if request_id in self.woken else self.remove(request_id)

    def take_woken(self) -> list[FetchWait]:
        return self._take(self.woken)

    def take_due(self, now: Millis) -> list[FetchWait]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            wait = self.remove(heapq.heappop(self._heap)[1])
            if wait is not None:
                due.append(wait)
        return due

    def take_all(self) -> list[FetchWait]:
        return self._take(self._parked)

    def _take(self, waits: dict[RequestId, FetchWait]) -> list[FetchWait]:
        taken = list(waits.values())
        for wait in taken:
            self.remove(wait.context.request_id)
        return taken

    def next_deadline(self) -> Millis | None:
        while self._heap and self._heap[0][1] not in self._parked:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
