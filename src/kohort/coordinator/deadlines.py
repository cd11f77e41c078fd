"""Timers as data: a deadline for each key, and which is next.

Moving a deadline into the future writes one number: its place in the heap stays and is looked at again when it comes
up. So the heap costs one push a session timeout and member, and a heartbeat no look-up, where its deadline is at hand.

A deadline that is cleared leaves its place behind as well. Where members come and go all the time, such places would
outnumber the others, so the heap is cleared of them now and then. Why a heap: docs/decisions/0011.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from kohort.coordinator.events import Millis

K = TypeVar("K", bound=Hashable)

SPARE_PLACES = 1_000
GONE: Millis = 1 << 60
"""When a deadline is that was cleared, or served: later than any."""


class Deadline:
    """When the deadline of a key is. It stays the same object until it is cleared, or served."""

    __slots__ = ("when",)

    def __init__(self, when: Millis) -> None:
        self.when = when

    def postpone(self, when: Millis) -> bool:
        """Move it to a later time, or keep it; what `Deadlines.next` told last is still early enough.

        False when it is not armed any more, or would come earlier: then nothing is changed."""
        if when < self.when:
            return False
        self.when = when
        return True


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._due: dict[K, Deadline] = {}
        self._placed: dict[K, Millis] = {}
        """Where the key's earliest entry stands in the heap."""
        self._heap: list[tuple[Millis, int, K]] = []
        self.placings = 0
        """How often a deadline got a place. While that is the same, `next` is no earlier."""

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def get(self, key: K) -> Millis | None:
        due = self._due.get(key)
        return None if due is None else due.when

    def find(self, key: K) -> Deadline | None:
        """The deadline itself, to be postponed."""
        return self._due.get(key)

    @property
    def places(self) -> int:
        """Of the heap, those that are out of date among them."""
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
        """Drop places that have no deadline. The others keep theirs, so what is due together stays in its order."""
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
        """The key whose deadline came first; it is cleared. None when none has come.

        One at a time, because serving one may move or clear the others that have come by then.
        """
        when = self.next()
        if when is None or when > now:
            return None
        key = heappop(self._heap)[2]
        del self._placed[key]
        self.clear(key)
        return key
