"""The memory of the process: it stays below `memory.max.bytes`.

Requests, answers, members, offsets and tails of logs have limits of their own, and get most of this memory. The code,
topics, connections and waiting requests take some as well, and so does what the C library keeps of freed memory. Nobody
can count all of that, so the resident memory of the process is measured. If the requests and answers in memory had no
room to grow to their limits, freed memory is returned to the system. If there is too little room even then, large
requests wait, and connections with the most unread answers are closed (inflow.py, outflow.py). Near its limit, a
process does that at once, also while memory has been returned a moment ago.

Only the process of a server does this. Elsewhere the memory of the process belongs to others too, for instance to
tests. Only Linux tells the resident memory cheaply, and only glibc returns memory when it is asked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from kohort.server import log
from kohort.server.inflow import Inflow
from kohort.server.outflow import Outflow

KEPT_BYTES = 64 * 1024 * 1024
"""Freed memory that the process keeps, in bytes."""
LOOK_S = 0.1
RETURN_AGAIN_S = 1.0
"""To return memory takes up to twenty milliseconds, in which other threads that need memory wait."""
SHORT_S = 0.3
"""The same above AIM, if the last time was worth it: freed memory grows by up to 100 MB a second."""
LONGEST_S = 16.0
"""Before memory is returned again, if little was returned."""
WORTH_BYTES = 16 * 1024 * 1024
"""So much is worth being returned."""
AIM = 0.9
"""The part of its limit that a process is to have at most. Above it, requests and answers get less room at once:
between two looks it grows by 10 MB and more."""
LEAST = 0.3
"""The part of their limits that requests and answers always have."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's names of its settings (malloc.h)."""


class Limited(Protocol):
    """What the process can have less of at once."""

    @property
    def held_bytes(self) -> int: ...
    @property
    def most_bytes(self) -> int:
        """The most that it may hold by the settings."""

    def limit_to(self, part: float) -> None:
        """Hold no more than this part of `most_bytes`."""


class Queues:
    """Requests and answers."""

    def __init__(self, inflow: Inflow, outflow: Outflow, under_way: Callable[[], int]) -> None:
        """`under_way`: the bytes of answers that are being made."""
        self._inflow = inflow
        self._outflow = outflow
        self._under_way = under_way
        self._most = inflow.limit, outflow.limit

    @property
    def held_bytes(self) -> int:
        return self._inflow.total + self._outflow.unsent + self._under_way()

    @property
    def most_bytes(self) -> int:
        return sum(self._most)

    def limit_to(self, part: float) -> None:
        requests, answers = self._most
        self._inflow.narrow(int(part * requests))
        self._outflow.limit = int(part * answers)


class ProcessMemory:
    def __init__(
        self,
        most_bytes: int,
        limited: Limited,
        resident_bytes: Callable[[], int],
        return_freed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`return_freed` returns freed memory to the system; it is called in a thread."""
        self._most_bytes = most_bytes
        self._limited = limited
        self._resident_bytes = resident_bytes
        self._return_freed = return_freed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._returning = False
        self._returned_at = -LONGEST_S
        self._resident = 0
        self._besides_then = 0
        """What the process had besides requests and answers after memory was returned last."""
        self._was_worth_it = True
        self._pause_s = RETURN_AGAIN_S
        self._part = 1.0
        self._log = log.LimitedLog()

    def begin(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self.look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        self.begin()
        besides = self._besides()
        part = self._part_for(besides)
        if part >= 1.0:
            self._limit_to(1.0)
            return
        if self._resident > AIM * self._most_bytes:  # some of it may be freed memory, which is returned soon
            self._limit_to(min(part, self._part))
            self._pause_s = SHORT_S if self._was_worth_it else RETURN_AGAIN_S
        pause_s = min(self._pause_s, RETURN_AGAIN_S) if besides > self._besides_then + WORTH_BYTES else self._pause_s
        if self._returning or self._clock() < self._returned_at + pause_s:
            return
        self._returning = True
        self._loop.run_in_executor(None, self._return_freed).add_done_callback(lambda _: self._returned(besides))

    def _returned(self, before: int) -> None:
        self._returning = False
        besides = self._besides_then = self._besides()
        self._was_worth_it = before - besides >= WORTH_BYTES
        self._pause_s = RETURN_AGAIN_S if self._was_worth_it else min(2 * self._pause_s, LONGEST_S)
        self._returned_at = self._clock()
        self._limit_to(self._part_for(besides))

    def _besides(self) -> int:
        """What the process has besides requests and answers."""
        self._resident = self._resident_bytes()
        return max(self._resident - self._limited.held_bytes, 0)

    def _part_for(self, besides: int) -> float:
        """The part of their limits for which requests and answers have room."""
        return min(max((AIM * self._most_bytes - besides) / self._limited.most_bytes, LEAST), 1.0)

    def _limit_to(self, part: float) -> None:
        if part == self._part:
            return
        if part < self._part:
            self._log.warning(
                "memory is short: requests and answers get less",
                resident_bytes=self._resident,
                part=f"{part:.2f}",
                hint="raise memory.max.bytes, or have fewer topics, members and connections",
            )
        self._part = part
        self._limited.limit_to(part)


def keep_freed_memory() -> None:
    """Keep freed memory in the process. Batches and requests use megabytes for a short time. glibc returns these to the
    system each time, and getting them again page by page took a quarter of a fetch. Other C libraries have no such
    setting."""
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        libc = import_module("ctypes").CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, KEPT_BYTES // 2)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def return_freed_memory() -> None:
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import_module("ctypes").CDLL(None).malloc_trim(0)


def resident_memory() -> Callable[[], int] | None:
    """A function that tells the resident memory of this process, in bytes; None if the system does not tell it."""
    try:
        statm = os.open("/proc/self/statm", os.O_RDONLY)  # it stays open: later there may be no file number left
        page = os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError, ValueError):
        return None
    return lambda: int(os.pread(statm, 200, 0).split()[1]) * page
