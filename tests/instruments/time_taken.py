"""How long a piece of code takes, in a process of tests that has run thousands of others."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def takes_less(limit_s: float, clock: Callable[[], float] = time.process_time) -> Iterator[None]:
    """The block takes less than this many seconds by the clock: the processor time of the process unless told.

    The collector leaves out what was there before: a collection of all that earlier tests left takes over a second.
    """
    gc.freeze()
    try:
        began = clock()
        yield
        took = clock() - began
    finally:
        gc.unfreeze()
    assert took < limit_s, f"{took:.3f} s"
