"""A thread that runs blocking calls for an event loop, one after the other.

The thread is a daemon and starts with the first job. A job that is cancelled still runs; its result is dropped.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from kohort.client.errors import Closed

T = TypeVar("T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class WorkerThread:
    """`run` belongs to one event loop. `close` may be called twice and does not wait. The thread finishes its queued
    jobs and calls `at_end`."""

    def __init__(self, name: str, at_end: Callable[[], None] | None = None) -> None:
        self._name = name
        self._at_end = at_end
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def is_current(self) -> bool:
        """True in this thread itself. Compares objects, because thread ids are used again."""
        return threading.current_thread() is self._thread

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work(*args)` in the thread; return or raise its outcome. Raises Closed."""
        if self._closed:
            raise Closed(f"{self._name} is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, answer, work, args))
        return await answer

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, answer, work, args = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = tamely(work, *args)
            except Exception as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_deliver, answer, result, error)
            except RuntimeError:
                break  # the loop is closed
        if self._at_end is not None:
            self._at_end()


def tamely(work: Callable[..., T], *args: Any) -> T:
    """As `work(*args)`. An exception that would end a thread or an event loop (`sys.exit()`) becomes a RuntimeError."""
    try:
        return work(*args)
    except Exception:
        raise
    except BaseException as raised:
        raise RuntimeError(f"{work.__name__} raised {type(raised).__name__}: {raised}") from raised


def _deliver(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
