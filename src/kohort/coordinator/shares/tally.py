"""What became of the records of a share-partition since it was loaded: counts, and the newest archived records.

Soft state, for operators: nothing is decided by it. The log has no reasons, so a restart forgets them; the journal
keeps those of rejected records and of those that were delivered too often.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from kohort.coordinator.events import Millis
from kohort.coordinator.shares.cells import ACKNOWLEDGED, ARCHIVING, AVAILABLE, Cell
from kohort.coordinator.shares.events import GAP, NONE_WRITTEN, PENDING, REJECT, AckBatch, Archived, ShareKey
from kohort.coordinator.shares.share_partition import Lock

DELIVERED, ACCEPTED, RELEASED, EXPIRED, SESSION_OVER = "delivered", "accepted", "released", "lock ended", "session over"
REJECTED, TOO_OFTEN, GAPS, SKIPPED = "rejected", "delivered too often", "gaps", "skipped"
OUTCOMES = (DELIVERED, ACCEPTED, RELEASED, EXPIRED, SESSION_OVER, REJECTED, TOO_OFTEN, GAPS, SKIPPED)
"""What is counted, in records. The first is a delivery, and the others end one. SKIPPED are records that are not to be
delivered, because their transaction was aborted or they are no longer in the log."""
DEAD_LETTERS, WITHOUT_DEAD_LETTER = "dead letters", "without a dead letter"
"""Counted besides: what became of the rejected records, and those delivered too often, of a group with a dead-letter
topic."""
KEPT = 50
"""Ranges of archived records of a share-partition."""
MOST_KEPT = 4_000
"""Ranges of all share-partitions of a shard: some megabyte."""


class Tally:
    __slots__ = ("archived", "counts", "moved_ms")

    def __init__(self, now: Millis) -> None:
        self.counts: dict[str, int] = {}
        self.archived: deque[Archived] | None = None
        """The newest last; None before the first."""
        self.moved_ms = now
        """When the start moved last, or the share-partition was loaded."""

    def count(self, outcome: str, records: int) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + records

    def acknowledged(
        self, member: str, batches: Sequence[AckBatch], cells: Iterable[Cell], now: Millis
    ) -> list[Archived]:
        """Returns what was archived, and not only a gap."""
        found: list[Archived] = []
        for first, last, state, count in cells:
            if state == ACKNOWLEDGED:
                self.count(ACCEPTED, last - first + 1)
            elif state == AVAILABLE:
                self.count(RELEASED, last - first + 1)
            else:
                for low, high, kind in _types(batches, first, last):
                    if kind == GAP:
                        self.count(GAPS, high - low + 1)
                    else:
                        why = REJECTED if kind == REJECT else TOO_OFTEN
                        found.append(Archived(low, high, count, why, member, now, _fate(state)))
        self._keep(found)
        return found

    def ended(self, why: str, cells: Iterable[Cell], locks: Sequence[Lock], now: Millis) -> list[Archived]:
        """Locks ended without an acknowledgement. Returns what was archived. `locks`: those that were there before."""
        found: list[Archived] = []
        at = 0
        for first, last, state, count in cells:
            if state == AVAILABLE:
                self.count(why, last - first + 1)
                continue
            while at < len(locks) and locks[at][1] < first:
                at += 1
            member = locks[at][2] if at < len(locks) else ""
            found.append(Archived(first, last, count, TOO_OFTEN, member, now, _fate(state)))
        self._keep(found)
        return found

    def dead_lettered(self, ranges: Sequence[tuple[int, int]], where: str) -> None:
        """`where`: the dead-letter topic; empty if there are no dead letters of these records."""
        for first, last in ranges:
            self.count(DEAD_LETTERS if where else WITHOUT_DEAD_LETTER, last - first + 1)
        if self.archived is not None:
            told = where or NONE_WRITTEN
            self.archived = deque(
                (
                    one._replace(dead_letter=told)
                    if one.dead_letter == PENDING and any(first <= one.last <= last for first, last in ranges)
                    else one
                    for one in self.archived
                ),
                maxlen=KEPT,
            )

    def forget(self, ranges: Sequence[tuple[int, int]]) -> None:
        """These records are delivered again."""
        for first, last in ranges:
            kept: list[Archived] = []
            for one in self.archived or ():
                if one.last < first or last < one.first:
                    kept.append(one)
                    continue
                if one.first < first:
                    kept.append(one._replace(last=first - 1))
                if last < one.last:
                    kept.append(one._replace(first=last + 1))
            if self.archived is not None:
                self.archived = deque(kept, maxlen=KEPT)

    def _keep(self, found: Sequence[Archived]) -> None:
        for one in found:
            self.count(one.why, one.last - one.first + 1)
        if found:
            if self.archived is None:
                self.archived = deque(maxlen=KEPT)
            self.archived.extend(found)


class KeptRanges:
    """Limits the ranges of all tallies: the share-partition that archived least recently forgets its own."""

    def __init__(self, tallies: dict[ShareKey, Tally]) -> None:
        self._tallies = tallies
        self._by_key: dict[ShareKey, int] = {}
        """How many ranges each tally keeps; the one that archived last is the last."""
        self._total = 0

    def changed(self, key: ShareKey) -> None:
        """Called when a tally has other ranges than before, or is gone."""
        self._total -= self._by_key.pop(key, 0)
        tally = self._tallies.get(key)
        if tally is None or not tally.archived:
            return
        self._by_key[key] = len(tally.archived)
        self._total += len(tally.archived)
        while self._total > MOST_KEPT:
            oldest = next(iter(self._by_key))
            self._total -= self._by_key.pop(oldest)
            self._tallies[oldest].archived = None

    def validate(self) -> None:
        kept = {key: len(tally.archived) for key, tally in self._tallies.items() if tally.archived}
        assert kept == self._by_key, f"{kept} ranges are kept, and {self._by_key} counted"
        assert self._total == sum(kept.values()) <= MOST_KEPT, f"{self._total} ranges are kept"


def _fate(state: int) -> str:
    return PENDING if state == ARCHIVING else ""


def _types(batches: Iterable[AckBatch], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a range that have one type each."""
    for batch in batches:
        low, high = max(batch.first, first), min(batch.last, last)
        if low > high:
            continue
        if len(batch.types) == 1:
            yield low, high, batch.types[0]
            continue
        for kind, of_kind in groupby(batch.types[low - batch.first : high - batch.first + 1]):
            count = sum(1 for _ in of_kind)
            yield low, low + count - 1, kind
            low += count
