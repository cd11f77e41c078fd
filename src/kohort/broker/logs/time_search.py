"""Searches logs by time, within limits of records and decompressed bytes. Reads storage: in the step if that is in
memory, or else beside the steps (broker/waits/outcomes.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from kohort.storage.protocol import BatchInfo, LogKey, StoredBatch
from kohort.wire.batches import HEADER_SIZE, Record, decode_records, read_header
from kohort.wire.compression import decompress
from kohort.wire.errors import ProtocolError
from kohort.wire.records import find_time

SEARCHED = 50_000
"""Records that one request for offsets by time reads, up to the end of a batch: ten or twenty milliseconds."""
BYTES_LIKE_A_RECORD = 200
"""Decompressing this many bytes takes as long as reading a record."""
MAX_STORED_BYTES = 128 * 1024 * 1024
"""Largest size of a stored batch when it is decompressed. Larger than any setting, so that every batch that was ever
accepted can be read."""


class Located(msgspec.Struct, frozen=True, gc=False):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


def readable_records(batch: StoredBatch) -> list[Record] | None:
    """The records of a stored batch; None when they cannot be read.

    Validation walks over most records without reading them, so a client can have stored bytes that are not records."""
    try:
        return decode_records(batch.data, max_bytes=MAX_STORED_BYTES)
    except ProtocolError:
        return None


class SearchedEnough(Exception):
    """A request has read as many records as it may."""


class Search:
    """Searches batches by time for one request, within limits of records and decompressed bytes."""

    def __init__(self, left: int | None = None) -> None:
        self.left = SEARCHED if left is None else left
        """How many more records it may read."""

    def check(self) -> None:
        """Raises SearchedEnough, before storage is asked for a batch."""
        if self.left <= 0:
            raise SearchedEnough

    def found(self, batch: StoredBatch, timestamp: int | None, first_offset: int) -> Located | None:
        """The first record from `first_offset` on at or after `timestamp`; for None, the first of the newest.

        If the records cannot be read, the batch's last offset and newest time replace them. Raises SearchedEnough."""
        self.check()
        header = read_header(batch.data)
        self.left -= header.record_count
        try:
            records = decompress(header.compression, batch.data[HEADER_SIZE:], MAX_STORED_BYTES)
            self.left -= len(records) // BYTES_LIKE_A_RECORD
            best = find_time(header, records, timestamp, first_offset)
        except ProtocolError:
            best = batch.max_timestamp, batch.last_offset
        return None if best is None else Located(best[0], best[1], batch.leader_epoch)


class TimedLogs(Protocol):
    """The part of `Storage`, and of its readers, that a search needs."""

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]: ...
    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]: ...
    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None: ...
    def max_timestamp(self, log: LogKey) -> BatchInfo | None: ...


def first_record(
    logs: TimedLogs, log: LogKey, timestamp: int | None, start_offset: int, search: Search
) -> Located | None:
    """The first record, by offset, from `start_offset` on whose timestamp is at or after `timestamp`; for None, the
    first record with the largest timestamp (ListOffsets -3). Raises SearchedEnough, StorageError."""
    search.check()
    if timestamp is None:
        return _first_of_newest(logs, log, start_offset, search)
    batch = logs.first_at_or_after(log, timestamp)
    while batch is not None and (found := search.found(batch, timestamp, start_offset)) is None:
        # A trim has cut into the batch. Others that end before the time are skipped without being read.
        search.check()
        info = _next_info(logs, log, batch.last_offset + 1, timestamp)
        batch = None if info is None else next(iter(logs.read(log, info.base_offset, 0)), None)
    return None if batch is None else found


def _next_info(logs: TimedLogs, log: LogKey, offset: int, timestamp: int) -> BatchInfo | None:
    """Of the next batch that may have the record. The iterator ends with the call: a reader has one at a time."""
    for info in logs.batches(log, offset):
        if info.max_timestamp >= timestamp:
            return info
    return None


def _first_of_newest(logs: TimedLogs, log: LogKey, start_offset: int, search: Search) -> Located | None:
    info = logs.max_timestamp(log)
    if info is None:
        return None
    if info.base_offset >= start_offset:
        best = _of_newest(logs, log, info.base_offset, start_offset, search)
        if best is not None:
            return best
    # A trim has cut into the newest batch: take the rest of it, or the newest of the others.
    left = logs.batches(log, start_offset)
    first = next(left, None)
    newest = max(left, key=lambda info: info.max_timestamp, default=None)
    found: Located | None = None
    for one in (first, newest):
        best = None if one is None else _of_newest(logs, log, one.base_offset, start_offset, search)
        if best is not None and (found is None or best.timestamp > found.timestamp):
            found = best
    return found


def _of_newest(logs: TimedLogs, log: LogKey, offset: int, start_offset: int, search: Search) -> Located | None:
    """The first of the newest records of the batch at `offset`."""
    search.check()
    batches = logs.read(log, offset, 0)
    return search.found(batches[0], None, start_offset) if batches else None
