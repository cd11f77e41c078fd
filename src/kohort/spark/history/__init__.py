"""The history of consumer groups; `history` makes it."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Spark's workers import this package for its decoder alone.
    if name == "history":
        from kohort.spark.history.run import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
