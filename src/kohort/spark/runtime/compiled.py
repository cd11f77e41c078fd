"""Functions compiled by numba: with explicit types, from a cache where there is a place for one.

Only modules that hold compiled functions import this one, and only workers that have much to do import those: numba
takes half a second and some 100 MB to import. Types are given, so compiling happens once, when the module is imported,
and takes seconds; what comes of it is kept beside the module, else in the user's cache directory (NUMBA_CACHE_DIR names
another). numba writes those files aside and renames them, so many processes may do that at once. An executor may have
no directory that it may write to, or a full disk, or a cache that is damaged: then it compiles for itself.

Compiled code checks no bounds: whoever writes it checks every length before it is used. It works on arrays that it is
given and makes none, so numba's reference counting is left out; in a loop with a few calls to other such functions it
would take most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for these types, now. It runs without the GIL and cannot allocate."""

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, cache=True, nogil=True, _nrt=False)(function)
        except Exception:
            # Whatever is wrong with the cache, it is only a cache. What is wrong with the function fails again.
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
"""`copy(target, target_at, source, source_at, size)`: as memcpy does, between arrays of bytes. Nothing is checked."""
