"""Copies the database of a data directory to a file, also while a server uses it.

`VACUUM INTO` reads all in one transaction, so the copy is the database of one instant, and the server's commits go on.
The copy gets its name when it is whole and synced: before, it is the file NAME.partial-PID beside it. A killed process
leaves that file, and the next backup to the same name removes it.

While the copy is read, SQLite cannot restart the write-ahead log, which grows by what the server writes. A thread
watches the log's size, and ends the copy above a limit.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from kohort.storage import seal
from kohort.storage.directory import SharedLock, check_files, os_errors, sync
from kohort.storage.protocol import StorageError
from kohort.storage.sqlite_file import code_of
from kohort.storage.sqlite_format import FORMAT_VERSION
from kohort.storage.stored_file import ReadOnlyFile, database_in, wal_of

LOOK_S = 0.1
"""How often the watching thread looks."""
PARTIAL = ".partial-"


class Stopped(Exception):
    """The caller wanted the copy to end."""


class Backup:
    """A backup of `data_dir` to the file `target`: `prepare`, `copy`, look at the file `partial`, and `finish`; in any
    case `discard`. Raises StorageError.

    `stopped` is asked between steps, and several times a second during the copy, which then raises Stopped."""

    def __init__(
        self, data_dir: Path, target: Path, *, force: bool, max_wal_bytes: int, stopped: Callable[[], bool]
    ) -> None:
        self.target = target
        self.partial = target.with_name(f"{target.name}{PARTIAL}{os.getpid()}")
        self._data_dir = data_dir
        self._force = force
        self._max_wal_bytes = max_wal_bytes
        self._stopped = stopped

    def prepare(self) -> list[Path]:
        """Check the places. Returns the files of interrupted backups, which are removed."""
        check_files(self._data_dir)
        database_in(self._data_dir)
        folder = self.target.parent
        if not folder.is_dir():
            raise StorageError(f"cannot write {self.target}: {folder} is not a directory")
        if folder.resolve() == self._data_dir.resolve():
            raise StorageError(f"{self.target} lies in the data directory; choose a place outside of it")
        self._check_target()
        return self._remove_leftovers()

    def _check_target(self) -> None:
        if self.target.is_dir():
            raise StorageError(f"{self.target} is a directory; name the file of the backup")
        if os.path.lexists(self.target) and not self._force:
            raise StorageError(f"{self.target} exists; choose another name, or replace it with --force")

    def _remove_leftovers(self) -> list[Path]:
        removed = []
        for path in sorted(self.target.parent.glob(f"{_escaped(self.target.name)}{PARTIAL}*")):
            number = path.name.removeprefix(f"{self.target.name}{PARTIAL}").partition("-")[0]
            if _runs(number):
                raise StorageError(
                    f"process {number} writes a backup to {self.target}; if it is another program, delete {path.name}"
                )
            with os_errors(f"remove {path}"):
                path.unlink()
            removed.append(path)
        return removed

    # -- the copy

    def copy(self) -> None:
        file = self._opened()
        try:
            if file.version < FORMAT_VERSION:
                raise StorageError(
                    f"{file.path} has format {file.version}, of an older kohort; kohort serve converts it when it "
                    "starts. To keep the older format, copy the directory while the server is stopped"
                )
            self._check_room(file)
            with os_errors(f"write {self.partial}"):
                os.close(os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # it holds secrets
            self._vacuum(file)
        finally:
            file.close()
        with os_errors(f"write {self.partial}"):
            seal.seal(self.partial)
            sync(self.partial)

    def _opened(self) -> ReadOnlyFile:
        """If no server runs, none can start while the write-ahead log is checked."""
        lock = SharedLock(self._data_dir)
        try:
            return ReadOnlyFile(database_in(self._data_dir), immutable=False, checks_wal=lock.holder is None)
        finally:
            lock.release()

    def _check_room(self, file: ReadOnlyFile) -> None:
        with file.errors("read"):
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (file.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        needed = (pages - free) * size
        with os_errors(f"write {self.target}"):
            left = shutil.disk_usage(self.target.parent).free
        if left < needed:
            raise StorageError(
                f"the backup takes about {needed:,} bytes, and the disk of {self.target} has {left:,} left; free some "
                "space, or choose another place"
            )

    def _vacuum(self, file: ReadOnlyFile) -> None:
        watch = _Watch(file, self._max_wal_bytes, self._stopped)
        try:
            with watch:
                file.db.execute("VACUUM INTO ?", (str(self.partial.absolute()),))
        except sqlite3.Error as error:
            match code_of(error):
                case sqlite3.SQLITE_INTERRUPT if watch.is_too_large:
                    raise StorageError(
                        f"the write-ahead log {wal_of(file.path)} has grown above --max-wal, to {watch.size:,} bytes: "
                        "the server cannot restart it while the backup reads. No backup was written; try again when "
                        "the server writes less, on a faster disk, or with a larger --max-wal"
                    ) from None
                case sqlite3.SQLITE_INTERRUPT:
                    raise Stopped from None
                case sqlite3.SQLITE_FULL:
                    raise StorageError(f"the disk of {self.target} is full; no backup was written") from None
                case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                    raise file.damaged(str(error)) from error
                case _:
                    why = f"{error} ({getattr(error, 'sqlite_errorname', 'unknown code')})"
                    raise StorageError(f"cannot copy {file.path} to {self.partial}: {why}") from error

    # -- the end

    def finish(self) -> None:
        """Give the copy its name."""
        if self._stopped():
            raise Stopped
        self._check_target()
        with os_errors(f"write {self.target}"):
            os.replace(self.partial, self.target)
            sync(self.target.parent)

    def discard(self) -> None:
        """Remove what is not finished."""
        for path in self.target.parent.glob(f"{_escaped(self.partial.name)}*"):
            path.unlink(missing_ok=True)


class _Watch:
    """Ends the statement of the block that it surrounds, from a thread of its own."""

    def __init__(self, file: ReadOnlyFile, max_wal_bytes: int, stopped: Callable[[], bool]) -> None:
        self.is_too_large = False
        self._file = file
        self._stopped = stopped
        self._limit = max(max_wal_bytes, self.size)
        """A log that is larger already need not grow: its beginning may be free."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kohort-backup", daemon=True)

    @property
    def size(self) -> int:
        try:
            return wal_of(self._file.path).stat().st_size
        except OSError:
            return 0

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.is_too_large = self.is_too_large or self.size > self._limit
            if self._stopped() or self.is_too_large:
                self._file.db.interrupt()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _escaped(name: str) -> str:
    """For `Path.glob`."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _runs(number: str) -> bool:
    """Whether another process with this number runs."""
    if os.name != "posix" or not number.isdecimal() or int(number) == os.getpid():
        return False  # in containers, each backup may have the same number
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
