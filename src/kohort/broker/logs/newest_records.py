"""Reads a log of the broker's own for a replay: the newest record of each key, or all of them.

These logs are compacted by key, so earlier records of a key need not be applied. The newest is the last in the log
among the records that count. A record of a transaction counts when a commit marker follows; the offset of the record
decides its place, not that of the marker. An aborted record hides no other. A record of an open transaction stands
beside the newest of its key, with its producer's id, until the machine learns of the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kohort.coordinator.events import Record
from kohort.storage.protocol import LogKey, Storage, StorageError, StoredBatch
from kohort.wire.batches import BatchHeader, CorruptBatch, RecordColumns, check_crc, decode_columns, read_header
from kohort.wire.errors import ProtocolError
from kohort.wire.markers import read_marker

READ_BYTES = 4 * 1024 * 1024
"""Bytes of a log that the replay reads at a time."""

_Found = tuple[bytes | None, int, int]
"""The value of a record, its timestamp, its offset."""
_Records = dict[bytes | None, _Found]


def newest_records(
    storage: Storage, log: LogKey, offset: int, reading: Callable[[], object] = lambda: None
) -> Iterator[tuple[Record, int]]:
    """The records from `offset` on, in the log's order, each with its timestamp. `reading` is called for each
    READ_BYTES. Raises StorageError."""
    newest: _Records = {}
    open_of: dict[int, _Records] = {}
    """By producer: the newest records of its open transaction."""
    is_sorted = True
    while batches := storage.read(log, offset, READ_BYTES):
        reading()
        for batch in batches:
            header = _header(log, batch)
            if header.is_control:
                is_sorted &= not _end(open_of, newest, log, batch, header)
            else:
                columns = _columns(log, batch, header)
                records = open_of.setdefault(header.producer_id, {}) if header.is_transactional else newest
                for key, value, timestamp, at in zip(
                    columns.keys, columns.values, columns.timestamps, columns.offsets, strict=True
                ):
                    records.pop(key, None)
                    records[key] = (value, timestamp, at)
                if open_of and not header.is_transactional:
                    _drop_deleted(open_of, columns)
        offset = batches[-1].last_offset + 1
    if is_sorted and not open_of:
        for key, (value, timestamp, _) in newest.items():
            if key is not None:
                yield Record(key, value), timestamp
        return
    yield from _in_order(newest, open_of)


def all_records(
    storage: Storage, log: LogKey, offset: int, reading: Callable[[], object] = lambda: None
) -> Iterator[tuple[Record, int]]:
    """As `newest_records`, of a log that is not compacted and has no transactions: every record counts."""
    while batches := storage.read(log, offset, READ_BYTES):
        reading()
        for batch in batches:
            columns = _columns(log, batch, _header(log, batch))
            for key, value, timestamp in zip(columns.keys, columns.values, columns.timestamps, strict=True):
                if key is not None:
                    yield Record(key, value), timestamp
        offset = batches[-1].last_offset + 1


def _in_order(newest: _Records, open_of: dict[int, _Records]) -> Iterator[tuple[Record, int]]:
    found = [(at, key, value, timestamp, -1) for key, (value, timestamp, at) in newest.items()]
    for producer_id, records in open_of.items():
        found += [(at, key, value, timestamp, producer_id) for key, (value, timestamp, at) in records.items()]
    for _, key, value, timestamp, producer_id in sorted(found, key=lambda each: each[0]):
        if key is not None:
            yield Record(key, value, producer_id=producer_id), timestamp


def _drop_deleted(open_of: dict[int, _Records], columns: RecordColumns) -> None:
    """A tombstone takes what is open of its key, also if a newer record hides the tombstone."""
    for key, value in zip(columns.keys, columns.values, strict=True):
        if value is None:
            for records in open_of.values():
                records.pop(key, None)


def _end(open_of: dict[int, _Records], newest: _Records, log: LogKey, batch: StoredBatch, header: BatchHeader) -> bool:
    """Take a marker. Returns whether records of a transaction count now."""
    try:
        marker = read_marker(batch.data, header)
    except ProtocolError as error:
        raise _damaged(log, error) from None
    if marker is None:
        return False
    records = open_of.pop(marker.producer_id, {})
    if not marker.committed:
        return False
    for key, found in records.items():
        known = newest.get(key)
        if known is None or known[2] < found[2]:
            newest[key] = found
    return bool(records)


def _header(log: LogKey, batch: StoredBatch) -> BatchHeader:
    try:
        header = read_header(batch.data)
        if not check_crc(batch.data, header):
            raise CorruptBatch("its checksum is wrong")
    except ProtocolError as error:
        raise _damaged(log, error) from None
    return header


def _columns(log: LogKey, batch: StoredBatch, header: BatchHeader) -> RecordColumns:
    try:
        return decode_columns(batch.data, header)
    except ProtocolError as error:
        raise _damaged(log, error) from None


def _damaged(log: LogKey, error: ProtocolError) -> StorageError:
    return StorageError(f"a record batch of log {log} cannot be read, the data is damaged: {error}")
