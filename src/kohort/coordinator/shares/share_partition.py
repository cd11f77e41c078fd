"""A share-partition while it is served: which of its records are locked, by whom, until when.

    start ............................................ end
      finished   locked   available   locked   finished  | not fetched yet

`start` and what is stored of offsets are hard state (state.py). Locks, and how far records were fetched, are soft:
after a restart nothing is locked, and what was locked is available again, with the count that was stored last.

Methods change locks only. What they find finished or given back is returned as cells, which the shard writes.

Source: SharePartition.java; rows SH31 to SH53 of the specification.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from kohort.coordinator.events import Millis
from kohort.coordinator.shares.cells import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Cell,
    finished_up_to,
    index_at,
    put,
)
from kohort.coordinator.shares.events import (
    ACCEPT,
    GAP,
    RECORD_LIMIT,
    RELEASE,
    RENEW,
    AckBatch,
    Acquire,
    Acquired,
    Span,
)
from kohort.coordinator.shares.settings import ShareSettings
from kohort.coordinator.shares.state import ShareState
from kohort.wire.errors import ErrorCode

Lock = tuple[int, int, str, int, Millis]
"""First offset, last offset, member, count of deliveries with this one, when it ends."""
Run = tuple[int, int, int]
"""First offset, last offset, how often it was delivered: available."""
INVALID = ErrorCode.INVALID_RECORD_STATE


def careful_from(limit: int) -> int:
    """The count of deliveries from which on a range is delivered by itself, and in smaller and smaller parts, so that
    one bad record does not take others with it (SH39)."""
    return max(2, (limit + 1) // 2)


def careful_size(size: int, count: int, limit: int) -> int:
    if count >= limit - 1 > 1:
        return 1
    return max(1, size >> (count - careful_from(limit) + 1))


class SharePartition:
    __slots__ = ("_firsts", "_free_from", "_locks", "due", "end", "leader_epoch", "state")

    def __init__(self, state: ShareState, leader_epoch: int) -> None:
        self.state = state
        self.leader_epoch = leader_epoch
        """Of the leader that serves it."""
        self.end = state.end
        """Behind the last offset that was fetched."""
        self._locks: list[Lock] = []
        """In order."""
        self._firsts: list[int] = []
        """The first offset of each lock."""
        self._free_from = state.start
        """Nothing below is available."""
        self.due: Millis | None = None
        """No lock ends earlier."""

    # -- reading

    @property
    def locks(self) -> Sequence[Lock]:
        return self._locks

    @property
    def entries(self) -> int:
        """Ranges in memory."""
        return len(self._locks) + len(self.state.cells)

    def fetch_offset(self) -> int:
        """The first available offset, or the one behind all that was fetched (SH34)."""
        for first, _, _ in self.free_runs(max(self._free_from, self.state.start), self.end - 1):
            self._free_from = first
            return first
        self._free_from = self.end
        return self.end

    def has_free(self) -> bool:
        """Something that was fetched before is available."""
        return self.fetch_offset() < self.end

    def is_full(self, settings: ShareSettings) -> bool:
        """Nothing new is fetched (SH37)."""
        return self.end - self.state.start >= settings.max_locks

    def free_runs(self, low: int, high: int) -> Iterator[Run]:
        """What is available of these offsets, which were fetched."""
        locks, cells = self._locks, self.state.cells
        i = max(bisect_right(self._firsts, low) - 1, 0)
        j = index_at(cells, low)
        at = low
        while at <= high:
            while i < len(locks) and locks[i][1] < at:
                i += 1
            if i < len(locks) and locks[i][0] <= at:
                at = locks[i][1] + 1
                continue
            stop = high if i == len(locks) else min(high, locks[i][0] - 1)
            while j < len(cells) and cells[j][1] < at:
                j += 1
            if j < len(cells) and cells[j][0] <= at:
                _, last, state, count = cells[j]
                stop = min(stop, last)
                if state == AVAILABLE:
                    yield at, stop, count
            else:
                if j < len(cells):
                    stop = min(stop, cells[j][0] - 1)
                yield at, stop, 0
            at = stop + 1

    # -- acquiring

    def acquire(self, wanted: Acquire, settings: ShareSettings, now: Millis) -> tuple[Acquired, list[Cell]]:
        """Lock records. Also returns cells of offsets that nobody is to get: those of aborted transactions, and those
        that were in the log when they were fetched first."""
        spans = wanted.spans
        at = max(wanted.offset, self.state.start)
        if not spans or spans[-1].last < at:
            return Acquired(), []
        taking = _Taking(wanted, settings, self.state.start)
        if spans[0].first > at:
            self._skip(at, spans[0].first - 1, taking)
        for span in spans:
            low = max(span.first, at)
            if low > span.last:
                continue
            if span.is_aborted:
                if low >= self.end and taking.window_from + settings.max_locks <= low:
                    break
                self._skip(low, span.last, taking)
            elif not self._take_span(taking, span, low):
                break
        until = now + settings.lock_ms
        for first, last, count in taking.ranges:
            self._lock((first, last, wanted.member, count, until))
        records = sum([last - first + 1 for first, last, _ in taking.ranges])
        skipped = sum([last - first + 1 for first, last, _, _ in taking.archived])
        return Acquired(tuple(taking.ranges), records, skipped), taking.archived

    def _take_span(self, taking: _Taking, span: Span, low: int) -> bool:
        """False if nothing behind it is to be taken."""
        if taking.left <= 0:
            return False
        size = span.last - max(span.first, self.state.start) + 1
        for run in list(self.free_runs(low, min(span.last, self.end - 1))):
            if not taking.take(run, size):
                return False
        first = max(low, self.end)
        if first > span.last:
            return True
        room = taking.settings.max_locks - (self.end - taking.window_from)
        if room <= 0 or taking.left <= 0 or taking.is_careful:
            return False
        last = span.last
        if taking.wanted.mode == RECORD_LIMIT:
            last = min(last, first + min(taking.left, room) - 1)
        taking.add(first, last, 1)
        self.end = last + 1
        return last == span.last

    def _skip(self, low: int, high: int, taking: _Taking) -> None:
        """These offsets are not for anybody."""
        for first, last, count in list(self.free_runs(low, min(high, self.end - 1))):
            self._archive((first, last, ARCHIVED, count), taking)
        if high >= self.end:
            self._archive((max(low, self.end), high, ARCHIVED, 0), taking)
            self.end = high + 1

    def _archive(self, cell: Cell, taking: _Taking) -> None:
        put(taking.archived, cell)
        at, cells = taking.window_from, self.state.cells
        at = finished_up_to(at, cells[index_at(cells, at) :][:1], ())
        if cell[0] <= at <= cell[1]:
            taking.window_from = finished_up_to(cell[1] + 1, cells[index_at(cells, cell[1] + 1) :][:1], ())

    def _lock(self, lock: Lock) -> None:
        at = bisect_right(self._firsts, lock[0])
        self._locks.insert(at, lock)
        self._firsts.insert(at, lock[0])
        if self.due is None or lock[4] < self.due:
            self.due = lock[4]

    # -- the ends of locks

    def acknowledge(
        self, member: str, batches: Sequence[AckBatch], settings: ShareSettings, now: Millis
    ) -> tuple[ErrorCode, list[Cell]]:
        """With an error, nothing has changed."""
        pieces: list[tuple[int, int, int]] = []
        for batch in batches:
            error = self._pieces(batch, pieces)
            if error:
                return error, []
        if not pieces:
            return ErrorCode.NONE, []
        if not settings.renew and any(kind == RENEW for _, _, kind in pieces):
            return INVALID, []
        cells: list[Cell] = []
        kept: list[Lock] = []
        renewed = False
        until = now + settings.lock_ms
        low = i = max(bisect_right(self._firsts, pieces[0][0]) - 1, 0)
        held: Lock | None = None
        for first, last, kind in pieces:
            while first <= last:
                while held is None or held[1] < first:
                    if held is not None:
                        kept.append(held)
                    if i == len(self._locks):
                        return INVALID, []
                    held = self._locks[i]
                    i += 1
                begin, end, holder, count, ends = held
                if begin > first or holder != member:
                    return INVALID, []
                if begin < first:
                    kept.append((begin, first - 1, holder, count, ends))
                stop = min(last, end)
                if kind == RENEW:
                    renewed = True
                    kept.append((first, stop, holder, count, until))
                else:
                    put(cells, (first, stop, _ended(kind, count, settings), count))
                held = (stop + 1, end, holder, count, ends) if stop < end else None
                first = stop + 1
        if held is not None:
            kept.append(held)
        self._replace(low, i, kept)
        if renewed and self.due is not None:
            self.due = min(self.due, until)  # the group's lock duration may be shorter now
        self._note_free(cells)
        return ErrorCode.NONE, cells

    def _pieces(self, batch: AckBatch, pieces: list[tuple[int, int, int]]) -> ErrorCode:
        """Add the parts of a batch that have one type each."""
        first, last, types = batch
        start = self.state.start
        if last < start:
            return ErrorCode.NONE
        if self.end <= start:
            return INVALID
        if first >= self.end or last >= self.end:
            return ErrorCode.INVALID_REQUEST
        if pieces and first <= pieces[-1][1]:
            return INVALID
        if len(types) == 1:
            pieces.append((max(first, start), last, types[0]))
            return ErrorCode.NONE
        if first < start:
            types = types[start - first :]
            first = start
        for kind, of_kind in groupby(types):
            count = sum(1 for _ in of_kind)
            pieces.append((first, first + count - 1, kind))
            first += count
        return ErrorCode.NONE

    def release(self, member: str, settings: ShareSettings) -> list[Cell]:
        """Give back what a member holds."""
        return self._end_locks(lambda lock: lock[2] == member, settings)

    def expire(self, now: Millis, settings: ShareSettings) -> list[Cell]:
        """Give back what was locked until now."""
        cells = self._end_locks(lambda lock: lock[4] <= now, settings)
        self.due = min((lock[4] for lock in self._locks), default=None)
        return cells

    def _end_locks(self, ends: Callable[[Lock], bool], settings: ShareSettings) -> list[Cell]:
        cells: list[Cell] = []
        kept = []
        for lock in self._locks:
            if ends(lock):
                put(cells, (lock[0], lock[1], _ended(RELEASE, lock[3], settings), lock[3]))
            else:
                kept.append(lock)
        if cells:
            self._replace(0, len(self._locks), kept)
            self._note_free(cells)
        return cells

    def lengthen(self, by: Millis) -> None:
        """All locks end later."""
        self._locks = [(first, last, member, count, until + by) for first, last, member, count, until in self._locks]
        self.due = None if self.due is None else self.due + by

    def lead(self, leader_epoch: int) -> None:
        """Another leader serves it: all locks end, without a trace (SH59)."""
        self.leader_epoch = leader_epoch
        self.restart()

    def restart(self) -> None:
        """Only what is stored counts."""
        self._replace(0, len(self._locks), [])
        self.due = None
        self.end = self.state.end
        self._free_from = self.state.start

    def started_at(self, start: int) -> None:
        """`start` has moved. Locks below end: an acknowledgement of theirs has no effect."""
        while self._locks and self._locks[0][0] < start:
            _, last, member, count, until = self._locks[0]
            self._replace(0, 1, [(start, last, member, count, until)] if last >= start else [])
        self.end = max(self.end, start)
        self._free_from = max(self._free_from, start)

    def note_free(self) -> None:
        """Something that was finished may be available again."""
        self._free_from = self.state.start

    def _replace(self, low: int, high: int, locks: list[Lock]) -> None:
        self._locks[low:high] = locks
        self._firsts[low:high] = [lock[0] for lock in locks]

    def _note_free(self, cells: Sequence[Cell]) -> None:
        for first, _, state, _ in cells:
            if state == AVAILABLE:
                self._free_from = min(self._free_from, first)
                return

    # -- for tests

    def check(self) -> None:
        """Raises AssertionError."""
        state, at = self.state, self.state.start
        assert self.end >= state.end, f"fetched up to {self.end}, but {state.cells} are stored"
        for first, last, _, count, until in self._locks:
            assert at <= first <= last < self.end, f"{self._locks} overlap, or are not between {at} and {self.end}"
            assert count > 0
            assert self.due is not None
            assert self.due <= until, "a lock without a deadline"
            at = last + 1
        assert self._firsts == [lock[0] for lock in self._locks]
        before = state.start - 1
        for first, last, kind, _ in state.cells:
            assert before < first <= last, f"{state.cells} are not in order from {state.start} on"
            before = last
            locked = any(lock[0] <= last and first <= lock[1] for lock in self._locks)
            assert kind == AVAILABLE or not locked, f"{first} to {last} are finished and locked"
        first_free = next((run[0] for run in self.free_runs(state.start, self.end - 1)), self.end)
        assert self._free_from <= first_free, f"{first_free} is available, below {self._free_from}"


class _Taking:
    """What one `acquire` takes."""

    __slots__ = ("archived", "is_careful", "left", "ranges", "settings", "wanted", "window_from")

    def __init__(self, wanted: Acquire, settings: ShareSettings, start: int) -> None:
        self.wanted = wanted
        self.archived: list[Cell] = []
        """In order."""
        self.window_from = start
        """Where `start` will be, at least, when these are stored."""
        self.settings = settings
        self.left = wanted.max_records
        self.ranges: list[Run] = []
        self.is_careful = False
        """It has a range that is delivered by itself."""

    def take(self, run: Run, size: int) -> bool:
        """Take what was fetched before, in a batch of this size. False if nothing behind it is to be taken."""
        first, last, count = run
        if self.is_careful:
            return False
        limit = self.settings.delivery_limit
        if count >= careful_from(limit):
            if self.ranges:
                return False
            self.is_careful = True
            last = min(last, first + careful_size(size, count, limit) - 1)
        if self.wanted.mode == RECORD_LIMIT:
            if self.left <= 0:
                return False
            last = min(last, first + self.left - 1)
        self.add(first, last, count + 1)
        return last == run[1] and not self.is_careful

    def add(self, first: int, last: int, count: int) -> None:
        self.left -= last - first + 1
        if self.ranges:
            begin, end, before = self.ranges[-1]
            if end + 1 == first and before == count and end - begin + 1 < self._most():
                self.ranges[-1] = (begin, last, count)
                return
        self.ranges.append((first, last, count))

    def _most(self) -> int:
        """A range of this size is not joined with what follows (SH35)."""
        return max(self.wanted.batch_size, 1) if self.wanted.mode != RECORD_LIMIT else 1 << 62


def _ended(kind: int, count: int, settings: ShareSettings) -> int:
    """The state of a record whose lock ends."""
    if kind == ACCEPT:
        return ACKNOWLEDGED
    if kind == RELEASE and count < settings.delivery_limit:
        return AVAILABLE
    return ARCHIVING if settings.dead_letters and kind != GAP else ARCHIVED
