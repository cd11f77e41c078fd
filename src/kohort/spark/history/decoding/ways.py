"""Which way the kernels run: compiled by numba, or as they are.

numba must be imported, and its code compiled at the first use on a machine (half a minute; what comes of it is kept
beside the module or in the user's cache directory). So a process begins with the kernels as they are and goes over to
numba when it has been asked for WORTH_IT records in all. Without numba it stays. The environment variable of the
source's decoder, KOHORT_SPARK_DECODER=python or =numba, decides otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

from kohort.spark.arrow.decoder import DECODER_VARIABLE
from kohort.spark.history.decoding import kernels

WORTH_IT = 100_000

_asked = 0
"""How many records this process has been asked for."""


class Way(NamedTuple):
    """The kernels, one way or the other."""

    compiled: bool
    keys: Callable[..., Any]
    commits: Callable[..., Any]
    walk: Callable[..., Any]
    gather: Callable[..., Any]


AS_THEY_ARE = Way(False, kernels.keys, kernels.commits, kernels.walk, kernels.gather)


def way(records: int) -> Way:
    """The way for so many records more. Raises ImportError where numba is demanded and missing."""
    global _asked
    _asked += records
    wanted = os.environ.get(DECODER_VARIABLE, "").strip().lower()
    if wanted == "numba":
        return compiled()
    if wanted == "python" or _asked < WORTH_IT:
        return AS_THEY_ARE
    try:
        return compiled()
    except ImportError:
        return AS_THEY_ARE


@cache
def compiled() -> Way:
    """The kernels compiled; a kernel's first call does it, or reads what is kept."""
    import numba

    names: dict[str, Any] = dict(vars(kernels))
    for name, function in vars(kernels).items():
        if isinstance(function, FunctionType) and function.__module__ == kernels.__name__:
            # Its own globals: there the others are compiled too.
            own = FunctionType(function.__code__, names, name, function.__defaults__)
            own.__module__ = function.__module__
            try:
                names[name] = numba.njit(cache=True, nogil=True)(own)
            except RuntimeError:  # no place to keep anything
                names[name] = numba.njit(nogil=True)(own)
    return Way(True, names["keys"], names["commits"], names["walk"], names["gather"])
