"""Timers as data: a deadline for each key, and which is next.

Moving a deadline into the future writes one number: its place in the heap stays and is looked at again when it comes
up. So a heartbeat costs a dictionary write, and the heap one push a session timeout and member.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from kohort.coordinator.events import Millis

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._due: dict[K, Millis] = {}
        self._placed: dict[K, Millis] = {}
        """Where the key's earliest entry stands in the heap."""
        self._heap: list[tuple[Millis, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def get(self, key: K) -> Millis | None:
        return self._due.get(key)

    def items(self) -> list[tuple[K, Millis]]:
        return sorted(self._due.items(), key=lambda item: (item[1], str(item[0])))

    def set(self, key: K, when: Millis) -> None:
        self._due[key] = when
        placed = self._placed.get(key)
        if placed is None or when < placed:
            self._place(key, when)

    def clear(self, key: K) -> None:
        self._due.pop(key, None)

    def _place(self, key: K, when: Millis) -> None:
        self._placed[key] = when
        self._count += 1
        heappush(self._heap, (when, self._count, key))

    def next(self) -> Millis | None:
        heap = self._heap
        while heap:
            when, _, key = heap[0]
            due = self._due.get(key)
            if due == when:
                return when
            heappop(heap)
            if self._placed.get(key) == when:
                del self._placed[key]
                if due is not None:
                    self._place(key, due)
        return None

    def pop_due(self, now: Millis) -> K | None:
        """The key whose deadline came first; it is cleared. None when none has come.

        One at a time, because serving one may move or clear the others that have come by then.
        """
        when = self.next()
        if when is None or when > now:
            return None
        key = heappop(self._heap)[2]
        del self._placed[key]
        del self._due[key]
        return key
