"""Work that reads the broker's state for longer than a turn may take: in pieces, each of them between two turns.

Between turns all that memory shows is durable, and the end of a log is what its readers see. On a busy server a piece
follows each turn; on an idle one a piece follows the other, and the event loop takes what has arrived between them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from kohort.broker.turn import Arrived, Turn

PIECE_S = 0.003
"""A piece ends with the first step after this time."""

Work = Generator[None, None, Any]


class BetweenTurns:
    """An observer of turns (broker/turn_schedule.py)."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.longest_s = 0.0
        """The longest piece so far."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._queue: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        self._under_way = False
        self._planned = False

    def start(self, work: Work) -> asyncio.Future[Any]:
        """Returns what the generator will return. An exception of the work is the future's, and no bug of a turn."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(_retrieved)  # nobody may wait for it any more
        self._queue.append((work, future))
        self._plan()
        return future

    def close(self) -> None:
        for work, future in self._queue:
            work.close()
            future.cancel()
        self._queue.clear()

    def _plan(self) -> None:
        if not self._planned and not self._under_way and self._queue:
            self._planned = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._planned = False
        if not self._under_way and self._queue:
            self._piece()
            self._plan()

    def _piece(self) -> None:
        began = now = self._clock()
        work, future = self._queue[0]
        try:
            while now - began < PIECE_S:
                next(work)
                now = self._clock()
        except StopIteration as end:
            self._queue.popleft()
            if not future.done():
                future.set_result(end.value)
        except Exception as error:
            self._queue.popleft()
            if not future.done():
                future.set_exception(error)
        self.longest_s = max(self.longest_s, self._clock() - began)

    # -- the observer

    def turn_begins(self, arrived: Sequence[Arrived]) -> None:
        self._under_way = True

    def decided(self, turn: Turn) -> None: ...

    def committed(self, turn: Turn) -> None: ...

    def turn_ends(self, turn: Turn) -> None:
        self._under_way = False
        if self._queue:
            self._piece()
            self._plan()


def _retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
