"""Files and directories wherever Spark can reach: a local path, `hdfs:`, `s3a:`, … through Hadoop's file systems.

A handful of calls on the driver's JVM. What each promises is what all of these file systems give: a rename moves a file
whole and never puts it over another, and `write_text` leaves the whole text or nothing. (On an object store a rename is
a copy and a deletion: a file may be at both names, but at each of them it is whole.)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class PlaceError(RuntimeError):
    """A file system refused; the message names the file and says what it said."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file: its path below the place that was asked, its length in bytes, its age as milliseconds since 1970."""

    path: str
    size: int
    modified_ms: int


class Place:
    """A file or directory. Cheap to make: nothing is asked before a method is called."""

    def __init__(self, spark: Any, address: str | Path) -> None:
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise PlaceError(
                "a session of Spark Connect has no file systems on this side; run it on the cluster, by spark-submit"
            )
        if isinstance(address, Path):
            address = str(address.absolute())
        try:
            path = jvm.org.apache.hadoop.fs.Path(address)
            self._fs = path.getFileSystem(spark._jsc.hadoopConfiguration())
        except Exception as error:
            raise PlaceError(f"{address}: {_said(error)}") from error
        self._spark = spark
        self._path = self._fs.makeQualified(path)

    def __str__(self) -> str:
        """The address, in full."""
        return str(self._path.toString())

    def __truediv__(self, name: str) -> Place:
        below = object.__new__(Place)
        below._spark, below._fs = self._spark, self._fs
        below._path = self._spark._jvm.org.apache.hadoop.fs.Path(self._path, name)
        return below

    @property
    def path(self) -> str:
        """The path in its file system, without scheme and host."""
        return str(self._path.toUri().getPath())

    @property
    def scheme(self) -> str:
        return str(self._path.toUri().getScheme())

    @property
    def parent(self) -> Place:
        above = object.__new__(Place)
        above._spark, above._fs, above._path = self._spark, self._fs, self._path.getParent()
        return above

    def exists(self) -> bool:
        return bool(self._fs.exists(self._path))

    def names(self) -> list[str]:
        """What is directly in this directory, sorted; nothing where there is none."""
        try:
            return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._path))
        except Exception as error:
            if not self.exists():
                return []
            raise PlaceError(f"{self}: {_said(error)}") from error

    def files(self) -> Iterator[Found]:
        """All files below, at any depth, in no order."""
        if not self.exists():
            return
        above = len(self.path.rstrip("/")) + 1
        listing = self._fs.listFiles(self._path, True)
        while listing.hasNext():
            status = listing.next()
            yield Found(
                str(status.getPath().toUri().getPath())[above:],
                int(status.getLen()),
                int(status.getModificationTime()),
            )

    def read_text(self) -> str:
        """A file of UTF-8. Raises PlaceError."""
        try:
            stream = self._fs.open(self._path)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def write_text(self, text: str) -> None:
        """Write a file, whole or not at all. One that is there stays until the new one is whole. Raises PlaceError."""
        draft = self.parent / f".{self._path.getName()}.{uuid.uuid4().hex}"
        try:
            stream = self._fs.create(draft._path, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
            if not self._fs.rename(draft._path, self._path):
                self._fs.delete(self._path, False)
                if not self._fs.rename(draft._path, self._path):
                    raise PlaceError(f"{self}: cannot be written")
        except PlaceError:
            raise
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def make_new(self) -> bool:
        """Make an empty file; False if there is one already."""
        self._fs.mkdirs(self._path.getParent())
        return bool(self._fs.createNewFile(self._path))

    def move(self, target: Place) -> None:
        """Rename a file or directory; the target's directory is made. Raises PlaceError, also where there is one."""
        try:
            self._fs.mkdirs(target._path.getParent())
            if target.exists() or not self._fs.rename(self._path, target._path):
                raise PlaceError(f"{self} cannot be renamed to {target}")
        except PlaceError:
            raise
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def remove(self) -> None:
        """Delete a file, or a directory with all that is in it; nothing where there is nothing."""
        try:
            self._fs.delete(self._path, True)
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """The first line of what Java said, without its class's package."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    return f"{java.getClass().getSimpleName()}: {java.getMessage()}".splitlines()[0]
