"""Reads records out of the bytes that a fetch returned.

A fetch returns record batches, from the batch that holds the position on. So the first batch may begin before the
position, and the last may be cut. Control batches (transaction markers) and records of aborted transactions are not
data. Compaction leaves gaps and batches without records. So the next position follows from the last offsets of the
batches, not from the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kohort.client.errors import KafkaError
from kohort.client.records.partition_leaders import FetchedPartition
from kohort.wire.batches import BatchHeader, Record, check_crc, decode_records, find_batches, last_header
from kohort.wire.errors import ErrorCode, ProtocolError

ABORT_MARKER = 0


class FetchedRecord(NamedTuple):
    """A record with its place. `timestamp` is in milliseconds; `timestamp_type` 0 is the producer's clock
    (CreateTime), 1 the broker's (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def data_batches(fetched: FetchedPartition, position: int, end: int | None = None) -> Iterator[tuple[BatchHeader, int]]:
    """The record batches with data at or after `position`, each with its place in `fetched.records`; checksums are
    verified. Batches that begin at `end` or later are skipped.

    Raises KafkaError (CORRUPT_MESSAGE) if the bytes are not record batches.
    """
    aborted = sorted(fetched.aborted, key=lambda pair: pair[1])
    aborting: set[int] = set()
    for header, start in _batches(fetched):
        if end is not None and header.base_offset >= end:
            return
        if not check_crc(fetched.records, header, start):
            error = ProtocolError(f"the checksum of the batch at offset {header.base_offset} does not match")
            raise _corrupt(fetched, error)
        while aborted and aborted[0][1] <= header.last_offset:
            aborting.add(aborted.pop(0)[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(fetched, header, start):
                aborting.discard(header.producer_id)
            continue
        if header.last_offset < position or (header.is_transactional and header.producer_id in aborting):
            continue
        yield header, start


def next_position(fetched: FetchedPartition, position: int) -> int:
    """Where to fetch next: after the last whole batch, whether it has data or not.

    Raises KafkaError (CORRUPT_MESSAGE) if the bytes are not record batches.
    """
    try:
        last = last_header(fetched.records)
    except ProtocolError as error:
        raise _corrupt(fetched, error) from None
    return position if last is None else max(position, last.last_offset + 1)


def records(fetched: FetchedPartition, position: int) -> Iterator[FetchedRecord]:
    """The records at or after `position`, in order of offset. Raises KafkaError (CORRUPT_MESSAGE)."""
    for header, start in data_batches(fetched, position):
        for record in _decoded(fetched, header, start):
            if record.offset >= position:
                yield FetchedRecord(
                    fetched.topic,
                    fetched.partition,
                    record.offset,
                    record.timestamp,
                    header.timestamp_type,
                    record.key,
                    record.value,
                    record.headers,
                )


def _batches(fetched: FetchedPartition) -> list[tuple[BatchHeader, int]]:
    try:
        return find_batches(fetched.records, strict=False)
    except ProtocolError as error:
        raise _corrupt(fetched, error) from None


def _decoded(fetched: FetchedPartition, header: BatchHeader, start: int) -> list[Record]:
    try:
        return decode_records(fetched.records[start : start + header.size], header)
    except ProtocolError as error:
        raise _corrupt(fetched, error) from None


def _is_abort_marker(fetched: FetchedPartition, header: BatchHeader, start: int) -> bool:
    """A control record's key is its version and type, two bytes each."""
    return any(
        record.key is not None and int.from_bytes(record.key[2:4], "big") == ABORT_MARKER
        for record in _decoded(fetched, header, start)
    )


def _corrupt(fetched: FetchedPartition, error: ProtocolError) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"cannot read the records of {fetched.topic}-{fetched.partition}: {error}"
    )
