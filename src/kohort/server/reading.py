"""Reads of records that are not in memory: a thread does them beside the turn loop (broker/waits/reads.py).

The thread has a reader of its own (`Storage.reader`), so a read waits for no commit and no commit for a read. Reads are
done one after the other; each has an outcome, which arrives as an event. Damage of the whole file stops the server, as
it does in the turn loop. The first read starts the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from kohort.broker.turn import Arrived, ReadAsked
from kohort.broker.waits.outcomes import outcome
from kohort.server.off_loop import TaskThread
from kohort.storage.protocol import LogReader, Storage

RESTS = 1
"""After long reads, and after many short ones, the thread rests for as long as they took, because the event loop needs
the interpreter's lock."""


class Reading:
    def __init__(
        self, storage: Storage, arrive: Callable[[Arrived], None], failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is called in the thread with an error that stops the server."""
        self._loop = asyncio.get_running_loop()
        self._storage = storage
        self._arrive = arrive
        self._reader: LogReader | None = None
        self._thread = TaskThread("kohort-reader", self._read, failed, RESTS)

    def start(self, asked: Sequence[ReadAsked]) -> None:
        for read in asked:
            self._thread.put(0, read)

    def stop(self) -> None:
        """Waits for the read under way. Reads that wait are dropped."""
        self._thread.stop()
        self._thread.join()
        if self._reader is not None:
            self._reader.close()

    def _read(self, _: int, asked: ReadAsked) -> None:
        if self._reader is None:
            self._reader = self._storage.reader()
        done = outcome(self._reader, asked)
        with suppress(RuntimeError):  # the loop is closed: the server has stopped
            self._loop.call_soon_threadsafe(self._arrive, done)
