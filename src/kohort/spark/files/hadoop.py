"""Files through Hadoop's file systems in the driver's JVM: a local path, `hdfs:`, `s3a:`, …

A rename moves a whole file and never replaces one; `write_text` leaves the whole text or nothing. On an object store a
rename is a copy and a deletion: a file may have both names for a moment, and is whole under each.

`write_new` lets processes compete: exactly one of them creates the file. Locally it makes a hard link, on HDFS and file
systems like it a rename, on an object store an upload under the condition that the file does not exist, if the store
and Hadoop's client for it support that.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kohort.spark.files.directory import FileInfo, FileSystemError

RENAMES_ARE_COPIES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "wasb", "wasbs")
"""Object stores: neither a file nor a directory can be renamed in one step."""
NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


class HadoopDirectory:
    """A `kohort.spark.files.directory.Directory`. The constructor makes no request. Errors are FileSystemErrors."""

    def __init__(self, spark: Any, address: str | Path) -> None:
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise FileSystemError(
                "a session of Spark Connect has no file systems on this side; run it on the cluster, by spark-submit"
            )
        if isinstance(address, Path):
            address = str(address.absolute())
        try:
            path = jvm.org.apache.hadoop.fs.Path(address)
            self._fs = path.getFileSystem(spark._jsc.hadoopConfiguration())
        except Exception as error:
            raise FileSystemError(f"{address}: {_reason(error)}") from error
        self._spark = spark
        self._path = self._fs.makeQualified(path)

    def _at(self, path: Any) -> HadoopDirectory:
        """Another path of the same file system."""
        other = object.__new__(HadoopDirectory)
        other._spark, other._fs, other._path = self._spark, self._fs, path
        return other

    def __str__(self) -> str:
        """The full address."""
        return str(self._path.toString())

    def __truediv__(self, name: str) -> HadoopDirectory:
        return self._at(self._spark._jvm.org.apache.hadoop.fs.Path(self._path, name))

    @property
    def parent(self) -> HadoopDirectory:
        return self._at(self._path.getParent())

    @property
    def path(self) -> str:
        """The path in its file system, without scheme and host."""
        return str(self._path.toUri().getPath())

    @property
    def scheme(self) -> str:
        return str(self._path.toUri().getScheme())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn Java's exceptions into FileSystemErrors."""
        try:
            yield
        except FileSystemError:
            raise
        except Exception as error:
            raise FileSystemError(f"{self}: {_reason(error)}") from error

    def exists(self) -> bool:
        with self._errors():
            return bool(self._fs.exists(self._path))

    def names(self) -> list[str]:
        with self._errors():
            try:
                return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(self._path))
            except Exception:
                if self.exists():
                    raise
                return []

    def files(self) -> Iterator[FileInfo]:
        if not self.exists():
            return
        above = len(self.path.rstrip("/")) + 1
        listing = self._fs.listFiles(self._path, True)
        while listing.hasNext():
            status = listing.next()
            path = str(status.getPath().toUri().getPath())[above:]
            yield FileInfo(path, int(status.getLen()), int(status.getModificationTime()))

    def modified_ms(self) -> int | None:
        """When the file was written, by the file system's own clock; None if it does not exist."""
        with self._errors():
            try:
                return int(self._fs.getFileStatus(self._path).getModificationTime())
            except Exception:
                if self.exists():
                    raise
                return None

    def read_text(self) -> str:
        with self._errors():
            stream = self._fs.open(self._path)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def write_text(self, text: str) -> None:
        with self._errors():
            draft = self._draft(text)
            if not self._fs.rename(draft._path, self._path):
                self._fs.delete(self._path, False)
                if not self._fs.rename(draft._path, self._path):
                    raise FileSystemError(f"{self}: cannot be written")

    def write_new(self, text: str) -> bool:
        """Create a file as a whole. False if it exists already; it is then left alone."""
        with self._errors():
            if self.scheme in RENAMES_ARE_COPIES:
                return self._upload_new(text)
            draft = self._draft(text)
            try:
                return self._rename_new(draft)
            finally:
                draft.remove()

    def write_over(self, text: str) -> None:
        """Write a file in place: readers may see it empty for a moment, and never find it missing."""
        with self._errors():
            self._fill(self._fs.create(self._path, True), text)

    def _draft(self, text: str) -> HadoopDirectory:
        draft = self.parent / f".{self._path.getName()}.{uuid.uuid4().hex}"
        self._fill(self._fs.create(draft._path, True), text)
        return draft

    @staticmethod
    def _fill(stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _rename_new(self, draft: HadoopDirectory) -> bool:
        """Give the draft this file's name, unless the name is taken."""
        if self.scheme == "file":  # Hadoop's local rename would replace an existing file
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
        raise FileSystemError(f"{self}: cannot be written")

    def _upload_new(self, text: str) -> bool:
        builder = self._fs.createFile(self._path).overwrite(False).recursive()
        try:
            self._fill(builder.opt("fs.option.create.conditional.overwrite", True).build(), text)
        except Exception:
            if not self.exists():
                raise
            return self.read_text() == text  # the response to the upload may have been lost
        return True

    def move(self, target: HadoopDirectory) -> None:
        """Rename a file or directory; creates the target's parent. Raises FileSystemError also if the target exists."""
        with self._errors():
            self._fs.mkdirs(target._path.getParent())
            if target.exists() or not self._fs.rename(self._path, target._path):
                raise FileSystemError(f"{self} cannot be renamed to {target}")

    def remove(self) -> None:
        with self._errors():
            self._fs.delete(self._path, True)


def _reason(error: Exception) -> str:
    """The first line of Java's message, with the exception's class but not its package."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    return f"{java.getClass().getSimpleName()}: {java.getMessage()}".splitlines()[0]
