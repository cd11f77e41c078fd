"""Run many seeds over the cores of the machine, until all are done, the time is up, or one fails."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count, takewhile

from kohort.simulator.simulate import run
from kohort.simulator.world.world import Millis

CHUNK = 20
"""Seeds that a process runs before it reports."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of a chunk of seeds."""

    seeds: int
    failed: tuple[tuple[int, str], ...]
    """Seed and violation."""
    events: int


def run_many(
    first: int, seeds: int | None, *, minutes: float | None, jobs: int, duration_ms: Millis | None = None
) -> Iterator[Tally]:
    """Yields tallies as chunks end. Without `seeds` the run continues until the minutes are over."""
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    starts = iter(range(first, first + seeds, CHUNK) if seeds is not None else count(first, CHUNK))
    last = None if seeds is None else first + seeds
    in_time = takewhile(lambda _: deadline is None or time.monotonic() < deadline, starts)
    chunks = ((start, CHUNK if last is None else min(CHUNK, last - start), duration_ms) for start in in_time)
    if jobs == 1:
        yield from (_chunk(*chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs, initializer=_end_with_parent) as pool:
        running: set[Future[Tally]] = set()
        for chunk in chunks:
            running.add(pool.submit(_chunk, *chunk))
            if len(running) > jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        for future in running:
            yield future.result()


def _end_with_parent() -> None:
    """A worker that waits for seeds does not notice that its parent was killed."""

    def wait_for_end() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait_for_end, daemon=True).start()


def _chunk(first: int, seeds: int, duration_ms: Millis | None) -> Tally:
    failed = []
    events = 0
    for seed in range(first, first + seeds):
        result = run(seed, duration_ms=duration_ms)
        events += result.events
        if result.violation is not None:
            failed.append((seed, str(result.violation)))
    return Tally(seeds, tuple(failed), events)
