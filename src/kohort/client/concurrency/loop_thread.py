"""An event loop in a daemon thread of its own, for an object that other threads call.

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

from kohort.client.errors import Closed

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


@atexit.register
def _leave_all() -> None:
    for thread in list(_running):
        thread.leave_at_exit()
