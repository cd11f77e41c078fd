"""Reads the checkpoint of a streaming query.

A checkpoint directory holds `offsets/N` for every planned batch (a version line, a line of metadata, then a line of
JSON for each source), `commits/N` for every finished batch, and `metadata` with the query's id. Source: Spark's
OffsetSeqLog, CommitLog and StreamMetadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kohort.spark.files.directory import Directory
from kohort.spark.source.positions import Positions, from_json


def is_checkpoint(directory: Directory) -> bool:
    """True if a query has started with this checkpoint."""
    return (directory / "metadata").exists() or (directory / "offsets").exists()


def query_id(checkpoint: Directory) -> str | None:
    """The query's id, which survives restarts; None before its first start."""
    metadata = checkpoint / "metadata"
    return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else None


def finished(checkpoint: Directory) -> Positions | None:
    """The end of the last finished batch of a query with one source; None if there is none."""
    ends = _finished_ends(checkpoint)
    return from_json(json.loads(ends[0])) if ends else None


def is_finished(checkpoint: Directory, end: Mapping[str, Any]) -> bool:
    """True if the last finished batch ends at `end` for one of the query's sources. Raises OSError, ValueError."""
    return any(line.startswith("{") and json.loads(line) == end for line in _finished_ends(checkpoint))


def _finished_ends(checkpoint: Directory) -> list[str]:
    """The end of the last finished batch, a line of JSON for each source."""
    last = last_finished(checkpoint)
    return [] if last is None else (checkpoint / "offsets" / str(last)).read_text().splitlines()[2:]


def last_finished(checkpoint: Directory) -> int | None:
    """The number of the last finished batch."""
    return _last(checkpoint / "commits")


def last_planned(checkpoint: Directory) -> int | None:
    """The number of the last planned batch: if it is not finished, Spark repeats it with the same offsets."""
    return _last(checkpoint / "offsets")


def _last(directory: Directory) -> int | None:
    return max((int(name) for name in directory.names() if name.isdigit()), default=None)
