"""Calls an application's callback, plain or a coroutine function, from an event loop, with limits.

A callback that awaits for too long is cancelled and raises TimedOut. A callback that blocks the loop cannot be stopped.
So each stretch between two awaits is measured, and a callback that blocked the loop for longer than the session raises
Misuse afterwards: the member may have been removed meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import types
from collections.abc import Callable, Generator
from typing import Any

from kohort.client.errors import Misuse, TimedOut

log = logging.getLogger("kohort.client")


async def limited(
    callback: Callable[..., Any], args: tuple[Any, ...], *, timeout_ms: int | None, session_ms: int, heartbeat_ms: int
) -> Any:
    """The result of the callback, awaited if it is awaitable. Raises the callback's exception; TimedOut; Misuse."""
    name = callback.__name__
    watch = _Watch()
    with watch:
        result = callback(*args)
    if inspect.isawaitable(result):
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000) as limit:
                result = await _watched(result, watch)
        except TimeoutError:
            if limit.expired():
                raise TimedOut(f"{name} took longer than the rebalance timeout of {timeout_ms} ms") from None
            raise
    if watch.longest_ms > session_ms:
        raise Misuse(
            f"{name} blocked the event loop for {watch.longest_ms:.0f} ms, longer than the session of {session_ms} ms: "
            "no heartbeat could be sent; run blocking code in a thread (asyncio.to_thread)"
        )
    if watch.longest_ms > heartbeat_ms:
        log.warning(
            "%s blocked the event loop for %.0f ms; no heartbeat was sent meanwhile: run blocking code in a thread "
            "(asyncio.to_thread)",
            name,
            watch.longest_ms,
        )
    return result


class _Watch:
    """Measures the longest stretch that ran inside it."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.longest_ms = max(self.longest_ms, (time.monotonic() - self._began) * 1000)


@types.coroutine
def _watched(awaitable: Any, watch: _Watch) -> Generator[Any, Any, Any]:
    """Await it, and measure each stretch between two awaits."""
    inner = awaitable.__await__()
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            with watch:
                awaited = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as done:
            return done.value
        value, error = None, None
        try:
            value = yield awaited
        except BaseException as thrown:
            error = thrown
