"""Columns of records, their limits, and Arrow arrays from buffers.

Columns are bounded: ROWS rows, and BYTES of keys, values and headers, or one record if that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.wire.batches import BatchHeader

ROWS = 32_768
BYTES = 8 * 1024 * 1024

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

MILLISECONDS = pa.timestamp("ms", tz="UTC")
MICROSECONDS = pa.timestamp("us", tz="UTC")
_LONGEST_MS = (2**63 - 1) // 1000


class Columns(NamedTuple):
    """Some records of one partition. `times` are milliseconds; `headers` is None unless they were requested."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: pa.Int64Array
    times: pa.Int64Array
    time_types: pa.Int32Array
    headers: pa.ListArray | None


class Filler(Protocol):
    """Columns that are being filled."""

    def take(self, header: BatchHeader, records: Any, first: int, last: int) -> Iterator[Columns]:
        """Add the records of a batch with offsets in [first, last). Yields whenever the columns are full.

        `records` are the decompressed bytes after the batch header. Raises CorruptBatch.
        """

    def flush(self) -> Columns | None:
        """The columns filled so far, if they have rows."""


def timestamps(times: pa.Int64Array) -> pa.TimestampArray:
    """Milliseconds as Spark's timestamps, in microseconds; null if they exceed 64 bits (year 294,247)."""
    try:
        return times.cast(MILLISECONDS).cast(MICROSECONDS)
    except pa.ArrowInvalid:
        fits = pc.and_(pc.less_equal(times, _LONGEST_MS), pc.greater_equal(times, -_LONGEST_MS))
        return pc.if_else(fits, times, pa.scalar(None, pa.int64())).cast(MILLISECONDS).cast(MICROSECONDS)


# Arrays from buffers. The first call of pyarrow's own conversions imports pandas, which takes a quarter of a second in
# each worker.


def fixed(kind: pa.DataType, array: np.ndarray[Any, Any]) -> pa.Array:
    """Numbers without nulls, not copied."""
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(array)], null_count=0)


def repeated(text: str, rows: int) -> pa.StringArray:
    """A column with the same text in every row."""
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)], null_count=0)


def binary(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Bytes and nulls, less than 2 GiB in all."""
    nulls = values.count(None)
    validity = None
    if nulls:
        present = np.array([value is not None for value in values], np.bool_)
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    filled: Sequence[bytes] = [value or b"" for value in values] if nulls else values  # type: ignore[assignment]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, filled), np.int64, len(filled)), out=ends[1:])
    data = pa.py_buffer(b"".join(filled))
    return pa.Array.from_buffers(pa.binary(), len(values), [validity, pa.py_buffer(ends), data], null_count=nulls)
