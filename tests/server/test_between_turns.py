"""Long work on the broker's state: in pieces, and only between turns."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from kohort.broker.turn import Turn
from kohort.server.http.between_turns import PIECE_S, BetweenTurns

EMPTY = Turn((), ())


class Clock:
    """Shows the time that the work has taken."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pieces_wait_for_the_end_of_a_turn() -> None:
    async def run() -> None:
        clock, did = Clock(), []
        between = BetweenTurns(clock)

        def work() -> Generator[None, None, str]:
            for step in range(4):
                did.append(step)
                clock.now += PIECE_S
                yield
            return "done"

        between.turn_begins(())
        future = between.start(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert did == []
        between.turn_ends(EMPTY)
        assert did == [0], "one piece after a turn"
        between.turn_begins(())
        await asyncio.sleep(0)
        assert did == [0]
        between.turn_ends(EMPTY)
        assert did == [0, 1]
        assert await future == "done", "without turns, the event loop takes the pieces"
        assert did == [0, 1, 2, 3]
        assert between.longest_s == pytest.approx(PIECE_S)

    asyncio.run(run())


def test_others_run_between_the_pieces() -> None:
    async def run() -> None:
        clock, order = Clock(), []
        between = BetweenTurns(clock)

        def work() -> Generator[None, None, None]:
            for step in range(3):
                order.append(step)
                clock.now += PIECE_S
                yield

        future = between.start(work())
        while not future.done():
            await asyncio.sleep(0)
            order.append(-1)
        assert order.count(-1) >= 3
        assert order.index(-1) < order.index(2)

    asyncio.run(run())


def test_work_that_fails_is_its_callers_matter() -> None:
    async def run() -> None:
        between = BetweenTurns()

        def work() -> Generator[None, None, None]:
            yield
            raise KeyError("a bug")

        with pytest.raises(KeyError):
            await between.start(work())
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda *told: complaints.append(told))
        future = between.start(work())  # and nobody waits for it
        while not future.done():
            await asyncio.sleep(0)
        del future
        await asyncio.sleep(0)
        assert complaints == []
        waiting = between.start(work())
        between.close()
        assert waiting.cancelled()

    asyncio.run(run())
