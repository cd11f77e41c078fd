"""Files and directories wherever Spark can reach: a local path, `hdfs:`, `s3a:`, … through Hadoop's file systems.

A handful of calls on the driver's JVM. What each promises is what all of these file systems give: a rename moves a file
whole and never puts it over another, and `write_text` leaves the whole text or nothing. (On an object store a rename is
a copy and a deletion: a file may be at both names, but at each of them it is whole.) `write_new` is what two processes
can compete for: one of them makes the file. Locally it is a hard link, on HDFS and its like a rename, on an object
store an upload on the condition that there is no such file, where the store and Hadoop's client of it have that.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RENAMES_ARE_COPIES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "wasb", "wasbs")
"""Object stores: a file cannot be renamed in a moment, nor a directory changed."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


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
        try:
            draft = self._draft(text)
            if not self._fs.rename(draft._path, self._path):
                self._fs.delete(self._path, False)
                if not self._fs.rename(draft._path, self._path):
                    raise PlaceError(f"{self}: cannot be written")
        except PlaceError:
            raise
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def write_new(self, text: str) -> bool:
        """Write a file, whole, that is not there yet; False where there is one, which stays. Raises PlaceError."""
        try:
            if self.scheme in RENAMES_ARE_COPIES:
                return self._upload_new(text)
            draft = self._draft(text)
            try:
                return self._give_name(draft)
            finally:
                draft.remove()
        except PlaceError:
            raise
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def write_over(self, text: str) -> None:
        """Write a file that nobody needs to find whole: for a moment it may be empty, and never gone."""
        try:
            self._fill(self._fs.create(self._path, True), text)
        except Exception as error:
            raise PlaceError(f"{self}: {_said(error)}") from error

    def modified_ms(self) -> int | None:
        """When the file was written, by the file system's own clock; None where there is none."""
        try:
            return int(self._fs.getFileStatus(self._path).getModificationTime())
        except Exception as error:
            if not self.exists():
                return None
            raise PlaceError(f"{self}: {_said(error)}") from error

    def _draft(self, text: str) -> Place:
        draft = self.parent / f".{self._path.getName()}.{uuid.uuid4().hex}"
        self._fill(self._fs.create(draft._path, True), text)
        return draft

    @staticmethod
    def _fill(stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _give_name(self, draft: Place) -> bool:
        """Give a draft this place's name, unless something has it."""
        if self.scheme == "file":  # whose rename goes over a file that is there
            try:
                os.link(draft.path, self.path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
            else:
                return True
        if self.exists():
            return False
        if self._fs.rename(draft._path, self._path):
            return True
        if self.exists():
            return False
        raise PlaceError(f"{self}: cannot be written")

    def _upload_new(self, text: str) -> bool:
        builder = self._fs.createFile(self._path).overwrite(False).recursive()
        try:
            self._fill(builder.opt("fs.option.create.conditional.overwrite", True).build(), text)
        except Exception:
            if not self.exists():
                raise
            return self.read_text() == text  # the answer to the upload may have been lost
        return True

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
