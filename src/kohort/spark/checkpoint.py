"""What a streaming query's checkpoint says it has finished.

A checkpoint directory holds `offsets/N` for every batch that was planned (a version line, a line of metadata, then a
line of JSON a source) and `commits/N` for every batch that was finished. Only a finished batch may be committed to a
group. Source: Spark's OffsetSeqLog and CommitLog.
"""

from __future__ import annotations

import json
from pathlib import Path

from kohort.spark.plan import Positions, from_json


def finished(checkpoint: Path) -> Positions | None:
    """The end of the last finished batch of a query with one source; None if there is none, or nothing to read."""
    last = _last(checkpoint / "commits")
    if last is None:
        return None
    lines = (checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()
    return from_json(json.loads(lines[2]))


def _last(directory: Path) -> int | None:
    if not directory.is_dir():
        return None
    return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=None)
