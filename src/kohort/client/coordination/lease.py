"""Notices when a coordinator's lease ends: heartbeats renew the lease, and a timer checks it when it would end.

A lease may go on after its end without a new round: an answer came at the last moment, and the coordinator still counts
the member in. The member has given up its work by then, so it needs another round and requests it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kohort.client.coordination.coordinator import Coordinator

LOOK_AGAIN_S = 0.2


class LeaseWatch:
    """Belongs to the running event loop.

    `over` is called when the member's lease has ended. If the lease lasts again after that and no new round is under
    way, the member requests one, for `reason`.
    """

    def __init__(self, member: Coordinator, over: Callable[[], None], reason: str) -> None:
        self._member = member
        self._over = over
        self._reason = reason
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to watch the lease; called at each round."""
        self.end()
        self._look()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left = self._member.lease_left_ms
        if left > 0:
            self._later(left / 1000, self._look)
        else:
            self._over()
            self._later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        if self._member.lease_left_ms > 0 and not self._member.rejoin_needed:
            self._timer = None
            self._member.request_rejoin(self._reason)
        else:
            self._later(LOOK_AGAIN_S, self._look_again)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, action)


async def outlast(task: asyncio.Task[Any]) -> None:
    """Wait for the end of another task. A cancellation meanwhile takes effect after that."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
