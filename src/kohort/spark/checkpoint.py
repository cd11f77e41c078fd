"""What a streaming query's checkpoint says it has finished.

A checkpoint directory holds `offsets/N` for every batch that was planned (a version line, a line of metadata, then a
line of JSON a source) and `commits/N` for every batch that was finished. Only a finished batch may be committed to a
group. Source: Spark's OffsetSeqLog and CommitLog.
"""

from __future__ import annotations

import json
from pathlib import Path

from kohort.spark.plan import Positions, from_json


def finished(checkpoint: str | Path) -> Positions | None:
    """The end of the last finished batch of a query with one source.

    None if there is none, or if the checkpoint is not in a local file system.
    """
    directory = _local(checkpoint)
    last = _last(directory / "commits") if directory is not None else None
    if directory is None or last is None:
        return None
    lines = (directory / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()
    return from_json(json.loads(lines[2]))


def _local(place: str | Path) -> Path | None:
    """A path, from one or from a `file:` address."""
    if isinstance(place, Path):
        return place
    scheme, colon, rest = place.partition(":")
    if not colon or "/" in scheme:
        return Path(place)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def _last(directory: Path) -> int | None:
    if not directory.is_dir():
        return None
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=None)
