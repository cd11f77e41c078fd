"""Compiles the kernels with numba, once a process has decoded enough records for that.

Importing numba and compiling at the first use on a machine takes up to half a minute; the result is cached beside the
module or in the user's cache directory. (All kernels are in `kernels.py`, because the cache notices changes of that
file only.) So a process changes from plain Python to numba after WORTH_IT records, unless KOHORT_SPARK_DECODER is
python or numba.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.history.decoding import kernels

WORTH_IT = 100_000

_decoded = 0
"""How many records this process has decoded."""
_plain = False
"""True within `plain_kernels`."""


class Kernels(NamedTuple):
    """The functions of `kernels.py`, compiled or not, and `gather`."""

    compiled: bool
    keys: Callable[..., Any]
    commits: Callable[..., Any]
    group_values: Callable[..., Any]
    gather: Callable[..., Any]


def gather(data: Any, begins: Any, sizes: Any, out: Any) -> Any:
    """Copy the bytes of all places to `out`, one after the other."""
    at = 0
    for row in range(len(begins)):
        begin = begins[row]
        for place in range(max(sizes[row], 0)):
            out[at] = data[begin + place]
            at += 1


PLAIN = Kernels(False, kernels.keys, kernels.commits, kernels.group_values, gather)


def kernels_for(records: int) -> Kernels:
    """The kernels for the next `records` records. Raises ImportError if numba is demanded and missing."""
    global _decoded
    _decoded += records
    wanted = os.environ.get(DECODER_VARIABLE, "").strip().lower()
    if wanted == "numba":
        return compiled()
    if wanted == "python" or _plain or _decoded < WORTH_IT:
        return PLAIN
    try:
        return compiled()
    except ImportError:
        return PLAIN


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Never compile, unless KOHORT_SPARK_DECODER demands it: for a process that runs for seconds."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


@cache
def compiled() -> Kernels:
    """The compiled kernels. The first call of each compiles it, or loads it from numba's cache."""
    import numba
    from numba.extending import register_jitable

    entries = (kernels.keys, kernels.commits, kernels.group_values, gather)
    for function in vars(kernels).values():
        if isinstance(function, FunctionType) and function not in entries:
            register_jitable(function)
    try:
        return Kernels(True, *map(numba.njit(cache=True, nogil=True), entries))
    except RuntimeError:  # there is no directory for the cache
        return Kernels(True, *map(numba.njit(nogil=True), entries))
