"""Tasks that live as long as a part of a test, and waiting for a condition."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """A task for each coroutine; the tasks are cancelled and awaited at the end."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        await cancel(*tasks)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Any, what: str = "", seconds: float = 60) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never true: {what or condition}") from None


def wait_until(condition: Any, what: str = "") -> None:
    """`until`, in a thread without an event loop."""
    asyncio.run(until(condition, what))
