"""Timers as data: one deadline for each key, and the earliest of them.

Postponing a deadline writes one number: its entry in the heap stays and is checked when it comes up. So the heap costs
one push for each session timeout and member; a heartbeat that has the `Deadline` at hand needs no look-up.

A cleared deadline leaves its entry too. Stale entries are removed when they outnumber the others, which happens if
members come and go all the time. Why a heap: docs/decisions/0011.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from kohort.coordinator.events import Millis

K = TypeVar("K", bound=Hashable)

SPARE_PLACES = 1_000
GONE: Millis = 1 << 60
"""The time of a cleared or served deadline: later than any other."""


class Deadline:
    """The deadline of a key. It is the same object until it is cleared or served."""

    __slots__ = ("when",)

    def __init__(self, when: Millis) -> None:
        self.when = when

    def postpone(self, when: Millis) -> bool:
        """Move it to a later time or keep it; the last result of `Deadlines.next` is still early enough.

        False, and nothing changed, if it is no longer armed or would become earlier."""
        if when < self.when:
            return False
        self.when = when
        return True


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._due: dict[K, Deadline] = {}
        self._placed: dict[K, Millis] = {}
        """The time of the key's earliest entry in the heap."""
        self._heap: list[tuple[Millis, int, K]] = []
        self.placings = 0
        """The number of entries added to the heap. While it is the same, `next` gets no earlier."""

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def get(self, key: K) -> Millis | None:
        due = self._due.get(key)
        return None if due is None else due.when

    def find(self, key: K) -> Deadline | None:
        """The deadline as an object that can be postponed."""
        return self._due.get(key)

    @property
    def places(self) -> int:
        """Entries of the heap, including stale ones."""
        return len(self._heap)

    def items(self) -> list[tuple[K, Millis]]:
        return sorted(((key, due.when) for key, due in self._due.items()), key=lambda item: (item[1], str(item[0])))

    def set(self, key: K, when: Millis) -> None:
        due = self._due.get(key)
        if due is None:
            self._due[key] = Deadline(when)
        else:
            due.when = when
        placed = self._placed.get(key)
        if placed is None or when < placed:
            self._place(key, when)

    def lengthen(self, by: Millis, which: Callable[[K], bool], now: Millis) -> list[K]:
        """Move the deadlines with these keys to a later time. Returns the keys of those that were due."""
        were_due = []
        for key, due in self._due.items():
            if which(key):
                if due.when <= now:
                    were_due.append(key)
                due.when += by
        return were_due

    def clear(self, key: K) -> None:
        due = self._due.pop(key, None)
        if due is not None:
            due.when = GONE

    def _place(self, key: K, when: Millis) -> None:
        self._placed[key] = when
        self.placings += 1
        heappush(self._heap, (when, self.placings, key))
        if len(self._heap) > 2 * len(self._due) + SPARE_PLACES:
            self._clear_up()

    def _clear_up(self) -> None:
        """Drop stale entries. The others keep their order, also among deadlines that are due together."""
        self._heap = [entry for entry in self._heap if entry[2] in self._due and self._placed.get(entry[2]) == entry[0]]
        heapify(self._heap)
        self._placed = {key: when for when, _, key in self._heap}

    def next(self) -> Millis | None:
        heap = self._heap
        while heap:
            when, _, key = heap[0]
            due = self._due.get(key)
            if due is not None and due.when == when:
                return when
            heappop(heap)
            if self._placed.get(key) == when:
                del self._placed[key]
                if due is not None:
                    self._place(key, due.when)
        return None

    def pop_due(self, now: Millis) -> K | None:
        """The key with the earliest deadline, which is cleared; None if no deadline is due.

        One deadline at a time, because serving it may move or clear other due deadlines."""
        when = self.next()
        if when is None or when > now:
            return None
        key = heappop(self._heap)[2]
        del self._placed[key]
        self.clear(key)
        return key
