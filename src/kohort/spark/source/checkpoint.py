"""A streaming query's checkpoint without a JVM, as the source's planning process has to read it.

The place is a path or an address; addresses other than `file:` are read through Arrow's file systems (s3, gs, abfs,
hdfs), where Arrow knows them. `kohort.spark.source.checkpoint_files` says what the files mean.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kohort.spark.source.checkpoint_files import Directory


def open_checkpoint(address: str | Path) -> Directory:
    """The directory at an address. Raises OSError, ValueError where Arrow has no such file system."""
    local = _local(address)
    if local is not None:
        return LocalDirectory(local)
    from pyarrow.fs import FileSystem

    return ArrowDirectory(*FileSystem.from_uri(arrow_address(str(address))))


def arrow_address(address: str) -> str:
    """As Arrow writes it: `s3a:` and `s3n:` are names that only Hadoop has."""
    return re.sub(r"\As3[an]:", "s3:", address)


class LocalDirectory:
    """On a file system of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __truediv__(self, name: str) -> LocalDirectory:
        return LocalDirectory(self._path / name)

    def names(self) -> list[str]:
        return [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []

    def exists(self) -> bool:
        return self._path.exists()

    def read_text(self) -> str:
        return self._path.read_text(encoding="utf-8")


class ArrowDirectory:
    """On a file system of Arrow's."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path

    def __truediv__(self, name: str) -> ArrowDirectory:
        return ArrowDirectory(self._files, f"{self._path.rstrip('/')}/{name}")

    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector

        return [found.base_name for found in self._files.get_file_info(FileSelector(self._path, allow_not_found=True))]

    def exists(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self._files.get_file_info(self._path).type != FileType.NotFound)

    def read_text(self) -> str:
        with self._files.open_input_stream(self._path) as stream:
            return str(stream.readall(), "utf-8")


def _local(place: str | Path) -> Path | None:
    """A path, from one or from a `file:` address."""
    if isinstance(place, Path):
        return place
    scheme, colon, rest = place.partition(":")
    if not colon or "/" in scheme:
        return Path(place)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None
