"""The ends of logs in memory: a reader near the end of a log is answered without a read of storage.

A tail has the batches of a log without a gap, from some offset up to the log's end, also those of the turn under way.
All tails share a limit (log.tail.max.bytes). Above it, the batch that was appended first leaves, of whatever log. So
the tails are a window of time over all logs: a reader is in memory while it is less behind than that time.

A tail is only filled by appends. After a start it is empty, and a log that nobody writes to has no tail.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from kohort.storage.protocol import StoredBatch

OVERHEAD = 250
"""The memory of a batch besides its bytes, about."""
NOWHERE = 1 << 62
"""Where an empty tail begins."""
UNUSED = 64
"""Places of batches that have left, before they are given back."""
_GONE = StoredBatch(-1, -1, -1, b"")
"""In the place of a batch that has left."""


_last_offset = attrgetter("last_offset")


def within(batches: Sequence[StoredBatch], max_bytes: int, first: int = 0) -> list[StoredBatch]:
    """The batches from the index `first` on, up to `max_bytes`, and at least one."""
    found: list[StoredBatch] = []
    room = max_bytes
    for at in range(first, len(batches)):
        batch = batches[at]
        room -= len(batch.data)
        if room < 0 and found:
            break
        found.append(batch)
        if room <= 0:
            break
    return found


class Tail:
    """The tail of one log."""

    __slots__ = ("_bases", "_batches", "_end", "_first", "_tails", "left_early", "start")

    def __init__(self, tails: Tails | None) -> None:
        """`tails` is None for a log whose tail stays empty."""
        self._tails = tails
        self.start = NOWHERE
        """The base offset of its first batch."""
        self._end = NOWHERE
        self._bases: list[int] = []
        self._batches: list[StoredBatch] = []
        self._first = 0
        """The index of the first batch that is still there."""
        self.left_early = 0
        """How many batches have left, and have their place in the order of `Tails` still."""

    def append(self, batch: StoredBatch) -> None:
        if self._tails is None:
            return
        if self.start == NOWHERE:
            self.start = batch.base_offset
        elif self._end != batch.base_offset:
            self.drop_up_to(NOWHERE)
            self.start = batch.base_offset
        self._end = batch.last_offset + 1
        self._bases.append(batch.base_offset)
        self._batches.append(batch)
        self._tails.appended(self, len(batch.data) + OVERHEAD)

    def read(self, offset: int, max_bytes: int) -> list[StoredBatch]:
        """Batches from the one that holds `offset` on, which is not before `start`; sizes as for `Storage.read`."""
        batches = self._batches
        index = bisect_right(self._bases, offset, self._first) - 1
        if index >= self._first and batches[index].last_offset < offset:
            index += 1
        return within(batches, max_bytes, max(index, self._first))

    def trim(self, start_offset: int) -> None:
        """Drop the batches that end before `start_offset`."""
        if self.start < start_offset:
            self._drop(bisect_left(self._batches, start_offset, self._first, key=_last_offset))

    def drop_up_to(self, offset: int) -> None:
        """Drop the batches that begin at or before `offset`: they are deleted or replaced in storage."""
        if self.start <= offset:
            self._drop(bisect_right(self._bases, offset, self._first))

    def _drop(self, end: int) -> None:
        """Drop the batches before the index `end`, however many, at once."""
        dropped = self._batches[self._first : end]
        if dropped and self._tails is not None:
            self._begin_at(end)
            self.left_early += len(dropped)
            size = sum([len(batch.data) for batch in dropped]) + len(dropped) * OVERHEAD
            self._tails.left_early(len(dropped), size)

    def drop_first(self) -> int:
        """Returns how many bytes that gives back."""
        size = len(self._batches[self._first].data) + OVERHEAD
        self._begin_at(self._first + 1)
        return size

    def _begin_at(self, first: int) -> None:
        """The batches before this index have left."""
        if first == len(self._batches):
            self._bases.clear()
            self._batches.clear()
            self._first = 0
            self.start = NOWHERE
            return
        self.start = self._bases[first]
        if first >= UNUSED and 2 * first > len(self._batches):
            del self._bases[:first]
            del self._batches[:first]
            self._first = 0
            return
        for index in range(self._first, first):
            self._batches[index] = _GONE
        self._first = first


class Tails:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.size = 0
        """Bytes of all tails."""
        self._order: deque[Tail] = deque()
        """The tail of each batch, in the order of the appends."""
        self._left_early = 0

    def appended(self, tail: Tail, size: int) -> None:
        self._order.append(tail)
        self.size += size
        while self.size > self._most_bytes:
            oldest = self._order.popleft()
            if oldest.left_early:
                oldest.left_early -= 1
                self._left_early -= 1
            else:
                self.size -= oldest.drop_first()

    def left_early(self, count: int, size: int) -> None:
        """So many batches of a tail have left, which have their places in the order still."""
        self.size -= size
        self._left_early += count
        if self._left_early <= UNUSED or 2 * self._left_early <= len(self._order):
            return
        there: deque[Tail] = deque()
        for tail in self._order:
            if tail.left_early:
                tail.left_early -= 1
            else:
                there.append(tail)
        self._order = there
        self._left_early = 0
