"""The records that a ShareFetch acquired: those of the ranges that the answer names, and what is in them besides.

An answer has whole record batches, of which only some records may be acquired. A range may hold offsets without a
record for the application: transaction markers, and holes that compaction has left. These are acknowledged as gaps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from kohort.client.errors import KafkaError
from kohort.wire.batches import BatchHeader, Record, check_crc, decode_records, find_batches
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.schemas.share_fetch import PartitionData


class AcquiredRecord(NamedTuple):
    record: Record
    deliveries: int
    """Including this one."""


def acquired_records(row: PartitionData, where: str) -> tuple[list[AcquiredRecord], list[tuple[int, int]]]:
    """The acquired records in order of their offsets, and the ranges that are gaps. `where` names the partition.

    Raises KafkaError (CORRUPT_MESSAGE).
    """
    ranges = sorted((one.first_offset, one.last_offset, one.delivery_count) for one in row.acquired_records)
    found: list[AcquiredRecord] = []
    try:
        for record in _records(row.records or b"", ranges[0][0], ranges[-1][1]) if ranges else ():
            at = bisect_right(ranges, (record.offset, 1 << 63, 0)) - 1
            if at >= 0 and record.offset <= ranges[at][1]:
                found.append(AcquiredRecord(record, ranges[at][2]))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot read the records of {where}: {error}") from None
    return found, list(_gaps(ranges, [one.record.offset for one in found]))


def _records(data: bytes, first: int, last: int) -> Iterator[Record]:
    for header, start in find_batches(data, strict=False):
        if header.is_control or header.last_offset < first or header.base_offset > last:
            continue
        if not check_crc(data, header, start):
            raise ProtocolError(f"the checksum of the batch at offset {header.base_offset} does not match")
        yield from _decoded(data, header, start)


def _decoded(data: bytes, header: BatchHeader, start: int) -> list[Record]:
    return decode_records(data[start : start + header.size], header)


def _gaps(ranges: list[tuple[int, int, int]], offsets: list[int]) -> Iterator[tuple[int, int]]:
    """The parts of the ranges that are not among the offsets; both in order."""
    number = 0
    for first, last, _ in ranges:
        at = first
        while number < len(offsets) and offsets[number] <= last:
            if offsets[number] > at:
                yield at, offsets[number] - 1
            at = offsets[number] + 1
            number += 1
        if at <= last:
            yield at, last
