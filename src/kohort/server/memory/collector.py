"""The garbage collector of the server's process: no collection visits everything that lives.

A full collection visits all objects that it has not been told to leave out. With ten thousand partitions it takes a
third of a second, and all clients wait. So what survives a full collection is left out of the next ones, and each of
them visits what is new. It comes after some ten thousand new objects, and so takes a few milliseconds; with Python's
thresholds it takes ten times as long. Reference counts free almost everything; the collector is needed for cycles only.
A cycle that was left out while it lived is found by the collection of everything, which comes once an hour.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

EVERYTHING_S = 3_600.0
FULL = 2
"""The oldest generation."""
THRESHOLDS = (700, 4, 2)
"""A collection of the youngest generation comes after so many new objects, one of the next generation after so many of
these, and a full one after so many of those."""


class Collector:
    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._clock = clock
        self._everything_at = 0.0
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """At the end of the start, during which the collector was off (kohort.cli.start)."""
        self._everything_at = self._clock() + EVERYTHING_S
        gc.freeze()
        gc.callbacks.append(self.collected)
        gc.set_threshold(*THRESHOLDS)
        gc.enable()

    def end(self) -> None:
        gc.callbacks.remove(self.collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def collected(self, phase: str, info: dict[str, Any]) -> None:
        """Python calls it before and after each collection."""
        if phase != "stop" or info["generation"] != FULL:
            return
        if self._clock() < self._everything_at:
            gc.freeze()
        else:
            self._everything_at = self._clock() + EVERYTHING_S
            gc.unfreeze()
