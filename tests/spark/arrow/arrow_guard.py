"""Runs the compiled decoder over damaged batches with every buffer at the end of readable memory.

`arrow_guard.py FIRST LAST` takes the seeds from FIRST to LAST; `arrow_guard.py beyond` reads a byte too far on purpose.
The kernel ends a process that touches the page after a buffer, so a run that completes is the proof.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from arrow_cases import is_refused

from kohort.spark.arrow import columns, compiled

PAGE = mmap.PAGESIZE
NOBODY = 0
"""PROT_NONE of mprotect(2)."""
_made: dict[int, list[np.ndarray[Any, Any]]] = {}
_free: dict[int, list[np.ndarray[Any, Any]]] = {}
"""Buffers by size: those of a batch are used again for the next."""


def guarded(size: int) -> np.ndarray[Any, Any]:
    """Bytes whose end is the end of a page, followed by a page without access."""
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    array = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + pages * PAGE), PAGE, NOBODY) == 0
    return array[pages * PAGE - size : pages * PAGE]


def empty(count: int, kind: Any = np.uint8) -> np.ndarray[Any, Any]:
    size = count * np.dtype(kind).itemsize
    free = _free.get(size)
    if free:
        array = free.pop()
    else:
        array = guarded(size)
        _made.setdefault(size, []).append(array)
    return array.view(kind)


def zeros(count: int, kind: Any) -> np.ndarray[Any, Any]:
    array = empty(count, kind)
    array[:] = 0
    return array


def main(words: list[str]) -> None:
    if words == ["beyond"]:
        short = guarded(3)
        ctypes.string_at(short.ctypes.data, 4)
        return
    first, last = map(int, words)
    columns.ROWS, columns.BYTES = 9, 700
    compiled.np = SimpleNamespace(  # type: ignore[attr-defined]
        empty=empty,
        zeros=zeros,
        frombuffer=np.frombuffer,
        **{n: getattr(np, n) for n in ("int64", "int32", "uint8")},
        diff=np.diff,
        repeat=np.repeat,
        array=np.array,
    )
    found = 0
    source = guarded(1 << 20)

    def place(data: bytes) -> np.ndarray[Any, Any]:
        at = source[len(source) - len(data) :]
        at[:] = np.frombuffer(data, np.uint8)
        return at

    for seed in range(first, last):
        _free.update((size, list(arrays)) for size, arrays in _made.items())
        with_headers = bool(seed % 2)
        found += is_refused(compiled.CompiledFiller(with_headers), seed, with_headers, place)
    print(f"{last - first} damaged batches, {found} refused")


if __name__ == "__main__":
    main(sys.argv[1:])
