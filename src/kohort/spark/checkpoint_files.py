"""What a checkpoint says, read on the driver through Spark's own file systems.

The files are those of `kohort.spark.checkpoint`, which the source's planning process reads without a JVM. Here the
directory may be in any file system that Spark reaches: `kohort.spark.places.Place` is a Directory.
"""

from __future__ import annotations

import json
from typing import Protocol, Self

from kohort.spark.plan import Positions, from_json


class Directory(Protocol):
    """A directory or a file in it."""

    def __truediv__(self, name: str, /) -> Self: ...

    def names(self) -> list[str]:
        """What is directly in it; nothing where there is none."""

    def exists(self) -> bool: ...

    def read_text(self) -> str: ...


def query_id(checkpoint: Directory) -> str | None:
    """The query's id, which it keeps over restarts; None before its first start."""
    metadata = checkpoint / "metadata"
    return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else None


def finished(checkpoint: Directory) -> Positions | None:
    """The end of the last finished batch of a query with one source; None if there is none."""
    last = last_finished(checkpoint)
    if last is None:
        return None
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    return from_json(json.loads(lines[2]))


def last_finished(checkpoint: Directory) -> int | None:
    """The number of the last finished batch."""
    return _last(checkpoint / "commits")


def last_planned(checkpoint: Directory) -> int | None:
    """The number of the last batch that was planned: if it was not finished, it will be repeated as it was."""
    return _last(checkpoint / "offsets")


def _last(directory: Directory) -> int | None:
    return max((int(name) for name in directory.names() if name.isdigit()), default=None)
