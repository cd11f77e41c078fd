"""Copies all logs of a storage to an empty one of any engine, and compares them.

A copy has the same batches, byte for byte, with the same offsets, and all that an engine knows of a log besides: its
start and end, the number of open transactions, and the producers that were kept. Removed batches leave traces that the
remaining ones do not have:

- the log's start may lie within its first batch. The copy begins at the batch, and is trimmed;
- compaction may have removed the last batches. Then the copy gets a batch there that is removed again;
- removed batches may have begun transactions. `CreateLog.open_transactions` has their number.

Memory is bounded: some megabytes, and a `LogSum` for each log.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

import google_crc32c
import msgspec

from kohort.storage.protocol import (
    Append,
    CreateLog,
    KeepProducers,
    LogInfo,
    LogKey,
    Operation,
    Replace,
    Storage,
    StoredBatch,
    Trim,
    opened,
)

READ_BYTES = 2 * 1024 * 1024
"""Of a read, and of a commit."""
MOST_OPERATIONS = 1_000
"""Of a commit: small logs are copied together."""

_COLUMNS = struct.Struct(">qqqqibqi")
_COUNT = struct.Struct(">i")
_COUNT_AT = 57
"""Where a batch's header has the number of its records."""

Done = Callable[[int], object]
"""Called with the number of bytes since the last call. It may raise, which ends the work."""


class LogSum(msgspec.Struct, frozen=True):
    """What a log has. Two logs with equal sums are the same."""

    start_offset: int
    end_offset: int
    batches: int
    records: int
    """Fewer than the offsets where records were compacted away."""
    size: int
    """Bytes of the batches."""
    open_transactions: int
    checksum: int
    """CRC-32C of the batches with all that is known of each, of the kept producers, and of what the storage finds of
    open and aborted transactions."""


class _Adding:
    """A sum while it is made."""

    def __init__(self) -> None:
        self._batches = self._records = self._size = self._checksum = 0

    def add(self, batches: list[StoredBatch]) -> None:
        for batch in batches:
            self._batches += 1
            self._records += _COUNT.unpack_from(batch.data, _COUNT_AT)[0]
            self._size += len(batch.data)
            columns = _COLUMNS.pack(
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.producer_id,
                batch.leader_epoch,
                batch.kind,
                batch.transaction_start,
                batch.coordinator_epoch,
            )
            self._checksum = google_crc32c.extend(google_crc32c.extend(self._checksum, columns), batch.data)

    def sum(self, storage: Storage, info: LogInfo) -> LogSum:
        found = msgspec.msgpack.encode(
            (
                storage.kept_producers(info.key),
                storage.open_transactions(info.key),
                storage.aborted_transactions(info.key),
            )
        )
        return LogSum(
            info.start_offset,
            info.end_offset,
            self._batches,
            self._records,
            self._size,
            info.open_transactions,
            google_crc32c.extend(self._checksum, found),
        )


def _read(storage: Storage, info: LogInfo) -> Iterator[list[StoredBatch]]:
    offset = info.start_offset
    while batches := storage.read(info.key, offset, READ_BYTES):
        yield batches
        offset = batches[-1].last_offset + 1


class _Commits:
    """The operations of a copy, some at a time."""

    def __init__(self, target: Storage, done: Done) -> None:
        self._target = target
        self._lease = target.acquire()
        self._done = done
        self._operations: list[Operation] = []
        self._size = 0

    def put(self, operation: Operation, size: int = 0) -> None:
        self._operations.append(operation)
        self._size += size
        if self._size >= READ_BYTES or len(self._operations) >= MOST_OPERATIONS:
            self.commit()

    def commit(self) -> None:
        self._target.commit(self._operations, self._lease)
        self._operations.clear()
        size, self._size = self._size, 0
        self._done(size)


def copy_logs(source: Storage, target: Storage, done: Done) -> dict[LogKey, LogSum]:
    """Copy everything. `target` has no logs. Returns what was read of each log. Raises StorageError."""
    commits = _Commits(target, done)
    sums = {info.key: _copy_log(source, info, commits) for info in source.logs()}
    commits.commit()
    return sums


def _copy_log(source: Storage, info: LogInfo, commits: _Commits) -> LogSum:
    key = info.key
    adding = _Adding()
    is_cut, end = False, -1
    for batches in _read(source, info):
        if end < 0:
            is_cut = batches[0].base_offset < info.start_offset
            first = batches[0].base_offset if is_cut else info.start_offset
            commits.put(CreateLog(key, first, _begun_before(source, info)))
        adding.add(batches)
        commits.put(Append(key, tuple(batches)), sum(len(batch.data) for batch in batches))
        end = batches[-1].last_offset + 1
    if end < 0:
        end = info.start_offset
        commits.put(CreateLog(key, end, info.open_transactions))
    if end < info.end_offset:
        last = info.end_offset - 1
        commits.put(Append(key, (StoredBatch(last, last, -1, b""),)))
        commits.put(Replace(key, last, last, ()))
    if is_cut:
        commits.put(Trim(key, info.start_offset))
    kept = source.kept_producers(key)
    if kept:
        commits.put(KeepProducers(key, kept), len(kept))
    return adding.sum(source, info)


def _begun_before(source: Storage, info: LogInfo) -> int:
    """The open transactions that the remaining batches do not account for."""
    if not source.producers(info.key, limit=1):
        return info.open_transactions
    return info.open_transactions - sum(map(opened, source.batches(info.key, info.start_offset)))


def sums_of(storage: Storage, done: Done) -> dict[LogKey, LogSum]:
    """Read everything. Raises StorageError."""
    return {info.key: sum_of(storage, info, done) for info in storage.logs()}


def sum_of(storage: Storage, info: LogInfo, done: Done) -> LogSum:
    """Read one log. Raises StorageError."""
    adding = _Adding()
    for batches in _read(storage, info):
        adding.add(batches)
        done(sum(len(batch.data) for batch in batches))
    return adding.sum(storage, info)


def differences(before: Mapping[LogKey, LogSum], after: Mapping[LogKey, LogSum]) -> Iterator[tuple[LogKey, str]]:
    """The logs that are not the same, each with what differs."""
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            yield key, "the copy lacks it" if new is None else "only the copy has it"
        elif old != new:
            pairs = ((name, getattr(old, name), getattr(new, name)) for name in LogSum.__struct_fields__)
            yield key, ", ".join(f"{name} {was}, in the copy {now}" for name, was, now in pairs if was != now)
