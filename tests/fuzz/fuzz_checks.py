"""The measurements and reports of every kind of fuzzing: finds, time, memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

MEMORY_FACTOR = 64
"""Bytes that a byte of the input may take: the densest objects are of three bytes each."""
MEMORY_FLOOR = 16_384
LIMIT_S = 0.05
"""The CPU time of the process that no handler may exceed."""
LIMIT_BYTES = 32_768
"""Up to this size of the request; a larger one may take longer in proportion."""
REFERENCE_S = 0.003
"""What `_reference` takes on the machine for which LIMIT_S is meant, when nothing else runs on it."""


class Find(Exception):
    """Something that must not be, with the input that shows it."""

    def __init__(self, kind: str, about: str, data: bytes, what: object) -> None:
        self.kind = kind
        self.about = about
        self.data = data
        self.what = f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else str(what)
        super().__init__(f"{kind} {about}: {self.what}")


def limit_s(size: int) -> float:
    """The limit for an input of this many bytes."""
    return LIMIT_S * max(size / LIMIT_BYTES, 1.0)


def slowness() -> float:
    """How many times slower this machine is now than the machine of the limits; at least 1."""
    return max(min(_reference() for _ in range(3)) / REFERENCE_S, 1.0)


def _reference() -> float:
    started = time.process_time()
    found: dict[str, list[int]] = {}
    for number in range(20_000):
        found.setdefault(str(number % 500), []).append(number)
    return time.process_time() - started


def fastest_s(call: Callable[[], object], times: int = 3) -> float:
    """The shortest CPU time of several repetitions, as on the machine of the limits."""
    best = float("inf")
    slower = slowness()
    for _ in range(times):
        started = time.process_time()
        call()
        best = min(best, (time.process_time() - started) / slower)
        if best < LIMIT_S:
            break
    return best


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def most_bytes(size: int) -> int:
    """The memory that an input of this many bytes may take."""
    return MEMORY_FLOOR + MEMORY_FACTOR * size


Input = TypeVar("Input")


class Stream(Generic[Input]):
    """One worker's inputs of one kind."""

    kind: str

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def run(self, inputs: int) -> int:
        """Run at least this many inputs; return how many. Raises Find."""
        done = 0
        while done < inputs:
            done += self.some(inputs - done)
        return done

    def some(self, most: int) -> int:
        """Run some inputs that belong together; return how many."""
        raise NotImplementedError

    def close(self) -> None:
        """Most kinds hold nothing."""

    def each(self, about: str, made: Sequence[Input], run: Callable[[Input], object]) -> None:
        """Run each input. Raises Find for an exception, and for an input that takes too long by itself."""
        one = None
        started = time.process_time()
        try:
            for one in made:
                run(one)
        except Exception as error:
            raise Find(self.kind, about, self.bytes_of(one), error) from error
        too_long = time.process_time() - started > LIMIT_S
        for one in made if too_long else ():
            took, data = fastest_s(partial(run, one)), self.bytes_of(one)
            if took > limit_s(len(data)):
                raise Find(self.kind, about, data, f"took {took * 1000:.1f} ms")

    def check_memory(self, about: str, data: bytes, call: Callable[[], object], most: int) -> None:
        """Raises Find if the call takes more memory than `most` bytes."""
        peak = peak_bytes(call)
        if peak > most:  # what other threads of the process allocate counts too, at times
            peak = min(peak_bytes(call) for _ in range(3))
        if peak > most:
            raise Find(self.kind, about, data, f"{peak} bytes for {len(data)}")

    def bytes_of(self, one: Any) -> bytes:
        """The input as a vector keeps it."""
        assert isinstance(one, bytes)
        return one
