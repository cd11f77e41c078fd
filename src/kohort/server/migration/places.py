"""Where data is migrated from and to: a data directory, or a PostgreSQL database.

A source is not served while it is open, and not after it was marked. A target is not served before it is finished; what
an interrupted migration has left says so, and is removed by the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kohort.storage.directory import (
    LOCK_NAME,
    MIGRATING,
    SharedLock,
    check_files,
    mark_migrated,
    migrated_to,
    os_errors,
)
from kohort.storage.protocol import Storage, StorageError
from kohort.storage.restored_directory import RestoredDirectory, check_empty
from kohort.storage.slots import Numbers
from kohort.storage.sqlite import SqliteStorage
from kohort.storage.stored_file import StoredFile, database_in

SCHEMES = ("postgresql://", "postgres://")
FILLING_NODE = 0
"""The id of the process that fills a database, among its nodes. Nothing of it is left afterwards."""


class Source(Protocol):
    """`close` it. Raises StorageError."""

    shown: str
    """For people: without a password."""
    storage: Storage
    migrated_to: str | None
    """Where the data has gone in an earlier migration."""
    numbers: Numbers | None
    """Of nodes that serve at once; None if the metadata log has them."""

    def mark(self, place: str) -> None:
        """The data has gone: no server starts on it from now on. Raises StorageError."""

    def close(self) -> None: ...


class Target(Protocol):
    """`check` it, `fill` it, `read` it, and `finish` it; or else `discard` or `release` it. Raises StorageError."""

    shown: str
    is_database: bool
    serves_all: bool
    """Its nodes are to serve at once."""

    def check(self, size: int) -> bool:
        """Whether it is the target of an interrupted migration. Changes nothing. Raises StorageError if it has data, or
        no room for so many bytes."""

    def fill(self) -> Storage:
        """The empty storage, to write; close it."""

    def read(self) -> Storage:
        """What was written, read anew; close it."""

    def finish(self, storage: Storage, numbers: Numbers) -> None:
        """Servers may start on it. `storage`: as `read` gave it; it is closed. `numbers` are for nodes that serve at
        once."""

    def discard(self) -> None:
        """Remove what can be removed of an unfinished target."""

    def release(self) -> None:
        """Let go of the target as it is."""


def is_url(place: str) -> bool:
    return place.startswith(SCHEMES)


def source_of(place: str, *, fences: bool) -> Source:
    """`fences`: what was stopped for a while cannot go on with it any more. Raises StorageError."""
    if is_url(place):
        return _DatabaseSource(place, fences=fences)
    return _DirectorySource(Path(place), locks=fences)


def target_of(place: str, *, serves_all: bool) -> Target:
    return _DatabaseTarget(place, serves_all=serves_all) if is_url(place) else _DirectoryTarget(Path(place))


class _DirectorySource:
    numbers: Numbers | None = None

    def __init__(self, directory: Path, *, locks: bool) -> None:
        if directory.is_file():
            raise StorageError(
                f"{directory} is a file: only data directories can be migrated; make one of a backup (kohort restore)"
            )
        check_files(directory)
        database_in(directory)
        self.shown = str(directory.absolute())
        self._directory = directory
        self.migrated_to = migrated_to(directory)
        if locks:
            with os_errors(f"use the data directory {directory}"):
                (directory / LOCK_NAME).touch()  # a copied directory has none
        _check_stopped(directory)
        self.storage: Storage = StoredFile(directory)

    def mark(self, place: str) -> None:
        mark_migrated(self._directory, place)

    def close(self) -> None:
        self.storage.close()


def _check_stopped(directory: Path) -> None:
    lock = SharedLock(directory)
    lock.release()
    if lock.holder is not None:
        raise StorageError(f"the data directory {directory} is in use by {lock.holder}; stop it first")


class _DirectoryTarget:
    is_database = False
    serves_all = False

    def __init__(self, directory: Path) -> None:
        self.shown = str(directory.absolute())
        self._path = directory
        self._directory: RestoredDirectory | None = None

    def check(self, size: int) -> bool:
        check_files(self._path)
        has_remains = check_empty(self._path, MIGRATING)
        existing = next(path for path in (self._path.absolute(), *self._path.absolute().parents) if path.exists())
        with os_errors(f"use the data directory {self._path}"):
            left = shutil.disk_usage(existing).free
        if left < size:
            raise StorageError(
                f"the data has {size:,} bytes, and the disk of {self._path} has {left:,} left; free some space, or "
                "choose another place"
            )
        return has_remains

    def fill(self) -> Storage:
        self._directory = RestoredDirectory(self._path, MIGRATING)
        return SqliteStorage(self._directory.prepared)

    def read(self) -> Storage:
        assert self._directory is not None
        return StoredFile(self._directory.prepared)

    def finish(self, storage: Storage, numbers: Numbers) -> None:
        assert self._directory is not None
        storage.close()
        self._directory.finish()

    def discard(self) -> None:
        if self._directory is not None:
            self._directory.discard()

    def release(self) -> None:
        if self._directory is not None:
            self._directory.release()


@contextmanager
def _with_driver() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise StorageError(f"PostgreSQL needs {error.name}: pip install 'kohort[postgres]'") from None


class _DatabaseSource:
    def __init__(self, url: str, *, fences: bool) -> None:
        with _with_driver():
            from kohort.storage.postgres.unserved import UnservedDatabase
        self._database = UnservedDatabase(url, fences=fences)
        self.storage: Storage = self._database
        self.shown = self._database.shown
        self.migrated_to = self._database.migrated_to
        self.numbers = self._database.numbers

    def mark(self, place: str) -> None:
        self._database.mark_migrated(place)

    def close(self) -> None:
        self.storage.close()


class _DatabaseTarget:
    is_database = True

    def __init__(self, url: str, *, serves_all: bool) -> None:
        with _with_driver():
            from kohort.storage.postgres.connections import shown
            from kohort.storage.postgres.schema import FORMAT_VERSION, SHARED_VERSION
        self.shown = shown(url)
        self.serves_all = serves_all
        self._format = SHARED_VERSION if serves_all else FORMAT_VERSION
        self._url = url
        self._incarnation = 0

    def check(self, size: int) -> bool:
        from kohort.storage.postgres.unserved import check_fillable

        return check_fillable(self._url, self._format)

    def fill(self) -> Storage:
        from kohort.storage.postgres.engine import PostgresStorage
        from kohort.storage.postgres.leases import NodeAddress

        storage = PostgresStorage(self._url, NodeAddress(FILLING_NODE), fills=self._format)
        try:
            storage.open()
        except BaseException:
            storage.close()
            raise
        self._incarnation = storage.incarnation
        return storage

    def read(self) -> Storage:
        from kohort.storage.postgres.unserved import UnservedDatabase

        return UnservedDatabase(self._url, unfinished=(FILLING_NODE, self._incarnation))

    def finish(self, storage: Storage, numbers: Numbers) -> None:
        from kohort.storage.postgres.unserved import UnservedDatabase

        assert isinstance(storage, UnservedDatabase)
        storage.finish(numbers)

    def discard(self) -> None:
        """The tables say that they are unfinished."""

    def release(self) -> None:
        """As `discard`."""
