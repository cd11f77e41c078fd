"""Fills Arrow columns by the plain loop of `kohort.wire.records`, which collects lists first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.arrow import columns
from kohort.spark.arrow.columns import HEADERS, Columns, binary, fixed
from kohort.wire.batches import BatchHeader
from kohort.wire.records import Headers, RecordColumns, read_decompressed


class PlainFiller:
    def __init__(self, with_headers: bool) -> None:
        self._with_headers = with_headers
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._types: list[int] = []
        self._headers: list[Any] = []

    def take(self, header: BatchHeader, records: Any, first: int, last: int) -> Iterator[Columns]:
        decoded = read_decompressed(header, bytes(records))
        count, size = len(decoded.offsets), len(records)
        inside = first <= header.base_offset and header.last_offset < last
        if inside and len(self._offsets) + count <= columns.ROWS and self._bytes + size <= columns.BYTES:
            self._extend(header.timestamp_type, size, decoded)
            return
        headers = decoded.headers or [()] * count
        rows = zip(decoded.offsets, decoded.timestamps, decoded.keys, decoded.values, headers, strict=True)
        for offset, time, key, value, pairs in rows:
            if not first <= offset < last:
                continue
            size = len(key or b"") + len(value or b"") + (_size(pairs) if self._with_headers else 0)
            if self._offsets and (len(self._offsets) == columns.ROWS or self._bytes + size > columns.BYTES):
                full = self.flush()
                assert full is not None
                yield full
            self._extend(header.timestamp_type, size, RecordColumns([offset], [time], [key], [value], [pairs]))

    def _extend(self, time_type: int, size: int, records: RecordColumns) -> None:
        count = len(records.offsets)
        self._bytes += size
        self._keys += records.keys
        self._values += records.values
        self._offsets += records.offsets
        self._times += records.timestamps
        self._types += [time_type] * count
        if self._with_headers:
            for pairs in records.headers or [()] * count:
                # None for a record without headers, as in Spark's source.
                self._headers.append([{"key": name, "value": value} for name, value in pairs] or None)

    def flush(self) -> Columns | None:
        if not self._offsets:
            return None
        filled = Columns(
            binary(self._keys),
            binary(self._values),
            fixed(pa.int64(), np.array(self._offsets, np.int64)),
            fixed(pa.int64(), np.array(self._times, np.int64)),
            fixed(pa.int32(), np.array(self._types, np.int32)),
            pa.array(self._headers, HEADERS) if self._with_headers else None,
        )
        self._clear()
        return filled


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)
