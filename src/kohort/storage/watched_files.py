"""The data directory's files as the system sees them: are they in their place, and which other process locks one?

A deleted or replaced file is written and synced without an error, but no restart finds what was written. So the files
are held open here, and each path must lead to the file that is held.

SQLite locks bytes of kohort.db-shm (https://www.sqlite.org/walformat.html#wal_locks). The kernel names a process whose
lock is in the way (F_GETLK of fcntl), never this one. A process loses its own locks on a file when it closes *any*
descriptor of the file. So nothing may open and close the database's files while the database is open: a second program
could then take the -shm file for a leftover, and truncate it.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path

from kohort.storage.protocol import StorageError

if sys.platform == "linux":
    import fcntl

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock: l_type, l_whence, l_start, l_len, l_pid."""
_WRITER = (120, 3)
"""First byte and number of the bytes that a program locks to write, to checkpoint and to recover."""
_READERS = (123, 5)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class WatchedFiles:
    """Holds the database's three files and the lock's file open, until after the database is closed. Raises
    StorageError."""

    def __init__(self, database: Path, lock: Path) -> None:
        self._paths = [str(database), f"{database}-wal", f"{database}-shm", str(lock)]
        self._held: list[int] = []
        self._ids: list[tuple[int, int]] = []
        try:
            for path in self._paths:
                self._held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                found = os.fstat(self._held[-1])
                self._ids.append((found.st_dev, found.st_ino))
        except OSError as error:
            self.close()
            raise StorageError(f"cannot open {error.filename}: {error.strerror or error}") from error

    def close(self) -> None:
        for held in self._held:
            os.close(held)
        self._held = []

    def check_database(self) -> None:
        """Raises StorageError if the database is not in its place. Takes two microseconds, for each commit. What is
        written to a log that was deleted alone is saved when the database is closed."""
        self._check(0)

    def check(self) -> None:
        """The same for all files."""
        for index in range(len(self._paths)):
            self._check(index)

    def _check(self, index: int) -> None:
        path = self._paths[index]
        try:
            found = os.stat(path)
            if (found.st_dev, found.st_ino) == self._ids[index]:
                return
            if os.path.samestat(found, os.fstat(self._held[index])):
                return  # some network file systems give a file another number
        except OSError as error:
            if error.errno not in _GONE:
                return  # whether the file can be used is found out by using it
        raise StorageError(
            f"{path} was deleted or replaced while kohort used it. kohort stops, because a restart would not find what "
            "is written there. Put the data directory back, from a backup if it is gone, or start with an empty one"
        )

    # -- what SQLite keeps in them

    @property
    def wal_size(self) -> int:
        return os.fstat(self._held[1]).st_size

    def replayed_frames(self) -> int:
        """How many frames of the WAL SQLite accepted: mxFrame of the wal-index header, in this machine's byte
        order."""
        return int.from_bytes(os.pread(self._held[2], 4, 16), sys.byteorder)

    def writer(self) -> str:
        """The process of another program that holds a write lock, as text; "" if there is none or it is unknown."""
        return self._holder(*_WRITER)

    def reader(self) -> str:
        """A process of another program that reads the database, as text; "" if there is none or it is unknown."""
        return self._holder(*_READERS)

    def _holder(self, first: int, count: int) -> str:
        if sys.platform != "linux" or not self._held:
            return ""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
        try:
            kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(self._held[2], fcntl.F_GETLK, asked))
        except OSError:
            return ""
        return "" if kind == fcntl.F_UNLCK else _described(process)


def _described(process: int) -> str:
    if process <= 0:
        return "a process of another container"
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
            return f"process {process} ({file.read().strip()})"
    except OSError:
        return f"process {process}"
