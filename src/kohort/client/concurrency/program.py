"""Runs a whole asyncio program that ends on SIGTERM as on Ctrl-C: cleanly, so groups are left.

By default, SIGTERM ends a Python process at once. The other members of its groups then wait for its session to end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kohort.client.errors import Misuse

T = TypeVar("T")


def run_program(main: Coroutine[Any, Any, T]) -> T | None:
    """As `asyncio.run(main)`, for a program that has its process to itself: SIGTERM cancels `main`, and then this
    returns None. Call it in the main thread, the only one that gets signals (Misuse)."""
    if threading.current_thread() is not threading.main_thread():
        main.close()
        raise Misuse("run_program is called in the main thread; in other threads there is asyncio.run")

    async def program() -> T | None:
        running = asyncio.create_task(main)
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            running.cancel()

        if sys.platform != "win32":  # its event loops have no signal handlers
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await running
        except asyncio.CancelledError:
            if terminated:
                return None
            raise

    former = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(program())
    finally:
        if former is not None:  # a handler that C code has installed cannot be restored
            signal.signal(signal.SIGTERM, former)
