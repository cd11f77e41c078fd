"""A clock that tests advance, so that sessions and other timeouts end without waiting for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable

WAIT_S = 10.0


class ManualClock:
    """The time of a `KohortServer`, for its parameter `clock`. `advance` may be called from any thread.

    The clock moves only with `advance`; with `ticking=True` it also runs with the real time. One
    clock may serve several servers, and continues over a restart.
    """

    is_real = False

    def __init__(self, *, ticking: bool = False) -> None:
        self._ticking = ticking
        self._lock = threading.Lock()
        self._start_ms = time.time_ns() // 1_000_000
        self._started_ns = time.monotonic_ns()
        self._advanced_ms = 0
        self._timers: dict[_Timer, None] = {}

    def now(self) -> int:
        """Milliseconds since the epoch."""
        ran_ms = (time.monotonic_ns() - self._started_ns) // 1_000_000 if self._ticking else 0
        return self._start_ms + self._advanced_ms + ran_ms

    def advance(self, milliseconds: int) -> None:
        """Move the time forward. Returns when the servers handle what has timed out: before any later request."""
        if milliseconds < 0:
            raise ValueError("time does not go back")
        with self._lock:
            self._advanced_ms += milliseconds
            now = self.now()
            due = [timer for timer in self._timers if timer.deadline <= now]
            for timer in due:
                del self._timers[timer]
        handled = [timer.fire() for timer in due]
        if not _in_event_loop():
            concurrent.futures.wait(handled, WAIT_S)

    def call_at(self, deadline: int, call: Callable[[], None]) -> _Timer:
        """For the server: call `call` from the running event loop at `deadline`."""
        timer = _Timer(self, asyncio.get_running_loop(), deadline, call)
        with self._lock:
            remaining_ms = deadline - self.now()
            if remaining_ms > 0:
                self._timers[timer] = None
        if remaining_ms <= 0:
            timer.fire()
        elif self._ticking:
            timer.fire_after(remaining_ms)
        return timer

    def forget(self, timer: _Timer) -> None:
        with self._lock:
            self._timers.pop(timer, None)


class _Timer:
    """Calls once: when the clock is advanced beyond its deadline, or when the real time has come."""

    def __init__(
        self, clock: ManualClock, loop: asyncio.AbstractEventLoop, deadline: int, call: Callable[[], None]
    ) -> None:
        self.deadline = deadline
        self._clock = clock
        self._loop = loop
        self._call: Callable[[], None] | None = call
        self._handle: asyncio.TimerHandle | None = None

    def fire(self) -> concurrent.futures.Future[None]:
        """May be called in any thread. The future completes after the callbacks that this call scheduled have run."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            self._run()
            self._loop.call_soon(done.set_result, None)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop is closed: its server has stopped
            done.set_result(None)
        return done

    def fire_after(self, milliseconds: int) -> None:
        self._handle = self._loop.call_later(milliseconds / 1000, self._run)

    def cancel(self) -> None:
        self._call = None
        if self._handle is not None:
            self._handle.cancel()
        self._clock.forget(self)

    def _run(self) -> None:
        call = self._call
        self.cancel()
        if call is not None:
            call()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
