"""Ctrl-C during a job on Spark."""

from __future__ import annotations

import signal
from typing import Any


class Interrupt:
    """The first Ctrl-C (or SIGTERM) asks the job to end in good order, the second one ends it at once.

    Made when Spark has started, since Spark puts a handler of its own in place.
    """

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: Any) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def was(self) -> bool:
        return self._asked
