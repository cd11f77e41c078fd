"""Arrow columns to arrays of numbers, and back. In arrays NOTHING (-1) means null; instants are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import TIME, Numbers
from kohort.spark.history.decoding.kernels import NOTHING


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as a single array."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):
        return whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    return whole


def dense(column: pa.ChunkedArray | pa.Array, missing: int = NOTHING) -> Numbers:
    """A column of integers as int64; `missing` for nulls."""
    filled = pc.fill_null(column.cast(pa.int64()), missing)
    found: Numbers = filled.to_numpy() if isinstance(filled, pa.ChunkedArray) else filled.to_numpy(zero_copy_only=False)
    return found


def log_places(table: pa.Table) -> Numbers:
    """A number for each log record, ascending in its log partition; a record that was read twice has the same twice."""
    return (dense(table.column("log_partition")) << 48) + dense(table.column("log_offset"))


def milliseconds(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """A column of instants of any unit as milliseconds. Instants without a time zone are in UTC."""
    micros = column.cast(TIME, safe=False).cast(pa.int64())
    found: Numbers = dense(micros, NOTHING * 1000) // 1000
    return found


def encoded(column: pa.ChunkedArray | pa.Array) -> tuple[Numbers, pa.Array]:
    """A column of strings or binaries as numbers, and the distinct values in ascending order, which they index."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        column = one_array(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = column.dictionary
    order = pc.array_sort_indices(names).to_numpy()
    ranks = np.full(len(names) + 1, NOTHING)  # the last one is for nulls, whose index is -1
    ranks[order] = np.arange(len(names))
    return ranks[dense(column.indices)], names.take(pa.array(order))


def named(numbers: Numbers, names: pa.Array) -> pa.Array:
    """Strings by their numbers, as a dictionary column; null where negative."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32(), mask=numbers < 0), names)


def words(numbers: Numbers, of: tuple[str, ...]) -> pa.Array:
    """Words by their numbers, as a dictionary column."""
    return named(numbers, pa.array(of, pa.string()))


def taken(numbers: Numbers, names: pa.Array) -> pa.Array:
    """Strings by their numbers; null where negative."""
    return names.take(pa.array(numbers, mask=numbers < 0))


def instants(at: Numbers) -> pa.Array:
    """Milliseconds as a column of instants; null where negative."""
    return pa.array(np.where(at >= 0, at, 0) * 1000, pa.int64(), mask=at < 0).cast(TIME)


def microseconds(at: int) -> int | None:
    """Milliseconds as a cell of a column of instants; None if negative."""
    return at * 1000 if at >= 0 else None


def nullable(values: Numbers) -> pa.Array:
    """Numbers as a column of int64; null where negative."""
    return pa.array(values, pa.int64(), mask=values < 0)


def field_of(rows: Sequence[object], name: str) -> Numbers:
    """One integer field of objects."""
    return np.array([getattr(row, name) for row in rows], np.int64)
