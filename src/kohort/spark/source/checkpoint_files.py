"""What a streaming query's checkpoint says.

A checkpoint directory holds `offsets/N` for every batch that was planned (a version line, a line of metadata, then a
line of JSON a source), `commits/N` for every batch that was finished, and `metadata` with the query's id. Only a
finished batch may be committed to a group. Source: Spark's OffsetSeqLog, CommitLog and StreamMetadata.

On the driver it is read through Spark's own file systems (`kohort.spark.lake.file_systems.Place` is a Directory), in
the source's planning process without a JVM (`kohort.spark.source.checkpoint`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, Self

from kohort.spark.source.plan import Positions, from_json


class Directory(Protocol):
    """A directory or a file in it."""

    def __truediv__(self, name: str, /) -> Self: ...

    def names(self) -> list[str]:
        """What is directly in it; nothing where there is none."""

    def exists(self) -> bool: ...

    def read_text(self) -> str: ...


def is_checkpoint(directory: Directory) -> bool:
    """Whether a query has begun here."""
    return (directory / "metadata").exists() or (directory / "offsets").exists()


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


def is_finished(checkpoint: Directory, end: Mapping[str, Any]) -> bool:
    """Whether the last finished batch ends here, for one of the query's sources. Raises OSError, ValueError."""
    last = last_finished(checkpoint)
    if last is None:
        return False
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    return any(line.startswith("{") and json.loads(line) == end for line in lines[2:])


def last_finished(checkpoint: Directory) -> int | None:
    """The number of the last finished batch."""
    return _last(checkpoint / "commits")


def last_planned(checkpoint: Directory) -> int | None:
    """The number of the last batch that was planned: if it was not finished, it will be repeated as it was."""
    return _last(checkpoint / "offsets")


def _last(directory: Directory) -> int | None:
    return max((int(name) for name in directory.names() if name.isdigit()), default=None)
