"""Chooses what turns the bytes of a record batch into columns. Both fillers give the same results.

`compiled.py` runs code compiled by numba and makes no Python object for a record. `plain.py` is some ten to thirty
times slower. Loading numba costs each worker process 0.3 s of CPU and some 110 MB, and 2 s more if its code must be
compiled first. So a process changes from the plain loop to numba after WORTH_IT records: by then the plain loop has
cost as much as loading numba. KOHORT_SPARK_DECODER=python or =numba in the workers' environment
(`spark.executorEnv.…`) overrides the choice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version

from kohort.spark.arrow.columns import Filler
from kohort.spark.runtime.failures import warn

DECODER_VARIABLE = "KOHORT_SPARK_DECODER"
WORTH_IT = 200_000

_expected = 0
"""The records that this process was asked to decode."""
_warned = False


def filler(expected: int, with_headers: bool) -> Filler:
    """The filler for a range of `expected` offsets. Raises ValueError as `decoder` does."""
    global _expected, _warned
    _expected += expected
    if _expected >= WORTH_IT or DECODER_VARIABLE in os.environ:
        compiled, why_not = _compiled()
        if compiled is not None:
            return compiled(with_headers)
        if not _warned and DECODER_VARIABLE not in os.environ:
            _warned = True
            warn(f"{why_not}, so records are decoded by a loop in Python, some ten times slower")
    from kohort.spark.arrow.plain import PlainFiller

    return PlainFiller(with_headers)


def decoder() -> str:
    """The decoder of large ranges in this process: `numba 0.68.1`, or `python` and the reason. Loads numba for that.

    Raises ValueError if KOHORT_SPARK_DECODER has an unknown value, or is numba and numba cannot be loaded.
    """
    compiled, why_not = _compiled()
    return f"python ({why_not})" if compiled is None else f"numba {version('numba')}"


def _compiled() -> tuple[Callable[[bool], Filler] | None, str]:
    """The compiled filler, or the reason why it is not used."""
    chosen = os.environ.get(DECODER_VARIABLE, "auto")
    if chosen not in ("auto", "numba", "python"):
        raise ValueError(f"{DECODER_VARIABLE} is {chosen!r}; it takes auto, numba or python")
    if chosen == "python":
        return None, f"{DECODER_VARIABLE} says so"
    try:
        from kohort.spark.arrow.compiled import CompiledFiller  # loads numba
    except ModuleNotFoundError:
        why_not = "numba is not installed (pip install 'kohort[spark]')"
    except Exception as error:
        # A numba that does not fit numpy or this code. Slow is better than not at all.
        why_not = f"numba cannot be loaded ({error})"
    else:
        return CompiledFiller, ""
    if chosen == "numba":
        raise ValueError(f"{DECODER_VARIABLE} is numba, but {why_not}")
    return None, why_not
