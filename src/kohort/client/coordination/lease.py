"""What is held under a coordinator's lease, and the watch that notices the lease's end.

Heartbeats renew the lease, and a timer checks it when it would end.

A lease may go on after its end without a new round: an answer came at the last moment, and the coordinator still counts
the member in. The member has given up its work by then, so it needs another round and requests it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from kohort.client.coordination.coordinator import Coordinator
from kohort.client.errors import Misuse

LOOK_AGAIN_S = 0.2


class Leased:
    """A term or a shard: held until it is given up or lost. `ended` belongs to the event loop of its coordinator."""

    def __init__(self, member: Coordinator) -> None:
        self._member = member
        self._over = asyncio.Event()
        self._over_in_threads = threading.Event()

    @property
    def valid(self) -> bool:
        """Whether it is held at this instant, by the clock. Check it before each effect; in any thread."""
        return not self._over_in_threads.is_set() and self._member.lease_left_ms > 0

    async def ended(self) -> None:
        """Returns when it is to be given up, or is lost."""
        await self._over.wait()

    def wait_ended(self, timeout_ms: int | None = None) -> bool:
        """`ended` for threads: True as soon as it is over, False if it lasts after `timeout_ms`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise Misuse("wait_ended would block the event loop: use `await ended()`")
        self._over_in_threads.wait(None if timeout_ms is None else timeout_ms / 1000)
        return not self.valid

    def _end(self) -> None:
        self._over_in_threads.set()
        self._over.set()


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


def started(work: Any, held: Leased) -> Coroutine[Any, Any, Any]:
    """The coroutine of `work`: `work` itself, or what it returns for a term or a shard. Raises TypeError."""
    coroutine = work(held) if callable(work) else work
    if inspect.iscoroutine(coroutine):
        return coroutine
    if inspect.isawaitable(coroutine):
        return _awaited(coroutine)
    raise TypeError(
        f"the work {getattr(work, '__name__', work)!s} is no coroutine function; "
        "for plain functions there are blocking_lead and blocking_shards"
    )


async def _awaited(work: Any) -> Any:
    return await work
