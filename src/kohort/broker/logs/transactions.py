"""The transactions of a partition: which are open, and which were aborted.

Readers of committed records stop at the last stable offset, before the first record of the oldest open transaction, and
drop the records of aborted ones by an index of them. Rules: Kafka's ProducerStateManager and TransactionIndex.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter

import msgspec


class Aborted(msgspec.Struct, frozen=True, gc=False):
    """An aborted transaction with records in the partition."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int
    """Transactions that end later have no record before it: the last stable offset when the marker was written, or a
    higher one."""


class Transactions:
    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """By producer id: the offset of the first record, ascending."""
        self.aborted: list[Aborted] = []
        """In the order of their markers."""

    @classmethod
    def resumed(cls, begun: Mapping[int, int], aborted: Sequence[tuple[int, int, int]]) -> Transactions:
        """From what storage knows: the open transactions, in any order; of each aborted one, in the order of the
        markers, the producer id, the offset of the first record and that of the marker."""
        transactions = cls()
        transactions.open = dict(sorted(begun.items(), key=lambda item: item[1]))
        stable_offset = min(begun.values(), default=None)
        for producer_id, first_offset, marker_offset in reversed(aborted):
            end = marker_offset + 1
            stable_offset = end if stable_offset is None else min(stable_offset, end)
            transactions.aborted.append(Aborted(producer_id, first_offset, marker_offset, stable_offset))
            stable_offset = min(stable_offset, first_offset)
        transactions.aborted.reverse()
        return transactions

    def appended(self, producer_id: int, base_offset: int) -> int:
        """A transactional batch was appended. Returns the offset of the transaction's first record."""
        return self.open.setdefault(producer_id, base_offset)

    def ended(self, producer_id: int, *, committed: bool, marker_offset: int) -> int:
        """A marker was appended. Returns the offset of the transaction's first record; -1 if it has none, and then
        nothing else changes."""
        first_offset = self.open.pop(producer_id, -1)
        if first_offset >= 0 and not committed:
            stable_offset = self.stable_offset(marker_offset + 1)
            self.aborted.append(Aborted(producer_id, first_offset, marker_offset, stable_offset))
        return first_offset

    def first_open(self) -> tuple[int, int] | None:
        """The producer id and the first offset of the oldest open transaction."""
        return next(iter(self.open.items()), None)

    def trimmed(self, start_offset: int) -> None:
        """The log begins at `start_offset` now. Open transactions stay open, also those without a record left."""
        del self.aborted[: bisect_left(self.aborted, start_offset, key=attrgetter("marker_offset"))]

    def forget(self, markers: AbstractSet[int]) -> None:
        """The log has no record of the aborted transactions that these markers ended."""
        self.aborted = [one for one in self.aborted if one.marker_offset not in markers]

    def stable_offset(self, end: int, start: int = 0) -> int:
        """The last stable offset of a log that readers know from `start` to `end`."""
        first = next(iter(self.open.values()), end)
        return max(min(first, end), min(start, end))

    def aborted_in(self, first: int, end: int) -> list[Aborted]:
        """The aborted transactions with a record or a marker at `first` or later, and a record before `end`."""
        found = []
        begin = bisect_left(self.aborted, first, key=attrgetter("marker_offset"))
        for index in range(begin, len(self.aborted)):
            aborted = self.aborted[index]
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.stable_offset >= end:
                break
        return found
