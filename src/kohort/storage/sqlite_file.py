"""The SQLite engine's file: locked, opened, created when it is missing; and what its errors mean.

`SqliteFile` is the database of a running engine, `ReadOnlyFile` (stored_file.py) one that is only read.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kohort.storage.directory import LOCK_NAME, DirectoryLock, check_not_migrated, check_restored
from kohort.storage.protocol import DamagedFile, StorageError, WrongDirectory
from kohort.storage.sqlite_format import APPLICATION_ID, FORMAT_VERSION, PAGE_SIZE, WHOLE_SCHEMA
from kohort.storage.watched_files import WatchedFiles

FILE_NAME = "kohort.db"
BUSY_MS = 10_000
"""How long a commit waits for another program that holds a lock on the file."""


class DatabaseFile:
    """A database, and what the errors of its use mean."""

    db: sqlite3.Connection

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # the process may change its directory
        self.version = FORMAT_VERSION
        """The version of the format that was found."""
        self.closed = False

    def check_format(self) -> bool:
        """Note the version. Returns whether the database has any content. Raises StorageError, WrongDirectory."""
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        application = self.db.execute("PRAGMA application_id").fetchone()[0]
        empty = self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
        if empty and not version and not application:
            return False
        if application != APPLICATION_ID:
            raise WrongDirectory(
                f"{self.path} is a database of another program, not of kohort; choose another data.dir"
            )
        if version > FORMAT_VERSION:
            raise StorageError(
                f"{self.path} has format {version}, and this kohort knows up to {FORMAT_VERSION}: "
                "it was written by a newer kohort; start that one, or choose another data.dir"
            )
        if version < 1 and not empty:
            raise self.damaged("its format version is missing")
        self.version = FORMAT_VERSION if empty else version
        return not empty

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        if self.closed:
            raise StorageError(f"{self.path} is closed")
        try:
            yield
        except sqlite3.Error as error:
            raise self.explained(error, doing) from error
        except UnicodeDecodeError as error:
            # The sqlite3 module could not even read SQLite's message, which quotes a schema that is no text.
            raise self.damaged("its schema cannot be read as text") from error

    def explained(self, error: sqlite3.Error, doing: str) -> StorageError:
        match code_of(error):
            # The statements are ours and right: where SQLite finds an error in them, the schema is not ours any more.
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_ERROR:
                return self.damaged(str(error))
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return StorageError(f"cannot {doing} {self.path}: {error}; check its permissions and its disk")
            case _:
                if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_NOMEM:
                    raise MemoryError from error
                name = getattr(error, "sqlite_errorname", "unknown code")
                return StorageError(f"cannot {doing} {self.path}: {error} ({name}); check its disk")

    def damaged(self, what: str) -> StorageError:
        return DamagedFile(f"{self.path} is damaged: {what}")


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if there is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class SqliteFile(DatabaseFile):
    """Locks the data directory; `open` connects. Raises StorageError."""

    watched: WatchedFiles

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir / FILE_NAME)
        self._lock = DirectoryLock(data_dir)
        try:
            check_restored(data_dir)
            check_not_migrated(data_dir)
        except StorageError:
            self._lock.release()
            raise

    def open(self) -> None:
        with suppress(OSError):  # SQLite says what is wrong, and gives its other files the same mode
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # it holds the users' password hashes
        self.db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
        try:
            self._prepare()
        except BaseException:
            self.db.close()
            raise

    def _prepare(self) -> None:
        db = self.db
        is_filled = self.check_format()
        if not is_filled:
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cache_size = -16384")
        if not is_filled:
            db.executescript(f"BEGIN IMMEDIATE; {WHOLE_SCHEMA} PRAGMA application_id = {APPLICATION_ID}; COMMIT;")
            self._lock.sync_directory()

    def watch(self) -> None:
        """Call this after the first read, which makes SQLite open its files."""
        self.watched = WatchedFiles(self.path, self.path.with_name(LOCK_NAME))

    def release(self) -> None:
        """Give the lock back. The database is closed, or could not be used."""
        if hasattr(self, "watched"):
            self.watched.close()
        self._lock.release()

    def close(self) -> None:
        self.closed = True
        try:
            self.db.close()
        except sqlite3.Error as error:
            raise self.explained(error, "close") from error
        finally:
            self.release()

    # -- errors

    def explained(self, error: sqlite3.Error, doing: str) -> StorageError:
        match code_of(error):
            case sqlite3.SQLITE_FULL:
                return StorageError(
                    f"the disk of {self.path} is full; free some space and start kohort again: "
                    "everything that it acknowledged is there"
                )
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                holder = self.watched.writer() if hasattr(self, "watched") else ""
                return StorageError(
                    f"cannot {doing} {self.path}: {holder or 'another program'} holds a lock on it ({error}); end that "
                    "program and start kohort again: everything that it acknowledged is there"
                )
            case _:
                return super().explained(error, doing)

    def damaged(self, what: str) -> StorageError:
        return DamagedFile(
            f"{self.path} is damaged: {what}. Restore the data directory from a backup, or move it away and start "
            "with an empty one; what is readable can be saved with SQLite's .recover"
        )
