"""The end of a planning process: Spark sends SIGTERM and calls no method of the source."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

PLANNING_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"


def call_at_sigterm(finish: Callable[[], None], limit_s: float) -> None:
    """At SIGTERM, call `finish` and then end the process, after `limit_s` at the latest.

    Does nothing outside of the main thread of a planning process. `finish` runs in a thread of its own: the main thread
    may have been interrupted while it held a lock or waited for another thread.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or spec.name != PLANNING_PROCESS or threading.current_thread() is not threading.main_thread():
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
        finishing = threading.Thread(target=finish, name="kohort-end", daemon=True)
        finishing.start()
        finishing.join(limit_s)
        os._exit(0)

    signal.signal(signal.SIGTERM, terminated)
