"""The memory engine: for tests, the simulator and servers without a data directory.

A log is a list of batches in offset order with parallel lists to bisect in: base offsets, and the largest timestamp up
to and including each batch. The latter never falls along the log, so the first batch at or after an instant is found
by bisecting it.

Faults for tests: `fail_at_commit` makes the n-th commit (counted from 1) fail with nothing of it done, a second
`acquire` fences the first writer, and `copy` is the disk as a kill -9 at this moment would leave it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from kohort.storage.check import Extent, check_operations
from kohort.storage.protocol import (
    ABORT_MARKER,
    NO_END,
    TRANSACTIONAL,
    Append,
    BatchInfo,
    CreateLog,
    DeleteLog,
    Fenced,
    KeepProducers,
    Lease,
    LogInfo,
    LogKey,
    Operation,
    ProducerBatch,
    Replace,
    StorageError,
    StoredBatch,
    Trim,
    info_of,
    of_producer,
    opened,
)


class _Log:
    __slots__ = (
        "bases",
        "batches",
        "end_offset",
        "kept_producers",
        "newest",
        "open_transactions",
        "producers",
        "size",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.size = 0
        self.batches: list[StoredBatch] = []
        self.bases: list[int] = []
        self.newest: list[int] = []
        self.producers: dict[int, list[StoredBatch]] = {}
        self.kept_producers = b""
        self.open_transactions = 0

    def add(self, batch: StoredBatch) -> None:
        newest = self.newest[-1] if self.newest else batch.max_timestamp
        self.batches.append(batch)
        self.bases.append(batch.base_offset)
        self.newest.append(max(newest, batch.max_timestamp))
        self.size += len(batch.data)
        if batch.producer_id >= 0:
            self.producers.setdefault(batch.producer_id, []).append(batch)

    def rebuild(self, batches: list[StoredBatch]) -> None:
        self.batches, self.bases, self.newest, self.producers, self.size = [], [], [], {}, 0
        for batch in batches:
            self.add(batch)

    def index_of(self, offset: int) -> int:
        """The index of the batch that holds `offset`, or of the next one after it."""
        index = bisect_right(self.bases, offset) - 1
        if index >= 0 and self.batches[index].last_offset >= offset:
            return index
        return index + 1

    def copy(self) -> _Log:
        twin = _Log(self.start_offset)
        twin.end_offset = self.end_offset
        twin.kept_producers = self.kept_producers
        twin.open_transactions = self.open_transactions
        twin.rebuild(self.batches)
        return twin


class MemoryReader:
    """Reads the memory engine. It has no view of its own: call it between two commits."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int = NO_END) -> list[StoredBatch]:
        return [batch for batch in self._storage.read(log, offset, max_bytes) if batch.base_offset < end_offset]

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        return self._storage.batches(log, offset)

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        return self._storage.first_at_or_after(log, timestamp)

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        return self._storage.max_timestamp(log)

    def close(self) -> None:
        """Nothing to release."""


class MemoryStorage:
    """Keeps everything in this process's memory. See the module's text for the faults it can play."""

    is_ours: Callable[[], bool] | None = None

    def __init__(self, *, fail_at_commit: int | None = None) -> None:
        self.fail_at_commit = fail_at_commit
        self.commits = 0
        """Commits tried so far."""
        self._logs: dict[LogKey, _Log] = {}
        self._failed = False
        self._lease = Lease(0)

    def copy(self) -> MemoryStorage:
        """An independent engine with everything committed so far, and no faults."""
        twin = MemoryStorage()
        twin._logs = {key: log.copy() for key, log in self._logs.items()}
        return twin

    def acquire(self) -> Lease:
        self._lease = Lease(self._lease + 1)
        return self._lease

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        if lease != self._lease:
            raise Fenced
        if self._failed:
            raise StorageError("an earlier commit failed; this engine takes no more writes")
        self.commits += 1
        if self.commits == self.fail_at_commit:
            self._failed = True
            raise StorageError(f"commit {self.commits} fails, as this test asked")
        check_operations(operations, self._extent)
        for operation in operations:
            self._apply(operation)

    def _extent(self, key: LogKey) -> Extent | None:
        log = self._logs.get(key)
        return None if log is None else Extent(log.start_offset, log.end_offset)

    def _apply(self, operation: Operation) -> None:
        match operation:
            case CreateLog(log=key, start_offset=start_offset, open_transactions=open_transactions):
                self._logs[key] = _Log(start_offset)
                self._logs[key].open_transactions = open_transactions
            case DeleteLog(log=key):
                del self._logs[key]
            case Append(log=key, batches=batches):
                log = self._logs[key]
                for batch in batches:
                    log.add(batch)
                    log.end_offset = batch.last_offset + 1
                    log.open_transactions += opened(batch)
            case Trim(log=key, start_offset=start_offset):
                log = self._logs[key]
                if start_offset > log.start_offset:
                    log.start_offset = start_offset
                    log.rebuild(log.batches[log.index_of(start_offset) :])
            case Replace(log=key, first=first, last=last, batches=batches):
                log = self._logs[key]
                begin, end = bisect_left(log.bases, first), bisect_right(log.bases, last)
                log.rebuild([*log.batches[:begin], *batches, *log.batches[end:]])
            case KeepProducers(log=key, data=data):
                self._logs[key].kept_producers = data

    def logs(self) -> list[LogInfo]:
        return [
            LogInfo(key, log.start_offset, log.end_offset, log.size, log.open_transactions)
            for key, log in sorted(self._logs.items(), key=lambda item: item[0])
        ]

    def log_info(self, log: LogKey) -> LogInfo | None:
        held = self._logs.get(log)
        if held is None:
            return None
        return LogInfo(log, held.start_offset, held.end_offset, held.size, held.open_transactions)

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        held = self._logs.get(log)
        if held is None:
            return []
        found: list[StoredBatch] = []
        room = max_bytes
        for index in range(held.index_of(offset), len(held.batches)):
            batch = held.batches[index]
            room -= len(batch.data)
            if room < 0 and found:
                break
            found.append(batch)
            if room <= 0:
                break
        return found

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        held = self._logs.get(log)
        if held is not None:
            for index in range(held.index_of(offset), len(held.batches)):
                yield info_of(held.batches[index])

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        held = self._logs.get(log)
        if held is not None:
            index = bisect_left(held.newest, timestamp)
            if index < len(held.batches):
                return held.batches[index]
        return None

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        held = self._logs.get(log)
        if held is None or not held.batches:
            return None
        return info_of(held.batches[bisect_left(held.newest, held.newest[-1])])

    def producer_batches(self, log: LogKey, producer_id: int, limit: int) -> list[ProducerBatch]:
        if limit <= 0:
            return []
        batches = [batch for batch in self._of_producer(log, producer_id) if batch.kind <= TRANSACTIONAL]
        return [of_producer(batch) for batch in batches[-limit:]]

    def last_of_producer(self, log: LogKey, producer_id: int) -> ProducerBatch | None:
        batches = self._of_producer(log, producer_id)
        return of_producer(batches[-1]) if batches else None

    def _of_producer(self, log: LogKey, producer_id: int) -> list[StoredBatch]:
        held = self._logs.get(log)
        return held.producers.get(producer_id, []) if held is not None else []

    def producers_ending_before(self, log: LogKey, offset: int) -> list[BatchInfo]:
        held = self._logs.get(log)
        if held is None:
            return []
        return [
            info_of(batches[-1])
            for _, batches in sorted(held.producers.items())
            if batches[0].base_offset < offset
            and all(batch.last_offset < offset for batch in batches if batch.kind <= TRANSACTIONAL)
        ]

    def open_transactions(self, log: LogKey) -> list[BatchInfo]:
        return [info_of(last) for last in self._lasts(log) if last.kind == TRANSACTIONAL]

    def _lasts(self, log: LogKey) -> list[StoredBatch]:
        held = self._logs.get(log)
        return [] if held is None else [held.producers[producer_id][-1] for producer_id in sorted(held.producers)]

    def aborted_transactions(self, log: LogKey) -> list[BatchInfo]:
        held = self._logs.get(log)
        batches = [] if held is None else held.batches
        return [info_of(batch) for batch in batches if batch.kind == ABORT_MARKER and batch.transaction_start >= 0]

    def kept_producers(self, log: LogKey) -> bytes:
        held = self._logs.get(log)
        return b"" if held is None else held.kept_producers

    def producers(self, log: LogKey, after: int = -1, limit: int = 1 << 31) -> list[int]:
        held = self._logs.get(log)
        ids = held.producers if held is not None else ()
        return sorted(producer_id for producer_id in ids if producer_id > after)[:limit]

    def reader(self) -> MemoryReader:
        return MemoryReader(self)

    def abandon(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to release; committed data stays readable (a restart in the same process)."""
