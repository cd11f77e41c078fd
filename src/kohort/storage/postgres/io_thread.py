"""The event loop of the engine's connections, in a thread of its own.

The engine's calls come from other threads: a step's reads of what is in memory, commits from the writer thread, reads
from the reader's. They wait for a coroutine on this loop. So a node that is busy with a long step still renews its
lease, and the answer of a commit needs no turn of the server's loop to be read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from kohort.storage.protocol import StorageError

T = TypeVar("T")


class IoThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the loop. Call it from another thread."""
        if not self._thread.is_alive():
            work.close()
            raise StorageError("the connections to the database are closed")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except CancelledError:
            raise StorageError("the connections to the database are closed") from None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends, or the thread is stopped."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, what: Callable[[], object]) -> None:
        """Call something in the loop, soon."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what)

    def stop(self) -> None:
        """Cancels what still runs. Idempotent."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join()

    async def _end(self) -> None:
        """A task that is cancelled in a query starts another one, which ends the query."""
        this = asyncio.current_task()
        while tasks := asyncio.all_tasks() - {this}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self._loop.stop()
