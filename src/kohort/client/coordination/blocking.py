"""The coordinator for programs with threads: the same callbacks, without asyncio.

    class Workers(BlockingCoordinator):
        ...                                    # as Coordinator's, all plain functions

    with Workers("localhost:9092", "my-workers") as workers:
        while True:
            workers.ensure_active_group()
            ...                                # a piece of work; heartbeats go on meanwhile

What runs where. Each coordinator has a thread with an event loop, which sends the heartbeats whatever your code does,
and in which all state lives: calls from other threads are carried out there, one after the other. That is the KIP's
lock. Callbacks run in the thread that called `ensure_active_group` or `close`; while one runs, other threads that call
these wait. Only `on_lost` runs in the coordinator's own thread: it must only tell others. The properties may be read
anywhere.

Heartbeats in the background would keep a member whose own code hangs. So a member that does not come back to
`ensure_active_group`, `wait_for_rejoin` or `poll` for `rebalance_timeout_ms` leaves the group by itself, as Kafka's
consumers do after `max.poll.interval.ms` (it is also their rebalance timeout): `on_lost`, and the next
`ensure_active_group` joins anew. Time inside callbacks counts, time in which these calls wait does not.

The thread is a daemon. At the interpreter's exit, coordinators that are still open leave their groups, without calling
`on_leave_prepare`: what it needs may be gone already. A child of fork has no such thread; it makes coordinators of its
own.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from kohort.client.concurrency.worker_thread import tamely
from kohort.client.coordination.callback_order import NO_GENERATION, Active, Generation, Step, Wait
from kohort.client.coordination.callbacks import Callbacks, JoinedMember
from kohort.client.errors import Closed, Misuse

__all__ = ["NO_GENERATION", "BlockingCoordinator", "Generation", "JoinedMember"]

EXIT_S = 2.0
"""How long the interpreter's exit waits for coordinators to leave, each."""

T = TypeVar("T")

_open: weakref.WeakSet[BlockingCoordinator] = weakref.WeakSet()


class BlockingCoordinator(Callbacks):
    """One member of a group: subclass it. Settings, callbacks and properties are those of `Coordinator`."""

    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _turn: threading.Lock
    """Held by the call that carries out a round."""
    _gate: threading.Lock
    """Held to count who waits, and to end it."""
    _ended = False
    _busy: int | None = None
    """The thread that runs a callback."""
    _closed = False
    _waiting = 0
    """Calls that wait now."""
    _last_poll = 0.0
    _pid = 0

    def ensure_active_group(self, timeout_ms: int | None = None) -> bool:
        """Join the group, or rejoin it, if need be. False where that has taken longer than `timeout_ms`; the next call
        goes on where this one was. Callbacks are not cut short. Raises as `Coordinator.ensure_active_group` does.
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
                self._do(self._done(step, result))

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
        self._do(self._requested(reason))

    def close(self, *, leave: bool | None = None) -> None:
        """Leave the group and end the thread; as `Coordinator.close`. May be called in any thread, also twice."""
        if self._closed and self._session.left:
            return
        self._enter("close", closing=True)
        self._closed = True
        self._do(self._stirred())
        with self._turn:
            if self._session.left:
                return
            try:
                if self.generation.generation_id >= 0:
                    self._call(self.on_leave_prepare)
            finally:
                self._do(self._session.leave(leave))
                self._end()

    def __enter__(self) -> Self:
        self._enter("with")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- in the application's threads

    def _enter(self, call: str, *, closing: bool = False) -> None:
        with _starting:
            if self._loop is None and not self._closed:
                self._start()
        if self._pid != os.getpid():
            raise Misuse(f"{call}: this coordinator belongs to the process that forked this one")
        if self._closed and not closing:
            raise Closed(f"{call}: the coordinator of group {self.group_id} is closed")
        if threading.current_thread() is self._thread:
            raise Misuse(f"{call} was called in the coordinator's own thread, where on_lost runs")
        if call in ("ensure_active_group", "close") and self._busy == threading.get_ident():
            raise Misuse(f"{call} was called inside a callback of the same coordinator")
        self._last_poll = time.monotonic()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done in the coordinator's thread. An interrupt of the wait ends the work, too."""
        assert self._loop is not None
        with self._gate:
            if self._ended:
                work.close()
                raise Closed(f"group {self.group_id}: the coordinator was closed")
            self._waiting += 1
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Closed(f"group {self.group_id}: the coordinator was closed") from None
        finally:
            future.cancel()
            with self._gate:
                self._waiting -= 1
            self._last_poll = time.monotonic()

    def _call(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        self._busy = threading.get_ident()
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
            self._busy = None

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
        """Whether something was heard before the deadline."""
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                await self._session.changed()
        except TimeoutError:
            return False
        return True

    async def _done(self, step: Step, result: Any) -> None:
        self._session.done(step, result)

    async def _requested(self, reason: str) -> None:
        self._session.request_rejoin(reason)

    async def _stirred(self) -> None:
        self._session.stir()

    async def _watch(self) -> None:
        """Leaves the group when the program has not come back for too long."""
        limit = self._settings.rebalance_timeout_ms / 1000
        while True:
            idle = 0.0 if self._waiting else time.monotonic() - self._last_poll
            if idle >= limit:
                if self._session.taken:
                    self._session.retire(f"the program did not come back for {limit:g} s")
                idle = 0.0
            await asyncio.sleep(limit - idle)

    # -- the thread

    def _start(self) -> None:
        self._turn = threading.Lock()
        self._gate = threading.Lock()
        self._pid = os.getpid()
        self._last_poll = time.monotonic()
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=_run, args=(loop, ready), name=f"kohort-group-{self.group_id}", daemon=True
        )
        self._thread.start()
        ready.wait()
        self._loop = loop
        self._do(self._begin())
        _open.add(self)

    async def _begin(self) -> None:
        self._session.sit()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def _end(self) -> None:
        _open.discard(self)
        assert self._loop is not None
        assert self._thread is not None
        with self._gate:
            self._ended = True  # what was asked for before is cancelled, nothing comes after
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _leave_at_exit(self) -> None:
        if not self._closed and self._loop is not None and self._pid == os.getpid():
            self._closed = True
            leaving = asyncio.run_coroutine_threadsafe(self._session.leave(None), self._loop)
            with suppress(Exception):
                leaving.result(EXIT_S)


_starting = threading.Lock()


def _run(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@atexit.register
def _at_exit() -> None:
    for coordinator in list(_open):
        coordinator._leave_at_exit()
