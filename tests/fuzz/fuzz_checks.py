"""What every kind of fuzzing measures and reports: a find, time, memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MEMORY_FACTOR = 64
"""Bytes that a byte of the input may take: the densest objects are of three bytes each."""
MEMORY_FLOOR = 16_384
LIMIT_S = 0.05
"""What no handler may take, in CPU time of the process."""


class Find(Exception):
    """Something that must not be, with the input that shows it."""

    def __init__(self, kind: str, about: str, data: bytes, what: object) -> None:
        self.kind = kind
        self.about = about
        self.data = data
        self.what = f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else str(what)
        super().__init__(f"{kind} {about}: {self.what}")


@dataclass(slots=True)
class Timed:
    too_long: bool = False


class Meter:
    """Time by the CPU time of this process, so that other processes do not count; memory by tracemalloc."""

    def __init__(self) -> None:
        self.largest_factor = 0.0
        """The most bytes a byte of an input has taken, above the floor."""
        self.slowest_s = 0.0

    @contextmanager
    def timed(self) -> Iterator[Timed]:
        found = Timed()
        started = time.process_time()
        yield found
        found.too_long = time.process_time() - started > LIMIT_S

    def limit_s(self, size: int) -> float:
        return LIMIT_S

    def fastest(self, call: Callable[[], object], times: int = 3) -> float:
        """The shortest of several repetitions: what a busy machine adds is not the program's."""
        best = float("inf")
        for _ in range(times):
            started = time.process_time()
            call()
            best = min(best, time.process_time() - started)
            if best < LIMIT_S:
                break
        self.slowest_s = max(self.slowest_s, best)
        return best

    def peak(self, call: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def too_much(self, peak: int, size: int) -> bool:
        if peak <= MEMORY_FLOOR:
            return False
        self.largest_factor = max(self.largest_factor, (peak - MEMORY_FLOOR) / max(size, 1))
        return peak > MEMORY_FLOOR + MEMORY_FACTOR * size
