"""An event loop in a daemon thread of its own, for an object that other threads call.

`LateLoopThread` starts the thread when the object is used for the first time.
At the interpreter's exit, objects that are still open may leave their groups: each has EXIT_S for it. A child of fork
does not have the thread.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from kohort.client.errors import Closed, Misuse

EXIT_S = 2.0

T = TypeVar("T")

_running: weakref.WeakSet[LoopThread] = weakref.WeakSet()


class LoopThread:
    """The constructor starts the thread. `at_exit` makes the coroutine to run at the interpreter's exit."""

    def __init__(self, name: str, at_exit: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.waiting = 0
        """How many calls of `run` wait now."""
        self._at_exit = at_exit
        self._pid = os.getpid()
        self._gate = threading.RLock()  # a signal handler may run while its thread holds it
        """Held to begin a call of `run`, to count it, and to end."""
        self._ended = False
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=name, daemon=True)
        self._thread.start()
        ready.wait()
        _running.add(self)

    @property
    def is_current(self) -> bool:
        """True in this thread itself."""
        return threading.current_thread() is self._thread

    @property
    def is_forked(self) -> bool:
        """True in a forked child of the process that has the thread."""
        return self._pid != os.getpid()

    def refuse_fork(self, call: str, what: str) -> None:
        """Raises Misuse in a forked child. `what`: the noun for the object that has this thread."""
        if self.is_forked:
            raise Misuse(f"{call}: this {what} belongs to the process that forked this one")

    def run(self, work: Coroutine[Any, Any, T], closed: str) -> T:
        """Run `work` in the thread; return or raise its outcome. Interrupting the wait cancels the work. Raises Closed
        with the text `closed`."""
        with self._gate:
            if self._ended:
                work.close()
                raise Closed(closed)
            self.waiting += 1
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Closed(closed) from None
        finally:
            future.cancel()
            with self._gate:
                self.waiting -= 1

    def end(self) -> None:
        """Cancel what runs, and wait for the end of the thread."""
        _running.discard(self)
        with self._gate:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, ready: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.call_soon(ready.set)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    def leave_at_exit(self) -> None:
        if not self.is_forked:
            leaving = asyncio.run_coroutine_threadsafe(self._at_exit(), self._loop)
            with suppress(Exception):
                leaving.result(EXIT_S)


class LateLoopThread:
    """A LoopThread that the first call of `run` starts. `what` is the noun for its object in messages, and `closed`
    the message of Closed; both follow the name of the call."""

    def __init__(self, name: str, at_exit: Callable[[], Coroutine[Any, Any, None]], what: str, closed: str) -> None:
        self._name = name
        self._at_exit = at_exit
        self._what = what
        self._closed = closed
        self._gate = threading.Lock()
        """Held to start the thread, and to end."""
        self._thread: LoopThread | None = None
        self._ended = False

    @property
    def is_current(self) -> bool:
        """True in the thread itself."""
        return self._thread is not None and self._thread.is_current

    def run(self, call: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the thread. Interrupting the wait cancels the work. Raises Closed, Misuse."""
        closed = f"{call}: {self._closed}"
        if (thread := self._thread) is None:
            with self._gate:
                if self._ended:
                    raise Closed(closed)
                if self._thread is None:
                    self._thread = LoopThread(self._name, self._at_exit)
                thread = self._thread
        thread.refuse_fork(call, self._what)
        return thread.run(work(), closed)

    def end(self, call: str, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last`, then end the thread; neither, if the thread was never started. Ending twice does nothing."""
        if self._thread is not None and not self._ended:
            self._thread.refuse_fork(call, self._what)
        with self._gate:
            if self._ended:
                return
            self._ended = True
            if self._thread is not None:
                try:
                    self._thread.run(last(), f"{call}: {self._closed}")
                finally:
                    self._thread.end()


def entered_loop(call: str, own: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop:
    """The running loop, for an object that belongs to the loop in which it is first used, `own`. Raises Misuse."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise Misuse(f"{call}: no event loop runs in this thread") from None
    if own is not None and loop is not own:
        raise Misuse(f"{call}: this {what} belongs to another event loop, the one in which it was first used")
    return loop


@atexit.register
def _leave_all() -> None:
    for thread in list(_running):
        thread.leave_at_exit()
