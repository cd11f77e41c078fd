"""What the engine keeps in memory of a log: all about its batches but their data.

A step may ask for the batches of a log, its producers and transactions, and never waits for the network. So all of this
is loaded when the log is, and changed by each commit: some seventy bytes a batch, in columns.

`newest` never falls along a log: it is the largest timestamp up to each batch, or more where such a batch was removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from kohort.storage.protocol import (
    ABORT_MARKER,
    TRANSACTIONAL,
    BatchInfo,
    LogInfo,
    LogKey,
    ProducerBatch,
    StorageError,
    StoredBatch,
    of_producer,
)

Row = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""base and last offset, largest timestamp, producer id, start of the transaction, leader epoch, coordinator epoch, base
sequence, producer epoch, kind, size"""
_TYPES = "qqqqqiiihbi"
BASE, LAST, TIMESTAMP, PRODUCER, BEGUN, EPOCH, COORDINATOR, SEQUENCE, PRODUCER_EPOCH, KIND, SIZE = range(11)


def row_of(batch: StoredBatch) -> Row:
    sequence = producer_epoch = -1
    if batch.producer_id >= 0:
        written = of_producer(batch)
        sequence, producer_epoch = written.base_sequence, written.producer_epoch
    return (
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        batch.producer_id,
        batch.transaction_start,
        batch.leader_epoch,
        batch.coordinator_epoch,
        sequence,
        producer_epoch,
        batch.kind,
        len(batch.data),
    )


def _opened(row: Row) -> int:
    """See `protocol.opened`."""
    if row[KIND] == TRANSACTIONAL:
        return int(row[BEGUN] == row[BASE])
    return -int(row[KIND] > TRANSACTIONAL and row[BEGUN] >= 0)


def _is_abort(row: Row) -> bool:
    return row[KIND] == ABORT_MARKER and row[BEGUN] >= 0


class LogIndex:
    def __init__(self, no: int, key: LogKey, start_offset: int, end_offset: int, removed_opened: int = 0) -> None:
        self.no = no
        self.key = key
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.size = 0
        self.open_transactions = self.removed_opened = removed_opened
        self.kept_producers = b""
        self._columns = tuple(array(code) for code in _TYPES)
        self._bases, self._lasts, self._timestamps = self._columns[:3]
        self._newest = array("q")
        self._of_producer: dict[int, array[int]] = {}
        """Producer id: the base offsets of its batches."""
        self._aborts = array("q")
        """The base offsets of the markers that aborted records."""

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def first_batch(self) -> int:
        """The base offset of the first batch; the end of the log if there is none."""
        return self._bases[0] if self._bases else self.end_offset

    def info(self) -> LogInfo:
        return LogInfo(self.key, self.start_offset, self.end_offset, self.size, self.open_transactions)

    # -- changes

    def add(self, row: Row) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        newest = self._newest[-1] if self._newest else row[TIMESTAMP]
        self._newest.append(max(newest, row[TIMESTAMP]))
        self.size += row[SIZE]
        self.end_offset = max(self.end_offset, row[LAST] + 1)
        if row[PRODUCER] >= 0:
            self._of_producer.setdefault(row[PRODUCER], array("q")).append(row[BASE])
            if _is_abort(row):
                self._aborts.append(row[BASE])
            self.open_transactions += _opened(row)

    def append(self, batch: StoredBatch) -> None:
        self.add(row_of(batch))

    def trim(self, start_offset: int) -> None:
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset
        self._remove(0, self.index_of(start_offset))

    def replace(self, first: int, last: int, batches: Sequence[StoredBatch]) -> None:
        begin, end = bisect_left(self._bases, first), bisect_right(self._bases, last)
        if begin == end:
            raise StorageError(f"Replace: no batch begins between {first} and {last}")
        bound = self._newest[end - 1]
        newest = self._newest[begin - 1] if begin else -1
        if any(batch.max_timestamp > bound for batch in batches):
            raise StorageError("Replace: its batches are newer than those they replace")
        self._remove(begin, end)
        rows = [row_of(batch) for batch in batches]
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=False):
            column[begin:begin] = array(column.typecode, values)
        self._newest[begin:begin] = array("q", accumulate([max(newest, row[TIMESTAMP]) for row in rows], max))
        for row in rows:
            self.size += row[SIZE]
            if row[PRODUCER] >= 0:
                _insert(self._of_producer.setdefault(row[PRODUCER], array("q")), row[BASE])
                if _is_abort(row):
                    _insert(self._aborts, row[BASE])
                self.removed_opened -= _opened(row)

    def _remove(self, begin: int, end: int) -> None:
        """The number of open transactions stays: what the batches opened is remembered."""
        if begin == end:
            return
        first, last = self._bases[begin], self._bases[end - 1]
        self.size -= sum(self._columns[SIZE][begin:end])
        producers = self._columns[PRODUCER]
        positions = [position for position in range(begin, end) if producers[position] >= 0]
        self.removed_opened += sum(_opened(self.row(position)) for position in positions)
        for producer_id in {producers[position] for position in positions}:
            bases = self._of_producer[producer_id]
            del bases[bisect_left(bases, first) : bisect_right(bases, last)]
            if not bases:
                del self._of_producer[producer_id]
        del self._aborts[bisect_left(self._aborts, first) : bisect_right(self._aborts, last)]
        for column in (*self._columns, self._newest):
            del column[begin:end]

    # -- reads

    def row(self, position: int) -> Row:
        return tuple(column[position] for column in self._columns)  # type: ignore[return-value]

    def index_of(self, offset: int) -> int:
        """The position of the batch that holds `offset`, or of the next one after it."""
        position = bisect_right(self._bases, offset) - 1
        if position >= 0 and self._lasts[position] >= offset:
            return position
        return position + 1

    def run(self, offset: int, max_bytes: int, end_offset: int) -> tuple[int, int]:
        """The positions of the batches that a read gives: the first, and the one behind the last."""
        begin = position = self.index_of(offset)
        sizes, bases, room = self._columns[SIZE], self._bases, max_bytes
        while position < len(bases) and bases[position] < end_offset:
            room -= sizes[position]
            if room < 0 and position > begin:
                break
            position += 1
            if room <= 0:
                break
        return begin, position

    def info_at(self, position: int) -> BatchInfo:
        row = self.row(position)
        return BatchInfo(
            row[BASE],
            row[LAST],
            row[TIMESTAMP],
            row[SIZE],
            row[PRODUCER],
            row[EPOCH],
            row[KIND],
            row[BEGUN],
            row[COORDINATOR],
        )

    def infos(self, offset: int) -> Iterator[BatchInfo]:
        for position in range(self.index_of(offset), len(self)):
            yield self.info_at(position)

    def first_at_or_after(self, timestamp: int) -> int | None:
        """The position of the first batch whose largest timestamp is at or after `timestamp`."""
        position = bisect_left(self._newest, timestamp)
        while position < len(self._bases):
            if self._timestamps[position] >= timestamp:
                return position
            position += 1
        return None

    def max_timestamp(self) -> BatchInfo | None:
        if not self._bases:
            return None
        position = bisect_left(self._newest, self._newest[-1])
        if self._timestamps[position] != self._newest[-1]:  # that batch is gone
            position = self._timestamps.index(max(self._timestamps))
        return self.info_at(position)

    # -- producers

    def producers(self, after: int, limit: int) -> list[int]:
        return sorted(producer_id for producer_id in self._of_producer if producer_id > after)[:limit]

    def _last_position(self, producer_id: int) -> int:
        return bisect_left(self._bases, self._of_producer[producer_id][-1])

    def _written(self, position: int) -> ProducerBatch:
        row = self.row(position)
        return ProducerBatch(row[BASE], row[LAST], row[TIMESTAMP], row[COORDINATOR], row[PRODUCER_EPOCH], row[SEQUENCE])

    def producer_batches(self, producer_id: int, limit: int) -> list[ProducerBatch]:
        found: list[ProducerBatch] = []
        for base in reversed(self._of_producer.get(producer_id, ())):
            if len(found) >= limit:
                break
            position = bisect_left(self._bases, base)
            if self._columns[KIND][position] <= TRANSACTIONAL:
                found.append(self._written(position))
        return found[::-1]

    def last_of_producer(self, producer_id: int) -> ProducerBatch | None:
        return self._written(self._last_position(producer_id)) if producer_id in self._of_producer else None

    def producers_ending_before(self, offset: int) -> list[BatchInfo]:
        found = []
        for producer_id, bases in sorted(self._of_producer.items()):
            if bases[0] >= offset:
                continue
            records = self.producer_batches(producer_id, 1)
            if not records or records[0].last_offset < offset:
                found.append(self.info_at(self._last_position(producer_id)))
        return found

    def open_transaction_batches(self) -> list[BatchInfo]:
        if not self.open_transactions:
            return []
        lasts = (self._last_position(producer_id) for producer_id in sorted(self._of_producer))
        return [self.info_at(position) for position in lasts if self._columns[KIND][position] == TRANSACTIONAL]

    def aborted_transactions(self) -> list[BatchInfo]:
        return [self.info_at(bisect_left(self._bases, base)) for base in self._aborts]


def _insert(values: array[int], value: int) -> None:
    values.insert(bisect_left(values, value), value)
