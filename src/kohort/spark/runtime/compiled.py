"""Functions compiled by numba, with explicit types and a cache if possible.

Only modules with compiled functions import this one, and only workers with much to do import those: importing numba
takes half a second and some 100 MB. A module compiles its functions once, when it is imported, which takes seconds. The
result is cached beside the module, or else in the user's cache directory (NUMBA_CACHE_DIR names another); many
processes may do that at once. With no writable directory, a full disk or a damaged cache, there is no cache.

Compiled code checks no bounds: the code itself must check every length before it uses it. It works on arrays that it
is given and allocates none, so numba's reference counting is turned off: it would take most of the time of a loop with
a few calls of other compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for these types at once. It runs without the GIL and cannot allocate."""

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, cache=True, nogil=True, _nrt=False)(function)
        except Exception:
            # An error of the cache is ignored; an error of the function occurs again.
            return numba.njit(signature, nogil=True, _nrt=False)(function)

    return compile_


def _copy(typing: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any) -> Any:
    signature = types.void(target, target_at, source, source_at, size)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, target_at, source, source_at, size = arguments
        into = context.make_array(signature.args[0])(context, builder, target)
        out_of = context.make_array(signature.args[2])(context, builder, source)
        cgutils.raw_memcpy(
            builder, builder.gep(into.data, [target_at]), builder.gep(out_of.data, [source_at]), size, itemsize=1
        )
        return context.get_dummy_value()

    return signature, generate


copy = intrinsic(_copy)
"""`copy(target, target_at, source, source_at, size)`: memcpy between arrays of bytes, without any check."""
