"""Timers as data: a deadline for each key, and which is next.

Moving a deadline into the future writes one number: its place in the heap stays and is looked at again when it comes
up. So a heartbeat costs a dictionary write, and the heap one push a session timeout and member.

A deadline that is cleared leaves its place behind as well. Where members come and go all the time, such places would
outnumber the others, so the heap is cleared of them now and then.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from kohort.coordinator.events import Millis

K = TypeVar("K", bound=Hashable)

SPARE_PLACES = 1_000


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

    @property
    def places(self) -> int:
        """Of the heap, those that are out of date among them."""
        return len(self._heap)

    def items(self) -> list[tuple[K, Millis]]:
        return sorted(self._due.items(), key=lambda item: (item[1], str(item[0])))

    def set(self, key: K, when: Millis) -> None:
        self._due[key] = when
        placed = self._placed.get(key)
        if placed is None or when < placed:
            self._place(key, when)

    def postpone(self, key: K, when: Millis) -> bool:
        """Move an armed deadline to a later time, or keep it; what `next` told last is still early enough.

        False when it is not armed, or would come earlier: then nothing is changed."""
        due = self._due.get(key)
        if due is None or when < due:
            return False
        self._due[key] = when
        return True

    def clear(self, key: K) -> None:
        self._due.pop(key, None)

    def _place(self, key: K, when: Millis) -> None:
        self._placed[key] = when
        self._count += 1
        heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 2 * len(self._due) + SPARE_PLACES:
            self._clear_up()

    def _clear_up(self) -> None:
        """Drop places that have no deadline. The others keep theirs, so what is due together stays in its order."""
        self._heap = [entry for entry in self._heap if entry[2] in self._due and self._placed.get(entry[2]) == entry[0]]
        heapify(self._heap)
        self._placed = {key: when for when, _, key in self._heap}

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
