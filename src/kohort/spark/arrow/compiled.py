"""Fills Arrow columns by compiled code: owns the buffers that `kernel.py` writes to.

Each buffer has the size of the largest column; only the written part of it takes memory. A record that is larger gets
larger buffers. Filled buffers are handed out without a copy, and new ones are allocated for the next records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.arrow import columns, kernel
from kohort.spark.arrow.columns import HEADER, HEADERS, Columns, fixed
from kohort.wire.batches import BatchHeader, CorruptBatch


class CompiledFiller:
    def __init__(self, with_headers: bool) -> None:
        self._with_headers = with_headers
        self._record = np.empty(kernel.RECORD, np.int64)
        self._state = np.zeros(kernel.STATE, np.int64)
        self._types: list[tuple[int, int]] = []
        """Timestamp types, each with the first row that has it."""
        self._allocate(0)

    def _allocate(self, record: int) -> None:
        """Allocate buffers with room for a record of this many bytes."""
        self._rows, self._bytes = columns.ROWS, max(columns.BYTES, record)
        self._offsets = np.empty(self._rows, np.int64)
        self._times = np.empty(self._rows, np.int64)
        self._keys = _column(self._rows, self._bytes)
        self._values = _column(self._rows, self._bytes)
        entries = (max(4 * self._rows, record // 2), self._bytes) if self._with_headers else (0, 0)
        lists, keys, values = _column(self._rows, 0), _column(*entries), _column(*entries)
        self._headers = (lists[0], lists[1], keys[0], keys[2], *values)
        self._state[kernel.ROWS : kernel.NEED] = 0
        self._types.clear()

    def take(self, header: BatchHeader, records: Any, first: int, last: int) -> Iterator[Columns]:
        source = np.frombuffer(records, np.uint8)
        source.flags.writeable = False
        state, is_log_time = self._state, header.timestamp_type == 1
        state[kernel.AT] = state[kernel.INDEX] = 0
        self._note_type(header.timestamp_type)
        base_time = header.max_timestamp if is_log_time else header.base_timestamp
        batch = (header.record_count, header.base_offset, header.last_offset_delta, base_time, first, last)
        while True:
            filled = self._offsets, self._times, self._keys, self._values, self._headers
            flags = is_log_time, self._with_headers
            status = kernel.decode(source, batch, *flags, columns.BYTES, state, self._record, filled)
            if status == kernel.DONE:
                return
            if status != kernel.FULL:
                raise CorruptBatch(f"{kernel.DAMAGE[status]} (record {state[kernel.INDEX]} of the batch)")
            full = self.flush(int(state[kernel.NEED]))
            if full is not None:
                yield full
            self._note_type(header.timestamp_type)

    def _note_type(self, kind: int) -> None:
        if not self._types or self._types[-1][1] != kind:
            self._types.append((int(self._state[kernel.ROWS]), kind))

    def flush(self, record: int = 0) -> Columns | None:
        """The columns filled so far, if they have rows. New buffers have room for a record of this many bytes."""
        state = self._state
        rows = int(state[kernel.ROWS])
        filled = None
        if rows:
            counts = np.diff([*(begin for begin, _ in self._types), rows])
            kinds = np.array([kind for _, kind in self._types], np.int32)
            filled = Columns(
                _binary(self._keys, rows, int(state[kernel.NO_KEY])),
                _binary(self._values, rows, int(state[kernel.NO_VALUE])),
                fixed(pa.int64(), self._offsets[:rows]),
                fixed(pa.int64(), self._times[:rows]),
                fixed(pa.int32(), np.repeat(kinds, counts)),
                self._header_lists(rows) if self._with_headers else None,
            )
        self._allocate(record)
        return filled

    def _header_lists(self, rows: int) -> pa.ListArray:
        ends, valid, key_ends, key_data, *_ = self._headers
        state = self._state
        entries = int(state[kernel.HEADERS])
        buffers = [None, pa.py_buffer(key_ends), pa.py_buffer(key_data)]
        keys = pa.Array.from_buffers(pa.string(), entries, buffers, null_count=0)
        values = _binary(self._headers[4:], entries, int(state[kernel.NO_HEADER_VALUE]))
        structs = pa.Array.from_buffers(HEADER, entries, [None], null_count=0, children=[keys, values])
        nulls = int(state[kernel.NO_HEADERS])
        buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(ends)]
        return pa.Array.from_buffers(HEADERS, rows, buffers, null_count=nulls, children=[structs])


Column = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _column(rows: int, size: int) -> Column:
    """Where each value ends, which values are not null (one bit each), and their bytes."""
    ends = np.empty(rows + 1, np.int32)
    ends[0] = 0
    return ends, np.zeros(rows // 8 + 1, np.uint8), np.empty(size, np.uint8)


def _binary(column: Column, rows: int, nulls: int) -> pa.BinaryArray:
    ends, valid, data = column
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(ends), pa.py_buffer(data[: ends[rows]])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=nulls)
