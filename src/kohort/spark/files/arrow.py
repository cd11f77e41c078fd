"""Files without a JVM, through Arrow's file systems: local paths, `file:`, `s3:`, `gs:`, `abfs:`, `hdfs:`.

The planning process of a streaming query reads the query's checkpoint this way, and Python workers read and write
tables. `file_system` serves pyarrow's own readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.spark.files.directory import FileInfo

if TYPE_CHECKING:
    from pyarrow import fs


def file_system(address: str | Path) -> tuple[fs.FileSystem, str]:
    """The file system of a path or an address, and the path in it. Raises ValueError if Arrow does not know it.

    As in Hadoop's addresses, what follows `file:` is a path without percent-encoding.
    """
    from pyarrow import fs  # most Python workers do not need it

    scheme, colon, rest = str(address).partition(":")
    if not colon or "/" in scheme or len(scheme) == 1 or isinstance(address, Path):  # one letter: a drive
        return fs.LocalFileSystem(), str(address)
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    system, path = fs.FileSystem.from_uri(arrow_address(str(address)))
    return system, path


def arrow_address(address: str) -> str:
    """An address as Arrow writes it: only Hadoop has the schemes `s3a:` and `s3n:`."""
    return re.sub(r"\As3[an]:", "s3:", address)


class ArrowDirectory:
    """A `kohort.spark.files.directory.Directory`."""

    def __init__(self, address: str | Path) -> None:
        self.system, self.path = file_system(address)

    def __truediv__(self, name: str) -> ArrowDirectory:
        below = object.__new__(ArrowDirectory)
        below.system, below.path = self.system, f"{self.path.rstrip('/')}/{name}"
        return below

    def exists(self) -> bool:
        return bool(self.system.get_file_info(self.path).type.name != "NotFound")

    def names(self) -> list[str]:
        return sorted(found.base_name for found in self._list(recursive=False))

    def files(self) -> Iterator[FileInfo]:
        for found in self._list(recursive=True):
            if found.is_file:
                yield FileInfo(found.path[len(self.path) :].lstrip("/"), found.size, (found.mtime_ns or 0) // 1_000_000)

    def _list(self, *, recursive: bool) -> list[fs.FileInfo]:
        from pyarrow import fs

        return list(self.system.get_file_info(fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)))

    def read_text(self) -> str:
        with self.system.open_input_stream(self.path) as stream:
            return str(stream.readall(), "utf-8")

    def write_text(self, text: str) -> None:
        with self.new_file() as stream:
            stream.write(text.encode())

    @contextmanager
    def new_file(self) -> Iterator[Any]:
        """A stream for a file that gets its name when the block ends; it is deleted if the block raises."""
        self.system.create_dir(self.path.rpartition("/")[0], recursive=True)
        try:
            with self.system.open_output_stream(f"{self.path}.partial") as stream:
                yield stream
        except BaseException:
            with suppress(OSError):  # if it was not opened
                self.system.delete_file(f"{self.path}.partial")
            raise
        self.system.move(f"{self.path}.partial", self.path)

    def remove(self) -> None:
        match self.system.get_file_info(self.path).type.name:
            case "File":
                self.system.delete_file(self.path)
            case "Directory":
                self.system.delete_dir(self.path)
