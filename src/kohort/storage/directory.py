"""The data directory: created when missing, used by one process at a time, and its write-ahead log looked at.

The lock is an flock: the kernel drops it with the process, however that ends, so a stale lock file is no obstacle.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import BinaryIO

from kohort.storage.protocol import StorageError

if os.name == "posix":
    import fcntl

LOCK_NAME = "kohort.lock"

_WAL_HEADER = struct.Struct(">IIIIIIII")
_FRAME_HEADER = struct.Struct(">IIIIII")


class DirectoryLock:
    """Creates `directory` and locks it for this process. Raises StorageError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot use the data directory {directory}: {error.strerror or error}") from error
        try:
            if os.name == "posix":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            self._file = None
            raise StorageError(
                f"the data directory {directory} is in use by another kohort"
                f"{f' (process {holder})' if holder else ''}; stop that one, or choose another data.dir"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def sync_directory(self) -> None:
        """Make new files' names durable."""
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class WalFrames:
    """The frames of a write-ahead log as found before SQLite looks at it; what it made of them is checked afterwards.

    SQLite replays the log up to its first bad frame and forgets the rest. After a crash that is the torn end of the
    last commit, which nobody was told of. But if yet another frame follows that commit, the commit had been synced
    before it, and forgetting it would lose what was acknowledged: that is damage. Only a damaged last commit cannot be
    told from a torn one. Format: https://www.sqlite.org/walformat.html
    """

    def __init__(self, path: Path) -> None:
        self.commit_ends: list[bool] = []
        """Of each frame that belongs to the log's present round: whether it ends a commit."""
        try:
            with path.open("rb") as file:
                self._read(file, path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror or error}") from error

    def _read(self, file: BinaryIO, path: Path) -> None:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return
        magic, _, page_size, _, salt1, salt2, sum1, sum2 = _WAL_HEADER.unpack(header)
        if _checksum(header[:24], ">" if magic & 1 else "<") != (sum1, sum2):
            raise StorageError(
                f"{path} is damaged: its header does not match its checksum. Restore the data directory from a backup; "
                "to go on without the newest commits, move this file away"
            )
        position = _WAL_HEADER.size
        size = path.stat().st_size
        while position + _FRAME_HEADER.size <= size:
            file.seek(position)
            _, commit, frame_salt1, frame_salt2, _, _ = _FRAME_HEADER.unpack(file.read(_FRAME_HEADER.size))
            self.commit_ends.append(commit != 0 and (frame_salt1, frame_salt2) == (salt1, salt2))
            if (frame_salt1, frame_salt2) == (salt1, salt2):
                self._present = len(self.commit_ends)
            position += _FRAME_HEADER.size + page_size

    _present = 0

    def lost(self, replayed: int) -> bool:
        """Whether synced commits stand behind the `replayed` frames that SQLite accepted."""
        return any(self.commit_ends[replayed : self._present - 1])


def replayed_frames(shm: Path) -> int:
    """How many frames of the WAL SQLite accepted: mxFrame of the wal-index header, in this machine's byte order."""
    with shm.open("rb") as file:
        return int.from_bytes(file.read(20)[16:20], sys.byteorder)


def _checksum(data: bytes, order: str) -> tuple[int, int]:
    first = second = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
