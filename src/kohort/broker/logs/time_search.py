"""Searches stored batches by time, within limits of records and decompressed bytes."""

from __future__ import annotations

import msgspec

from kohort.storage.protocol import StoredBatch
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

    def __init__(self) -> None:
        self._left = SEARCHED

    def found(self, batch: StoredBatch, timestamp: int | None, first_offset: int) -> Located | None:
        """The first record from `first_offset` on at or after `timestamp`; for None, the first of the newest.

        If the records cannot be read, the batch's last offset and newest time replace them. Raises SearchedEnough."""
        if self._left <= 0:
            raise SearchedEnough
        header = read_header(batch.data)
        self._left -= header.record_count
        try:
            records = decompress(header.compression, batch.data[HEADER_SIZE:], MAX_STORED_BYTES)
            self._left -= len(records) // BYTES_LIKE_A_RECORD
            best = find_time(header, records, timestamp, first_offset)
        except ProtocolError:
            best = batch.max_timestamp, batch.last_offset
        return None if best is None else Located(best[0], best[1], batch.leader_epoch)
