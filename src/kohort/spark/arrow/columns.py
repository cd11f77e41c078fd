"""Records into Arrow columns: what both ways have in common, and which of them runs.

Two ways lead from the bytes of a record batch to columns, with the same results: numba's compiled loop
(`arrow_compiled.py`), without a Python object a record, and the plain loop of `kohort.wire.records`
(`arrow_plain.py`), which needs nothing and is some ten to thirty times slower. numba takes 0.3 s of CPU and some 110 MB
in each worker process, and 2 s more where its code must first be compiled, so a process begins with the plain loop and
goes over to numba when it has been asked for WORTH_IT records in all: what it has lost by then, loading would have cost
it too. KOHORT_SPARK_DECODER=python or =numba in the workers' environment (`spark.executorEnv.…`) decides otherwise.

Columns are bounded: ROWS rows, and BYTES of keys, values and headers, or one record where that is larger.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.wire.batches import BatchHeader

ROWS = 32_768
BYTES = 8 * 1024 * 1024

DECODER_VARIABLE = "KOHORT_SPARK_DECODER"
WORTH_IT = 200_000

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

MILLISECONDS = pa.timestamp("ms", tz="UTC")
MICROSECONDS = pa.timestamp("us", tz="UTC")
_LONGEST_MS = (2**63 - 1) // 1000

_asked = 0
"""How many records this process has been asked for."""
_said = False


class Columns(NamedTuple):
    """Some records of one partition. `times` in milliseconds; `headers` is None where nobody asked for them."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: pa.Int64Array
    times: pa.Int64Array
    time_types: pa.Int32Array
    headers: pa.ListArray | None


class Filler(Protocol):
    """Columns that are being filled."""

    def take(self, header: BatchHeader, records: Any, first: int, last: int) -> Iterator[Columns]:
        """Add the records of a batch that have offsets in [first, last); yields whenever the columns are full.

        `records` are the bytes behind the header, decompressed. Raises CorruptBatch.
        """

    def flush(self) -> Columns | None:
        """What is there, if anything is."""


def filler(expected: int, with_headers: bool) -> Filler:
    """The way for a range of so many offsets. Raises ValueError as `decoder` does."""
    global _asked, _said
    _asked += expected
    if _asked >= WORTH_IT or DECODER_VARIABLE in os.environ:
        compiled, why_not = _compiled()
        if compiled is not None:
            return compiled(with_headers)
        if not _said and DECODER_VARIABLE not in os.environ:
            _said = True
            print(
                f"kohort: {why_not}, so records are decoded by a loop in Python, some ten times slower",
                file=sys.stderr,
                flush=True,
            )
    from kohort.spark.arrow.plain import PlainFiller

    return PlainFiller(with_headers)


def decoder() -> str:
    """What decodes a large range in this process: `numba 0.68.1`, or `python` and why. Loads numba to find out.

    Raises ValueError where KOHORT_SPARK_DECODER has no such value, or asks for a numba that is not there.
    """
    compiled, why_not = _compiled()
    return f"python ({why_not})" if compiled is None else f"numba {version('numba')}"


def _compiled() -> tuple[Callable[[bool], Filler] | None, str]:
    """The fast way, or why it is not taken."""
    chosen = os.environ.get(DECODER_VARIABLE, "auto")
    if chosen not in ("auto", "numba", "python"):
        raise ValueError(f"{DECODER_VARIABLE} is {chosen!r}; it takes auto, numba or python")
    if chosen == "python":
        return None, f"{DECODER_VARIABLE} says so"
    try:
        from kohort.spark.arrow.compiled import CompiledFiller  # numba: only where it is worth it
    except ModuleNotFoundError:
        why_not = "numba is not installed (pip install 'kohort[spark]')"
    except Exception as error:
        # One that does not fit its numpy, or this code. Slow is better than not at all.
        why_not = f"numba cannot be loaded ({error})"
    else:
        return CompiledFiller, ""
    if chosen == "numba":
        raise ValueError(f"{DECODER_VARIABLE} is numba, but {why_not}")
    return None, why_not


def timestamps(times: pa.Int64Array) -> pa.TimestampArray:
    """Milliseconds as Spark has timestamps, in microseconds; null where that is beyond 64 bits (year 294,247)."""
    try:
        return times.cast(MILLISECONDS).cast(MICROSECONDS)
    except pa.ArrowInvalid:
        held = pc.and_(pc.less_equal(times, _LONGEST_MS), pc.greater_equal(times, -_LONGEST_MS))
        return pc.if_else(held, times, pa.scalar(None, pa.int64())).cast(MILLISECONDS).cast(MICROSECONDS)


# Arrays out of buffers. pyarrow's own conversions import pandas on their first call, a quarter of a second in each
# worker.


def fixed(kind: pa.DataType, array: np.ndarray[Any, Any]) -> pa.Array:
    """Numbers without nulls; not a copy."""
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(array)], null_count=0)


def repeated(text: str, rows: int) -> pa.StringArray:
    """The same text in every row."""
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)], null_count=0)


def binary(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """Bytes and nulls, less than 2 GiB of them."""
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=ends[1:])
    present = np.array([value is not None for value in values], np.bool_)
    nulls = len(values) - int(present.sum())
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    data = pa.py_buffer(b"".join(value for value in values if value))
    return pa.Array.from_buffers(pa.binary(), len(values), [validity, pa.py_buffer(ends), data], null_count=nulls)
