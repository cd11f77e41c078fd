"""A data directory that a restore makes from a backup, or a migration from a database.

The copy is prepared in the directory `kohort.restoring` (or `kohort.migrating`) within the data directory, as a data
directory of its own, and moves to its place when it is whole and synced. As long as that directory is there, no server
starts on the data directory, and another restore or migration begins anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kohort.storage import seal
from kohort.storage.backup import Stopped
from kohort.storage.directory import LOCK_NAME, NO_DATA, OUR_FILES, RESTORING, DirectoryLock, os_errors, sync
from kohort.storage.protocol import StorageError
from kohort.storage.sqlite_file import FILE_NAME
from kohort.storage.stored_file import has_wal

CHUNK = 4 * 1024 * 1024
NAMED = 3
"""Files that an error names."""


class RestoredDirectory:
    """Creates and locks `directory`, which must be empty. Then `copy`, change what is in `prepared`, and `finish`, or
    `discard`. `name` is that of the directory in which the copy is prepared. Raises StorageError."""

    def __init__(self, directory: Path, name: str = RESTORING) -> None:
        self.directory = directory
        self.prepared = directory / name
        """The data directory in which the copy is prepared."""
        self._is_new = not directory.exists()
        check_empty(directory, name)
        self._lock = DirectoryLock(directory)
        try:
            with os_errors(f"use the data directory {directory}"):
                self._remove_former()
                self.prepared.mkdir(mode=0o700)
                sync(directory)
        except BaseException:
            self._lock.release()
            raise

    def _remove_former(self) -> None:
        """What an interrupted restore has left: no server has started on it."""
        if not self.prepared.exists():
            return
        for path in self.directory.glob(f"{FILE_NAME}*"):
            path.unlink()
        shutil.rmtree(self.prepared)

    def copy(self, backup: Path, stopped: Callable[[], bool]) -> None:
        """Raises Stopped as soon as `stopped` returns True."""
        target = self.prepared / FILE_NAME
        with os_errors(f"copy {backup} to {self.directory}"):
            size, left = backup.stat().st_size, shutil.disk_usage(self.directory).free
            if left < size:
                raise StorageError(
                    f"{backup} has {size:,} bytes, and the disk of {self.directory} has {left:,} left; free some "
                    "space, or choose another place"
                )
            with backup.open("rb") as source, open(os.open(target, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as copy:
                while data := source.read(CHUNK):
                    if stopped():
                        raise Stopped
                    copy.write(data)
            seal.remove(target)
            sync(target)

    def finish(self) -> None:
        """Move the database, which is closed, to its place."""
        made = self.prepared / FILE_NAME
        if has_wal(made):
            raise StorageError(f"the write-ahead log of {made} could not be copied; is the disk full?")
        with os_errors(f"move {made} to {self.directory}"):
            sync(made)
            os.replace(made, self.directory / FILE_NAME)
            sync(self.directory)
            shutil.rmtree(self.prepared)
            sync(self.directory)
        self._lock.release()

    def release(self) -> None:
        """Keep what is prepared, for a repetition, and give the lock back."""
        self._lock.release()

    def discard(self) -> None:
        """Remove everything. Does nothing after `finish`."""
        if not self.prepared.exists():
            return
        with os_errors(f"remove {self.prepared}"):
            shutil.rmtree(self.prepared)
        (self.directory / LOCK_NAME).unlink(missing_ok=True)
        self._lock.release()
        if self._is_new:
            with suppress(OSError):
                self.directory.rmdir()


def check_empty(directory: Path, name: str = RESTORING) -> bool:
    """Raises StorageError for a directory with anything but the remains of an interrupted restore or migration. Returns
    whether these are there."""
    if not directory.is_dir():
        return False  # it is missing, or the lock says what is wrong
    names = sorted(each for each in os.listdir(directory) if not each.startswith(".") and each not in NO_DATA)
    has_remains = name in names
    strange = [each for each in names if each != LOCK_NAME and not (has_remains and each.startswith(OUR_FILES))]
    if strange:
        named = ", ".join(strange[:NAMED]) + (f" and {len(strange) - NAMED} more" if len(strange) > NAMED else "")
        raise StorageError(f"{directory} is not empty ({named}); choose a new or an empty directory")
    return has_remains
