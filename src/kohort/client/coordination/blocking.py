"""The coordinator for programs with threads: the same callbacks, without asyncio.

    class Workers(BlockingCoordinator):
        ...                                    # as Coordinator's, all plain functions

    with Workers("localhost:9092", "my-workers") as workers:
        while True:
            workers.ensure_active_group()
            ...                                # a piece of work; heartbeats go on meanwhile

What runs where. Each coordinator has a thread with an event loop, which sends the heartbeats whatever your code does
and in which all state lives. It carries out calls from other threads one after the other: that is the KIP's lock.
Callbacks run in the thread that called `ensure_active_group` or `close`; while one runs, other threads that call these
wait. Only `on_lost` runs in the coordinator's own thread, so it must return quickly. The properties may be read
anywhere.

Heartbeats in the background would keep a member whose own code hangs. So a member that does not call
`ensure_active_group`, `wait_for_rejoin` or `poll` for `rebalance_timeout_ms` leaves the group, as Kafka's consumers do
after `max.poll.interval.ms` (which is also their rebalance timeout): `on_lost` is called, and the next
`ensure_active_group` joins again. Time inside callbacks counts; time in which these calls wait does not.

The thread is a daemon. At the interpreter's exit, open coordinators leave their groups without `on_leave_prepare`,
because the modules that it needs may be gone already. A child of fork does not have the thread; it needs its own
coordinators.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from kohort.client.concurrency.loop_thread import LoopThread
from kohort.client.concurrency.worker_thread import tamely
from kohort.client.coordination.callback_order import NO_GENERATION, Active, Generation, Step, Wait
from kohort.client.coordination.callbacks import Callbacks, JoinedMember
from kohort.client.errors import Closed, Misuse

__all__ = ["NO_GENERATION", "BlockingCoordinator", "Generation", "JoinedMember"]

T = TypeVar("T")

_starting = threading.Lock()


class BlockingCoordinator(Callbacks):
    """One member of a group: subclass it. Settings, callbacks and properties are those of `Coordinator`."""

    _thread: LoopThread | None = None
    _turn: threading.Lock
    """Held by the call that runs callbacks."""
    _callback_thread: int | None = None
    """The thread that runs a callback now."""
    _closed = False
    _last_poll = 0.0

    def ensure_active_group(self, timeout_ms: int | None = None) -> bool:
        """Join the group, or rejoin it, if need be. False if that took longer than `timeout_ms`; the next call
        continues where this one stopped. Callbacks are not cut short. Raises as `Coordinator.ensure_active_group`
        does.
        """
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._enter("ensure_active_group")
        with self._turn:
            while True:
                step = self._do(self._due(deadline))
                if isinstance(step, Active):
                    return True
                if isinstance(step, Wait):
                    return False
                callback, arguments = self._callback(step)
                result = self._call(callback, *arguments)
                self._do(_called(self._session.done, step, result))

    def wait_for_rejoin(self, timeout_ms: int | None = None) -> bool:
        """Wait until `rejoin_needed`; False where it was not for `timeout_ms`. Raises Closed."""
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._enter("wait_for_rejoin")
        return self._do(self._rejoin(deadline))

    def poll(self) -> None:
        """Say that the program is alive, where a piece of work takes longer than the rebalance timeout."""
        self._enter("poll")

    def request_rejoin(self, reason: str) -> None:
        """Make the group rebalance, for instance because `metadata` has changed. `reason` goes to the broker's log."""
        self._enter("request_rejoin")
        self._do(_called(self._session.request_rejoin, reason))

    def close(self, *, leave: bool | None = None) -> None:
        """Leave the group and end the thread; as `Coordinator.close`. May be called in any thread, also twice."""
        if self._closed and self._session.left:
            return
        self._enter("close", closing=True)
        self._closed = True
        self._do(_called(self._session.wake))
        with self._turn:
            if self._session.left:
                return
            try:
                if self.generation.generation_id >= 0:
                    self._call(self.on_leave_prepare)
            finally:
                self._do(self._session.leave(leave))
                assert self._thread is not None
                self._thread.end()

    def __enter__(self) -> Self:
        self._enter("with")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the application's threads

    def _enter(self, call: str, *, closing: bool = False) -> None:
        with _starting:
            if self._thread is None and not self._closed:
                self._start()
        if self._thread is not None:
            self._thread.refuse_fork(call, "coordinator")
        if self._closed and not closing:
            raise Closed(f"{call}: the coordinator of group {self.group_id} is closed")
        if self._thread is not None and self._thread.is_current:
            raise Misuse(f"{call} was called in the coordinator's own thread, where on_lost runs")
        if call in ("ensure_active_group", "close") and self._callback_thread == threading.get_ident():
            raise Misuse(f"{call} was called inside a callback of the same coordinator")
        self._last_poll = time.monotonic()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done in the coordinator's thread. An interrupt of the wait ends the work, too."""
        closed = f"group {self.group_id}: the coordinator was closed"
        if self._thread is None:
            work.close()
            raise Closed(closed)
        try:
            return self._thread.run(work, closed)
        finally:
            self._last_poll = time.monotonic()

    def _call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        self._callback_thread = threading.get_ident()
        try:
            result = callback(*arguments)
            if inspect.iscoroutine(result):
                result.close()
                raise Misuse(f"{callback.__name__} is a coroutine function: those are for Coordinator")
            return result
        except Exception as error:
            error.add_note(f"in {callback.__name__} of group {self.group_id}")
            raise
        finally:
            self._callback_thread = None

    # -- in the coordinator's thread

    def _tell_lost(self, generation: int, member_id: str, reason: str) -> None:
        tamely(self.on_lost, generation, member_id, reason)

    async def _due(self, deadline: float | None) -> Step:
        while True:
            if self._closed:
                raise Closed(f"group {self.group_id}: the coordinator was closed")
            step = self._session.step()
            if not isinstance(step, Wait) or not await self._changed(deadline):
                return step

    async def _rejoin(self, deadline: float | None) -> bool:
        while not self.rejoin_needed:
            if not await self._changed(deadline):
                return False
            if self._closed:
                raise Closed(f"group {self.group_id}: the coordinator was closed")
        return True

    async def _changed(self, deadline: float | None) -> bool:
        """True if an event came before the deadline."""
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                await self._session.changed()
        except TimeoutError:
            return False
        return True

    async def _watch(self) -> None:
        """Leaves the group when the program has not come back for too long."""
        limit = self._settings.rebalance_timeout_ms / 1000
        while True:
            waits = self._thread is not None and self._thread.waiting
            idle = 0.0 if waits else time.monotonic() - self._last_poll
            if idle >= limit:
                if self._session.joined:
                    self._session.retire(f"the program did not come back for {limit:g} s")
                idle = 0.0
            await asyncio.sleep(limit - idle)

    # -- the thread

    def _start(self) -> None:
        self._turn = threading.Lock()
        self._last_poll = time.monotonic()
        self._thread = LoopThread(f"kohort-group-{self.group_id}", self._leave_at_exit)
        self._do(self._begin())

    async def _begin(self) -> None:
        self._session.bind()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _leave_at_exit(self) -> None:
        if not self._closed:
            self._closed = True
            await self._session.leave(None)


async def _called(call: Callable[..., None], *arguments: Any) -> None:
    """A plain call, as work for the coordinator's thread."""
    call(*arguments)
