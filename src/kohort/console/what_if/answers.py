"""Plays a group's changes in a process of its own, so pages never wait for it, and keeps what was found.

The process has PROCESSOR_S seconds of processor time, and LIMIT_S seconds on a busy machine; ways that are not played
by then are left out. One process runs at a time. An answer belongs to a state of the journal, so it stays true until
there is a newer rebalance.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from kohort.console.what_if.history import History, Protocol

PROCESSOR_S = 2
LIMIT_S = 10.0
AGAIN_S = 30.0
MOST_ANSWERS = 200
PROTOCOLS: tuple[Protocol, ...] = ("consumer", "cooperative", "eager")
PROGRAM = (sys.executable, "-m", "kohort.console.what_if.child")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the group, and what the changes cost it. Pauses are those of the partitions that are played."""

    protocol: Protocol
    is_static: bool
    rebalances: int = 0
    paused_ms: int = 0
    """The sum over all partitions."""
    longest_ms: int = 0
    moves: int = 0
    settled: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The present way is the first one. `complete`: all ways were played in time."""

    ways: tuple[Way, ...]
    complete: bool
    problem: str = ""
    at_s: float = 0.0


class WhatIfs:
    """For the event loop of the pages."""

    def __init__(
        self,
        *,
        limit_s: float = LIMIT_S,
        processor_s: int = PROCESSOR_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._processor_s = processor_s
        self._clock = clock
        self._known: dict[Hashable, tuple[History, asyncio.Task[Answer]]] = {}
        self._free: asyncio.Semaphore | None = None

    def history(self, key: Hashable) -> History | None:
        """What was asked with this key."""
        known = self._known.get(key)
        return known[0] if known else None

    def ask(self, key: Hashable, history: History) -> asyncio.Task[Answer]:
        """Begins to play, unless it was played before with this key."""
        known = self._known.get(key)
        if known is None or self._is_poor(known[1]):
            known = self._known[key] = (history, asyncio.ensure_future(self._play(history)))
            while len(self._known) > MOST_ANSWERS:
                self._known.pop(next(iter(self._known)))
        return known[1]

    def _is_poor(self, task: asyncio.Task[Answer]) -> bool:
        """Whether it is worth to try again: the machine was so busy that there is nothing to compare, a while ago."""
        if not task.done() or task.cancelled() or task.exception() is not None:
            return task.done()
        answer = task.result()
        return len(answer.ways) < 2 and self._clock() - answer.at_s > AGAIN_S

    async def close(self) -> None:
        """End what is played."""
        running = [task for _, task in self._known.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _play(self, history: History) -> Answer:
        if self._free is None:
            self._free = asyncio.Semaphore(1)
        async with self._free:
            ways: list[Way] = []
            try:
                task = task_of(history, self._processor_s)
                problem = await _run(task, self._limit_s, lambda line: ways.append(Way(**json.loads(line))))
            except OSError as error:
                problem = f"the simulator could not be started: {error.strerror}"
            return Answer(tuple(ways), len(ways) == len(ways_of(history)), problem, self._clock())


async def _run(task: bytes, limit_s: float, take: Callable[[bytes], None]) -> str:
    """Returns why the process failed, or ""."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(limit_s):
            process.stdin.write(task)
            process.stdin.close()
            async for line in process.stdout:
                take(line)
            errors = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return errors[-1] if errors else ""


def ways_of(history: History) -> list[tuple[Protocol, bool]]:
    """The present way first, then those that change one thing."""
    present = (history.protocol, history.is_static)
    others = [(protocol, is_static) for is_static in (False, True) for protocol in PROTOCOLS]
    others.sort(key=lambda way: (way[0] != present[0]) + (way[1] != present[1]))
    return [present, *(way for way in others if way != present)]


def task_of(history: History, processor_s: int) -> bytes:
    changes = zip(history.gaps_ms, history.changes, strict=True)
    return json.dumps(
        {
            "ways": ways_of(history),
            "members": history.members,
            "partitions": history.partitions,
            "session_ms": history.session_ms,
            "changes": [(gap_ms, change.what, change.member) for gap_ms, change in changes],
            "slow_ms": history.slow_ms,
            "processor_s": processor_s,
        }
    ).encode()
