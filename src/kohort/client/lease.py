"""Tells when a coordinator's lease is over: heartbeats renew it, and a timer looks when it would end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LeaseWatch:
    """Calls `over`, once, when `left_ms` says 0. Belongs to the running event loop."""

    def __init__(self, left_ms: Callable[[], int], over: Callable[[], None]) -> None:
        self._left_ms = left_ms
        self._over = over
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.end()
        self._look()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left = self._left_ms()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left / 1000, self._look)
        else:
            self._timer = None
            self._over()
