"""The memory of the process: when freed memory is returned, and how the limits follow."""

from __future__ import annotations

import asyncio
import math
import threading

from kohort.server.inflow import Inflow
from kohort.server.memory.process import (
    AIM,
    LEAST,
    LONGEST_S,
    RETURN_AGAIN_S,
    SHORT_S,
    ProcessMemory,
    Queues,
    resident_memory,
    return_freed_memory,
)
from kohort.server.outflow import Outflow

MIB = 1 << 20


class World:
    """A process that aims at 400 MB, of which queues may have 200."""

    def __init__(self) -> None:
        self.now = 0.0
        self.code = 50 * MIB
        self.freed = 0
        self.held = 0
        self.returns = 0
        self.inflow = Inflow(120 * MIB, lambda: self.now, tuple, lambda *told: None)
        self.outflow = Outflow(80 * MIB)
        self.memory = ProcessMemory(
            math.ceil(400 * MIB / AIM),
            Queues(self.inflow, self.outflow, lambda: self.held),
            lambda: self.code + self.freed + self.held,
            self.return_freed,
            lambda: self.now,
        )

    def return_freed(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.returns += 1
        self.freed //= 10

    async def look(self, later_s: float = 0.1) -> int:
        """Returns how often memory has been returned."""
        self.now += later_s
        self.memory.look()
        self.memory.end()
        if self.memory._returning:
            while self.memory._returning:
                await asyncio.sleep(0)
        return self.returns

    @property
    def limits(self) -> tuple[int, int]:
        """Of large requests, and of answers."""
        return self.inflow.room // MIB, self.outflow.limit // MIB


def test_while_all_queues_have_room_to_grow_nothing_is_done() -> None:
    async def run() -> None:
        world = World()
        for world.held in (0, 100 * MIB, 200 * MIB):
            assert await world.look() == 0
        assert world.limits == (90, 80)

    asyncio.run(run())


def test_freed_memory_is_returned_before_limits_are_lowered() -> None:
    async def run() -> None:
        world = World()
        world.freed = 300 * MIB
        assert await world.look() == 1
        assert world.limits == (90, 80)
        world.freed = 300 * MIB
        assert await world.look() == 1, "not twice in a second"
        assert await world.look(RETURN_AGAIN_S) == 2

    asyncio.run(run())


def test_limits_are_lowered_if_other_things_take_the_memory() -> None:
    async def run() -> None:
        world = World()
        world.code = 300 * MIB
        world.held = 90 * MIB
        await world.look()
        assert world.limits == (30, 40)
        world.code = 400 * MIB
        await world.look(RETURN_AGAIN_S)
        assert world.limits == (LEAST * 120 - 30, LEAST * 80), "some work goes on"
        world.code = 100 * MIB
        await world.look()
        assert world.limits == (90, 80)

    asyncio.run(run())


def test_a_process_beyond_its_limit_gets_less_at_once() -> None:
    """Memory has just been returned and is not returned again for a while."""

    async def run() -> None:
        world = World()
        world.code = 300 * MIB
        await world.look(LONGEST_S)
        assert world.limits == (30, 40)
        world.freed, world.held = 10 * MIB, 100 * MIB
        assert await world.look() == 1
        assert world.limits == (24, 36)
        world.held = 0
        assert await world.look(RETURN_AGAIN_S) == 2
        assert world.limits == (29, 39)

    asyncio.run(run())


def test_a_process_beyond_its_limit_returns_memory_more_often_if_that_helps() -> None:
    async def run() -> None:
        world = World()
        for returns in range(1, 4):
            world.freed = 500 * MIB
            assert await world.look(SHORT_S) == returns

    asyncio.run(run())


def test_memory_is_returned_less_often_when_there_is_little_to_return() -> None:
    async def run() -> None:
        world = World()
        world.code = 300 * MIB
        for _ in range(600):
            await world.look()
        assert world.returns < 60 / LONGEST_S + 6
        before = world.returns
        world.code += 20 * MIB
        assert await world.look(RETURN_AGAIN_S) == before + 1, "unless it has grown"

    asyncio.run(run())


def test_the_resident_memory_of_this_process_is_told() -> None:
    """On Linux."""
    tell = resident_memory()
    if tell is None:
        return
    before = tell()
    taken = b"x" * (64 * MIB)
    grown = tell() - before
    del taken
    return_freed_memory()
    assert grown > 60 * MIB
