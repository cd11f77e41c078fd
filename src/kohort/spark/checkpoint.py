"""What a streaming query's checkpoint says it has finished.

A checkpoint directory holds `offsets/N` for every batch that was planned (a version line, a line of metadata, then a
line of JSON a source), `commits/N` for every batch that was finished, and `metadata` with the query's id. Only a
finished batch may be committed to a group. Source: Spark's OffsetSeqLog, CommitLog and StreamMetadata.

The place is a path or an address; addresses other than `file:` are read through Arrow's file systems (s3, gs, abfs,
hdfs), where Arrow knows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kohort.spark.plan import Positions, from_json


def finished(checkpoint: str | Path) -> Positions | None:
    """The end of the last finished batch of a query with one source.

    None if there is none, or if the checkpoint is not in a local file system.
    """
    if _local(checkpoint) is None:
        return None
    directory = _Directory(checkpoint)
    last = directory.last("commits")
    lines = directory.lines(f"offsets/{last}") if last is not None else None
    return from_json(json.loads(lines[2])) if lines is not None else None


def is_finished(checkpoint: str | Path, end: Mapping[str, Any]) -> bool:
    """Whether the last finished batch ends here, for one of the query's sources. Raises OSError, ValueError."""
    directory = _Directory(checkpoint)
    last = directory.last("commits")
    lines = directory.lines(f"offsets/{last}") if last is not None else None
    return any(line.startswith("{") and json.loads(line) == end for line in (lines or [])[2:])


def query_and_batch(checkpoint: str | Path) -> tuple[str | None, int | None]:
    """The query's id and its last finished batch, as far as the checkpoint can be read."""
    try:
        directory = _Directory(checkpoint)
        lines = directory.lines("metadata")
        return (json.loads(lines[0])["id"] if lines else None), directory.last("commits")
    except (OSError, ValueError, KeyError):
        return None, None


class _Directory:
    """A directory on a file system that Arrow knows. Raises OSError, ValueError where it knows none."""

    def __init__(self, checkpoint: str | Path) -> None:
        self._path = _local(checkpoint)
        self._files: Any = None
        if self._path is None:
            from pyarrow.fs import FileSystem

            self._files, self._address = FileSystem.from_uri(str(checkpoint))

    def last(self, name: str) -> int | None:
        """The largest number that is a file's name in a directory."""
        if self._path is not None:
            directory = self._path / name
            names = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
        else:
            from pyarrow.fs import FileSelector

            selector = FileSelector(f"{self._address}/{name}", allow_not_found=True)
            names = [entry.base_name for entry in self._files.get_file_info(selector)]
        return max((int(number) for number in names if number.isdigit()), default=None)

    def lines(self, name: str) -> list[str] | None:
        """A file's lines; None where there is none."""
        try:
            if self._path is not None:
                return (self._path / name).read_text(encoding="utf-8").splitlines()
            with self._files.open_input_stream(f"{self._address}/{name}") as stream:
                return str(stream.readall(), "utf-8").splitlines()
        except FileNotFoundError:
            return None


def _local(place: str | Path) -> Path | None:
    """A path, from one or from a `file:` address."""
    if isinstance(place, Path):
        return place
    scheme, colon, rest = place.partition(":")
    if not colon or "/" in scheme:
        return Path(place)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None
