"""Arrow columns made of numbers and of places in bytes; keys and commits read with numpy, where numba is missing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kohort.spark.history.decoding import kernels as plain_kernels
from kohort.spark.history.decoding.compilation import Kernels
from kohort.spark.history.decoding.kernels import (
    COMMIT_TIME,
    COMMIT_TOPIC_ID,
    EXPIRE_TIME,
    GROUP,
    KEY_PARTITION,
    KEY_STATUS,
    LEADER_EPOCH,
    MALFORMED,
    METADATA,
    NOTHING,
    OFFSET,
    READ,
    SECOND,
    UNKNOWN_VERSION,
)

Numbers = np.ndarray[Any, Any]

TIME = pa.timestamp("us", tz="UTC")
_LARGEST_MS = 2**63 // 1000 - 1


class Bytes(NamedTuple):
    """The items of a binary column: all their bytes, where each begins and ends; and the kernels to read them with."""

    data: Numbers
    starts: Numbers
    ends: Numbers
    kernels: Kernels

    def some(self, rows: Numbers) -> Bytes:
        return self._replace(starts=self.starts[rows], ends=self.ends[rows])

    def arguments(self) -> tuple[Any, Any, Any]:
        """`data`, `starts` and `ends` in the form that the kernels read fastest."""
        if self.kernels.compiled:
            return self.data, self.starts, self.ends
        return self.data.tobytes(), self.starts.tolist(), self.ends.tolist()


def bytes_of(column: pa.Array, kernels: Kernels) -> Bytes:
    """The items of a column of `binary`; nulls are empty."""
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return Bytes(held, edges[:-1], edges[1:], kernels)


def validity(valid: Numbers) -> tuple[pa.Buffer | None, int]:
    """Arrow's bitmap, and how many nulls it has."""
    nulls = int(len(valid) - np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if nulls else None), nulls


def numbers(values: Numbers, kind: pa.DataType, valid: Numbers | None = None) -> pa.Array:
    """A column of integers; null where not `valid`."""
    dense = np.ascontiguousarray(values.astype(kind.to_pandas_dtype(), copy=False))
    bitmap, nulls = (None, 0) if valid is None else validity(valid)
    return pa.Array.from_buffers(kind, len(dense), [bitmap, pa.py_buffer(dense)], nulls)


def times(milliseconds: Numbers, valid: Numbers | None = None) -> pa.Array:
    """A column of instants; null for a number that Arrow cannot represent, or a negative one."""
    fits = (milliseconds >= 0) & (milliseconds <= _LARGEST_MS)
    if valid is not None:
        fits &= valid
    bitmap, nulls = validity(fits)
    micros = np.where(fits, milliseconds, 0) * 1000
    return pa.Array.from_buffers(TIME, len(micros), [bitmap, pa.py_buffer(micros)], nulls)


def places(source: Bytes, begins: Numbers, sizes: Numbers, kind: pa.DataType) -> pa.Array:
    """A column of strings or binaries from places in bytes; null where the size is negative."""
    lengths = np.maximum(sizes, 0)
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(lengths, out=edges[1:])
    if edges[-1] > 2**31 - 1:
        raise ValueError(f"{edges[-1]} bytes in one column exceed 2 GiB; decode fewer records at once")
    held = np.empty(int(edges[-1]), np.uint8)
    if len(held):
        if source.kernels.compiled:
            source.kernels.gather(source.data, begins, sizes, held)
        else:
            held = source.data[np.repeat(begins - edges[:-1], lengths) + np.arange(edges[-1])]
    bitmap, nulls = validity(sizes >= 0)
    buffers = [bitmap, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(held)]
    column = pa.Array.from_buffers(kind, len(sizes), buffers, nulls)
    return _as_text(column) if pa.types.is_string(kind) and len(held) else column


def _as_text(column: pa.Array) -> pa.Array:
    """The column; bytes that are not UTF-8 become replacement characters."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        held = pa.Array.from_buffers(pa.binary(), len(column), column.buffers(), column.null_count)
        texts = [None if one is None else one.decode("utf-8", "replace") for one in held.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def lists(owners: Numbers, count: int, items: pa.Array, kind: pa.DataType, valid: Numbers | None = None) -> pa.Array:
    """A column of `count` lists. `owners` has for each of `items` its list, ascending. Null where not `valid`."""
    edges = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=edges[1:])
    bitmap, nulls = (None, 0) if valid is None else validity(valid)
    return pa.Array.from_buffers(kind, count, [bitmap, pa.py_buffer(edges)], nulls, children=[items])


def keys(source: Bytes, kinds: Numbers, out: Numbers) -> None:
    """As `kernels.keys`, a column at a time. Keys that are not those of commits go to the uncompiled kernel."""
    at, ends = source.starts, source.ends
    kind = _integer(source, at, 2)
    group = _integer(source, at + 2, 2)
    topic_at = at + 4 + group
    topic = _integer(source, topic_at, 2)
    partition_at = topic_at + 2 + topic
    fits = (kind >= 0) & (kind <= 1) & (group >= 0) & (topic >= 0) & (partition_at + 4 == ends)
    fast = np.flatnonzero(fits)
    kinds[fast] = kind[fast]
    out[fast, GROUP], out[fast, GROUP + 1] = at[fast] + 4, group[fast]
    out[fast, SECOND], out[fast, SECOND + 1] = topic_at[fast] + 2, topic[fast]
    out[fast, KEY_PARTITION] = _integer(source, partition_at[fast], 4)
    out[fast, KEY_STATUS] = READ
    rest = np.flatnonzero(~fits)
    if len(rest):
        arrays = kinds[rest], out[rest]
        plain_kernels.keys(*source.some(rest).arguments(), *arrays)
        kinds[rest], out[rest] = arrays


def commits(source: Bytes, kinds: Numbers, statuses: Numbers, versions: Numbers, out: Numbers) -> None:
    """As `kernels.commits`, a column at a time. Unusual rows go to the uncompiled kernel."""
    rows = np.flatnonzero((kinds >= 0) & (kinds <= 1) & (statuses == READ))
    at, ends = source.starts[rows], source.ends[rows]
    short = ends - at < 2
    version = np.where(short, 0, _integer(source, at, 2))
    versions[rows] = np.where(short, NOTHING, version)
    known = ~short & (version >= 0) & (version <= 4)
    statuses[rows] = np.where(short, MALFORMED, np.where(known, READ, UNKNOWN_VERSION))
    flexible, epochs = version >= 4, version >= 3
    size_at = at + np.where(epochs, 14, 10)
    first = _integer(source, size_at, 1) & 255
    size = np.where(flexible, first - 1, _integer(source, size_at, 2))
    begin = size_at + np.where(flexible, 1, 2)
    commit_at = begin + np.maximum(size, 0)
    stop = commit_at + np.where(version == 1, 16, 8)
    tag = flexible & (stop + 19 == ends) & (_integer(source, stop, 2) == 0x0100) & (_integer(source, stop + 2, 1) == 16)
    bare = flexible & (stop + 1 == ends) & (_integer(source, stop, 1) == 0)
    fits = known & (size >= 0) & ((first < 128) | ~flexible) & (tag | bare | (~flexible & (stop == ends)))
    fast = rows[fits]
    out[fast, OFFSET] = _integer(source, at[fits] + 2, 8)
    out[fast, LEADER_EPOCH] = np.where(epochs[fits], _integer(source, at[fits] + 10, 4), NOTHING)
    out[fast, COMMIT_TIME] = _integer(source, commit_at[fits], 8)
    out[fast, EXPIRE_TIME] = np.where(version[fits] == 1, _integer(source, commit_at[fits] + 8, 8), NOTHING)
    out[fast, METADATA], out[fast, METADATA + 1] = begin[fits], size[fits]
    out[fast, COMMIT_TOPIC_ID] = np.where(tag[fits], stop[fits] + 3, NOTHING)
    rest = rows[known & ~fits]
    if len(rest):
        arrays = kinds[rest], statuses[rest], versions[rest], out[rest]
        plain_kernels.commits(*source.some(rest).arguments(), *arrays)
        statuses[rest], versions[rest], out[rest] = arrays[1:]


def _integer(source: Bytes, at: Numbers, size: int) -> Numbers:
    """Signed integers of this many bytes; any value where they would lie outside the data."""
    last = len(source.data) - 1
    value: Numbers = source.data[np.clip(at, 0, last)].astype(np.int8).astype(np.int64)
    for place in range(1, size):
        value = (value << 8) | source.data[np.clip(at + place, 0, last)]
    return value
