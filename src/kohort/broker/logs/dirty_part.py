"""Which part of a compacted log is dirty, and whether enough is for a pass (compaction.py).

The last batch is never dirty, nor are batches younger than min.compaction.lag.ms. The newest part of a partition of
`__consumer_offsets` is kept as it was written, because it is the history of the groups: resets, rewinds and pauses. It
is limited in time and bytes (`Kept`). Kafka keeps the active segment, which segment.ms and segment.bytes limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kohort.broker.logs.compaction import Compaction
from kohort.broker.logs.partition import Partition
from kohort.broker.waits.reads import Reads
from kohort.storage.protocol import BatchInfo, Storage

BATCHES_A_LOOK = 5_000
"""Batches that are counted at a time: some ten milliseconds."""


class Kept(NamedTuple):
    """The newest part of a log that stays as it was written: what is within both limits, in whole marks (`_Mark`). The
    last mark always stays, as the last batch of other logs."""

    max_bytes: int
    """0: all of the log may be compacted, up to its last batch."""
    max_ms: int


KEEPS_NOTHING = Kept(0, 0)
MARKS = 16
"""A kept part has marks of at most this fraction of its limits."""


def even_share(sizes: Iterable[int], total: int) -> int:
    """The largest limit with which logs of these sizes, each cut at the limit, have at most `total` bytes together."""
    ascending = sorted(sizes)
    rest = total
    for number, size in enumerate(ascending):
        left = len(ascending) - number
        if size * left >= rest:
            return rest // left
        rest -= size
    return total


class _Mark:
    """Consecutive batches that are counted and not dirty yet."""

    __slots__ = ("end_offset", "newest", "oldest", "size")

    def __init__(self, end_offset: int, size: int, at: int) -> None:
        self.end_offset = end_offset
        self.size = size
        self.oldest = self.newest = at
        """Timestamps."""


class DirtyPart:
    """The part of a log that is not compacted yet: from `first` on. Each of its batches is counted once."""

    def __init__(self, first: int, tombstones_go_ms: int | None = None) -> None:
        self._first = first
        self._tombstones_go_ms = tombstones_go_ms
        """When a pass could drop tombstones, even if nothing was appended."""
        self._next = self._end = first
        self._bytes = 0
        """Of the batches from `_first` to `_end`, which are dirty."""
        self._marks: deque[_Mark] = deque()
        """The counted batches behind these. A batch is dirty when another batch follows it, and it need not be kept."""
        self._marked_bytes = 0
        self._is_followed = False
        """Whether the log has a batch after those that are counted."""
        self.all_counted = False

    def due(
        self,
        partition: Partition,
        storage: Storage,
        now: int,
        reads: Reads | None = None,
        kept: Kept = KEEPS_NOTHING,
    ) -> Compaction | None:
        """A pass, if enough is dirty (min.cleanable.dirty.ratio of the log's bytes, without what is kept) or
        tombstones may go.

        Counts a limited number of batches; while there are more, `all_counted` is false: call again."""
        settings = partition.settings
        if not settings.compact:
            return None
        self._count(partition, storage, now - settings.min_compaction_lag_ms, partition.last_stable_offset, kept)
        self._release(now, kept)
        info = storage.log_info(partition.log)
        if info is not None:
            size = info.size - (self._marked_bytes if kept.max_bytes else 0)
            if self._bytes > settings.min_cleanable_dirty_ratio * size:
                return Compaction(partition, storage, self._first, self._end, reads)
        if self._tombstones_go_ms is not None and now >= self._tombstones_go_ms:
            return Compaction(partition, storage, self._first, self._first, reads)
        return None

    def after(self, done: Compaction) -> DirtyPart:
        """What is dirty after a pass that `due` returned last."""
        if done.clean_to not in (self._first, self._end):
            return DirtyPart(done.clean_to, done.tombstones_go_ms)  # the pass ended early
        if done.clean_to == self._end:
            self._first, self._bytes = self._end, 0
        self._tombstones_go_ms = done.tombstones_go_ms
        return self

    def _count(self, partition: Partition, storage: Storage, youngest: int, stable_offset: int, kept: Kept) -> None:
        self.all_counted = False
        begin = max(self._next, partition.start_offset)
        for count, batch in enumerate(storage.batches(partition.log, begin)):
            if count == BATCHES_A_LOOK:
                return
            self._is_followed = True
            if batch.last_offset >= stable_offset:
                break
            if partition.settings.min_compaction_lag_ms > 0 and batch.max_timestamp > youngest:
                break
            self._mark(batch, begin, kept)
            self._next = batch.last_offset + 1
            self._is_followed = False
        self.all_counted = True

    def _mark(self, batch: BatchInfo, begin: int, kept: Kept) -> None:
        size = batch.size
        if batch.base_offset < begin:  # The engine has joined it with batches that are counted.
            size = size * (batch.last_offset + 1 - begin) // (batch.last_offset + 1 - batch.base_offset)
        self._marked_bytes += size
        at = batch.max_timestamp
        last = self._marks[-1] if self._marks else None
        if (
            last is not None
            and (last.size + size) * MARKS <= kept.max_bytes
            and (at - last.oldest) * MARKS <= kept.max_ms
        ):
            last.end_offset, last.size, last.newest = batch.last_offset + 1, last.size + size, max(last.newest, at)
        else:
            self._marks.append(_Mark(batch.last_offset + 1, size, at))

    def _release(self, now: int, kept: Kept) -> None:
        """What need not be kept is dirty."""
        while len(self._marks) > (not self._is_followed):
            mark = self._marks[0]
            if self._marked_bytes - mark.size < kept.max_bytes and mark.newest > now - kept.max_ms:
                return
            self._marks.popleft()
            self._marked_bytes -= mark.size
            self._bytes += mark.size
            self._end = mark.end_offset
