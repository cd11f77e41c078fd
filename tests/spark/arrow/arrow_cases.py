"""Batches for the tests of the Arrow decoders, and what the plain reference makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from kohort.spark.arrow.columns import Columns, Filler
from kohort.wire.batches import HEADER_SIZE, BatchHeader, CorruptBatch, NewRecord, Record, encode_batch, read_header
from kohort.wire.compression import decompress
from kohort.wire.errors import ProtocolError
from kohort.wire.records import read_decompressed


class Row(NamedTuple):
    offset: int
    time: int
    time_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def rows_of(columns: Columns) -> Iterator[Row]:
    for array in columns:
        if array is not None:
            array.validate(full=True)
    headers: Sequence[Any] = [None] * len(columns.offsets) if columns.headers is None else columns.headers.to_pylist()
    for key, value, offset, time, kind, pairs in zip(
        *(array.to_pylist() for array in columns[:5]), headers, strict=True
    ):
        held = None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]
        yield Row(offset, time, kind, key, value, held)


def filled(filler: Filler, batches: Sequence[tuple[BatchHeader, Any]], first: int, last: int) -> list[list[Row]]:
    """The rows of each returned set of columns."""
    columns = [full for header, records in batches for full in filler.take(header, records, first, last)]
    rest = filler.flush()
    return [list(rows_of(one)) for one in (*columns, *([] if rest is None else [rest]))]


def expected(header: BatchHeader, records: Sequence[Record], first: int, last: int, with_headers: bool) -> list[Row]:
    return [
        Row(
            record.offset,
            record.timestamp,
            header.timestamp_type,
            record.key,
            record.value,
            (list(record.headers) or None) if with_headers else None,
        )
        for record in records
        if first <= record.offset < last
    ]


def reference(header: BatchHeader, data: bytes, with_headers: bool) -> list[Row] | None:
    """All rows of a batch as the plain loop reads them; None where that finds damage."""
    try:
        columns = read_decompressed(header, data)
    except ProtocolError:
        return None
    headers = columns.headers or [()] * len(columns.offsets)
    records = list(map(Record, columns.offsets, columns.timestamps, columns.keys, columns.values, headers))
    return expected(header, records, -(2**63), 2**63, with_headers)


def opened(batch: bytes) -> tuple[BatchHeader, bytes]:
    """A batch's header, and its records decompressed."""
    header = read_header(batch)
    return header, decompress(header.compression, batch[HEADER_SIZE : header.size])


def damaged(seed: int) -> tuple[BatchHeader, bytes]:
    """A batch to which something has happened that its checksum does not show."""
    chance = random.Random(seed)

    def some(longest: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 5, 63, 64, 200, longest)))

    records = [
        NewRecord(
            some(10),
            some(9_000),
            chance.choice((0, 1_700_000_000_000, 2**40)),
            tuple((chance.choice(("", "k", "näme", "日本")), some(2_000)) for _ in range(chance.choice((0, 0, 1, 3)))),
        )
        for _ in range(chance.choice((1, 1, 2, 5, 30)))
    ]
    header, data = opened(encode_batch(records, base_offset=chance.choice((0, 7, 2**40))))
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(changed)) if changed else 0
        end = min(len(changed), at + chance.choice((1, 1, 2, 9)))
        match chance.randrange(7):
            case 0 | 1:
                changed[at:end] = chance.randbytes(end - at)
            case 2:
                changed[at:end] = bytes([chance.choice((0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF))]) * (end - at)
            case 3:
                del changed[at:end]
            case 4:
                del changed[at:]
            case 5:
                longest = [b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff\xff\xff\xff\x0f"]
                changed[at:at] = chance.choice([*longest, b"\x80" * 12, b"\x00"])
            case 6:
                header = header._replace(
                    record_count=chance.choice((0, 1, len(records) + 1, len(records) - 1, 2**31 - 1)),
                    last_offset_delta=chance.choice((0, header.last_offset_delta, 2**31 - 1)),
                    base_timestamp=chance.choice((2**63 - 1, -(2**63), 0)),
                    attributes=chance.choice((0, 8)),
                )
    return header, bytes(changed)


def is_refused(filler: Filler, seed: int, with_headers: bool, place: Callable[[bytes], Any] = bytes) -> bool:
    """True if a decoder finds the damage. It must find it where the reference does, and otherwise read the same.

    `place` puts the bytes where they are read.
    """
    header, data = damaged(seed)
    wanted = reference(header, data, with_headers)
    try:
        rows = list(chain(*filled(filler, [(header, place(data))], -(2**63), 2**63 - 1)))
    except CorruptBatch:
        assert wanted is None, seed
        return True
    assert rows == wanted, seed
    return False
