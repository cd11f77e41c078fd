"""A database that is only read: a backup, or the database of a data directory.

A backup is opened as immutable: SQLite takes no locks and creates no files. So is the database of a directory whose
server was stopped. A crash leaves a write-ahead log, and to read it SQLite needs kohort.db-shm, its index of that log:
it is created if it is missing, and removed again. The database and the log do not change.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kohort.storage import seal
from kohort.storage.directory import SharedLock, WalFrames, check_restored
from kohort.storage.protocol import Lease, Operation, StorageError
from kohort.storage.sqlite_file import BUSY_MS, FILE_NAME, DatabaseFile
from kohort.storage.sqlite_format import FORMAT_VERSION
from kohort.storage.sqlite_reader import SqliteReader
from kohort.storage.sqlite_reads import SqliteReads

MOST_FAULTS = 100
"""Faults of the structure that SQLite lists."""
_HEADLINE = "***"
"""SQLite's lists begin with a line that names the database."""


class ReadOnlyFile(DatabaseFile):
    """Opens a database for reading. Raises StorageError.

    `immutable`: nobody writes to it, and there is no write-ahead log. `checks_wal`: nobody else uses the database, and
    what SQLite makes of its write-ahead log is checked as at a start."""

    def __init__(self, path: Path, *, immutable: bool, checks_wal: bool = False) -> None:
        super().__init__(path)
        self.is_immutable = immutable
        self._index = -1
        frames = WalFrames(wal_of(self.path)) if checks_wal else None
        where = f"{self.path.as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
        with self.errors("open"):
            self.db = sqlite3.connect(
                where, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
            )
            try:
                self.db.execute("PRAGMA cell_size_check = ON")
                self.db.execute("PRAGMA trusted_schema = OFF")
                if not self.check_format():
                    raise StorageError(f"{self.path} has no data of kohort: it is an empty database")
                if frames is not None and frames.commit_ends and frames.lost(self._replayed_frames()):
                    raise self.damaged("its write-ahead log has a bad frame, and synced commits after it")
            except BaseException:
                self.close()
                raise

    def _replayed_frames(self) -> int:
        """As `WatchedFiles.replayed_frames`. To close the file would end SQLite's locks on it, so it stays open."""
        try:
            self._index = os.open(f"{self.path}-shm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"cannot read {error.filename}: {error.strerror or error}") from error
        return int.from_bytes(os.pread(self._index, 4, 16), sys.byteorder)

    def close(self) -> None:
        self.closed = True
        with suppress(sqlite3.Error):
            self.db.close()
        if self._index >= 0:
            os.close(self._index)
            self._index = -1


class StoredFile(SqliteReads):
    """A backup, or a stopped data directory, as a `Storage` without writes. Raises StorageError, WrongDirectory."""

    _file: ReadOnlyFile

    def __init__(self, path: Path) -> None:
        self._lock: SharedLock | None = None
        self._made: Path | None = None
        """The index of the write-ahead log, if it was not there before."""
        try:
            self._file = self._opened_directory(path) if path.is_dir() else _opened_backup(path)
        except BaseException:
            self._release()
            raise
        self.path = self._file.path
        self._db = self._file.db
        try:
            if self._file.version < FORMAT_VERSION:
                raise StorageError(
                    f"{self.path} has format {self._file.version}, of an older kohort, and can be read when kohort has "
                    "converted it: start kohort serve on the directory; restore a backup with --no-verify"
                )
            with self._file.errors("read"):
                self._load_logs()
                self._load_gathered()
        except BaseException:
            self.close()
            raise

    def _opened_directory(self, directory: Path) -> ReadOnlyFile:
        path = database_in(directory)
        self._lock = SharedLock(directory)
        if self._lock.holder is not None:
            raise StorageError(
                f"the data directory {directory} is in use by {self._lock.holder}; stop it, or take a backup with "
                "kohort backup and verify that"
            )
        index = Path(f"{path}-shm")
        has_log = has_wal(path)
        if has_log and not index.exists():
            self._made = index
        return ReadOnlyFile(path, immutable=not has_log, checks_wal=has_log)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def structural_faults(self) -> list[str]:
        """What SQLite finds wrong in the structure of the file and in its indexes. Reads the whole file."""
        with self._file.errors("read"):
            rows = self._db.execute(f"PRAGMA integrity_check({MOST_FAULTS})").fetchall()
            pages, page_size = (
                self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
            )
        lines = [line for (text,) in rows for line in str(text).splitlines() if not line.startswith(_HEADLINE)]
        faults = [] if lines == ["ok"] else lines
        end = seal.SIZE if seal.is_sealed(self.path) else 0
        if self._file.is_immutable and self.size != pages * page_size + end:
            faults.append(f"the file has {self.size:,} bytes, and should have {pages * page_size + end:,}")
        return faults

    def has_changed(self) -> bool:
        """True if any byte of a backup is not what was written, also one that nobody reads."""
        return seal.is_broken(self.path)

    # -- what a Storage has besides

    def acquire(self) -> Lease:
        return Lease(0)

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        raise StorageError(f"{self.path} is opened for reading only")

    def reader(self) -> SqliteReader:
        raise StorageError(f"{self.path} is read by one thread alone")

    def abandon(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._release()

    def _release(self) -> None:
        if self._made is not None:
            self._made.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()


def _opened_backup(path: Path) -> ReadOnlyFile:
    check_backup(path)
    return ReadOnlyFile(path, immutable=True)


def check_backup(path: Path) -> None:
    """Raises StorageError if the file is missing, or is a part of a data directory."""
    if not path.exists():
        raise StorageError(f"{path} does not exist")
    if not path.is_file():
        raise StorageError(f"{path} is not a file")
    if has_wal(path):
        raise StorageError(
            f"{path} is not a backup: its write-ahead log {wal_of(path).name} lies beside it. Take a backup of its "
            "directory with kohort backup"
        )


def database_in(directory: Path) -> Path:
    """The database of a data directory. Raises StorageError if there is none, or if it is not whole yet."""
    check_restored(directory)
    path = directory / FILE_NAME
    if not path.is_file():
        raise StorageError(f"{directory} is not a data directory of kohort: it has no {FILE_NAME}")
    return path


def wal_of(database: Path) -> Path:
    return Path(f"{database}-wal")


def has_wal(database: Path) -> bool:
    """True if the write-ahead log has content."""
    try:
        return wal_of(database).stat().st_size > 0
    except OSError:
        return False
