"""The server's time: the wall clock at the start plus what a monotonic clock has counted since, so it never goes back.

A server takes any `Clock`. Tests give it one that they advance (`kohort.testing.ManualClock`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from kohort.broker.turn import Millis

ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On Linux, CLOCK_MONOTONIC stands still while the machine is suspended: timestamps would stay behind from then on, and
other machines' members would seem to have been quick. Timers of the event loop stand still too; `TurnSchedule` sets
them again after a pause."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    @property
    def is_real(self) -> bool:
        """True if it goes on while the process is stopped, and moves evenly. Then a jump is a pause of the server."""

    def now(self) -> Millis:
        """Milliseconds since the epoch; never less than before."""

    def call_at(self, deadline: Millis, call: Callable[[], None]) -> Timer:
        """Call `call` from the running event loop once `now()` has reached `deadline`, or shortly before."""


class SystemClock:
    is_real = True

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(ELAPSED)

    def now(self) -> Millis:
        return (self._offset_ns + time.clock_gettime_ns(ELAPSED)) // 1_000_000

    def call_at(self, deadline: Millis, call: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0, deadline - self.now()) / 1000, call)
