"""The data directory: created when missing, locked by one process at a time; finds damage in the write-ahead log.

The lock is an flock: the kernel drops it with the process, however that ends, so a stale lock file is no obstacle.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kohort.storage.protocol import StorageError, WrongDirectory

if os.name == "posix":
    import fcntl

LOCK_NAME = "kohort.lock"
RESTORING = "kohort.restoring"
MIGRATING = "kohort.migrating"
"""Directories within the data directory, from the beginning of a restore or migration to its end
(restored_directory.py)."""
UNFINISHED = {RESTORING: "restore", MIGRATING: "migration"}
MIGRATED = "kohort.migrated"
"""A file in a data directory whose data was migrated: where to."""
OUR_FILES = "kohort."
"""Their names begin with this."""
NO_DATA = ("lost+found",)
"""Found in directories that are empty otherwise, besides names that begin with a dot."""
NAMED = 3
"""Foreign files that an error names."""

_WAL_HEADER = struct.Struct(">IIIIIIII")
_FRAME_HEADER = struct.Struct(">IIIIII")
_FLIPPED_BITS = 1
"""Salts of the present round differ in at most this many of 64 bits. Those of another round do so once in 2^32: from
round to round one salt counts up and the other is random."""
_EXAMINED_FRAMES = 512
"""How many frames of a dropped commit are examined for a flipped bit: half a second's work."""


class DirectoryLock:
    """Creates `directory` and locks it for this process. Raises StorageError, WrongDirectory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        check_files(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot use the data directory {directory}: {error.strerror or error}") from error
        try:
            if os.name == "posix":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._file)
            os.close(self._file)
            self._file = None
            raise StorageError(
                f"the data directory {directory} is in use by another kohort{holder}; "
                "stop that one, or choose another data.dir"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def sync_directory(self) -> None:
        """Make new files' names durable."""
        sync(self.directory)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class SharedLock:
    """Keeps servers from starting in `directory`, if none runs there. Changes nothing."""

    def __init__(self, directory: Path) -> None:
        self.holder: str | None = None
        """The server that runs there, as text; None if none does, and the lock is held."""
        try:
            self._file: int | None = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._file = None  # the directory is a copy
            return
        except OSError as error:
            raise StorageError(f"cannot read {directory / LOCK_NAME}: {error.strerror or error}") from error
        try:
            if os.name == "posix":
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            self.holder = f"kohort{_holder(self._file)}"

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _holder(lock: int) -> str:
    """The process that has written its number into the lock's file, in brackets."""
    holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
    return f" (process {holder})" if holder else ""


def check_restored(directory: Path) -> None:
    """Raises StorageError for a directory to which a restore or migration is not finished."""
    for name, what in UNFINISHED.items():
        if os.path.lexists(directory / name):
            command = f"kohort {'restore' if name == RESTORING else 'migrate'}"
            raise StorageError(
                f"the data directory {directory} has a {what} that was interrupted; repeat {command}, which begins "
                "anew, or delete the directory"
            )


def migrated_to(directory: Path) -> str | None:
    """Where the data has gone; None if it was not migrated. Raises StorageError."""
    with os_errors(f"read {directory / MIGRATED}"):
        try:
            return (directory / MIGRATED).read_text(encoding="utf-8").strip() or "another place"
        except FileNotFoundError:
            return None


def mark_migrated(directory: Path, place: str) -> None:
    """No server starts on the directory from now on. Raises StorageError."""
    path = directory / MIGRATED
    with os_errors(f"write {path}"):
        path.write_text(f"{place}\n", encoding="utf-8")
        sync(path)
        sync(directory)


def check_not_migrated(directory: Path) -> None:
    """Raises WrongDirectory."""
    place = migrated_to(directory)
    if place is not None:
        raise WrongDirectory(
            f"the data of {directory} was migrated to {place}: serve that. If that was never served, delete "
            f"{directory / MIGRATED} to serve this directory again"
        )


def check_files(directory: Path) -> None:
    """Raises WrongDirectory for a file, and for a directory that is in use for something else than kohort's data."""
    try:
        names = sorted(os.listdir(directory))
    except NotADirectoryError:
        file = next(path for path in (directory, *directory.parents) if path.exists())
        raise WrongDirectory(
            f"cannot use the data directory {directory}: {file} is a file; choose another data.dir"
        ) from None
    except OSError:
        return  # it is missing, or the attempt to use it says what is wrong
    foreign = [name for name in names if not name.startswith(".") and name not in NO_DATA]
    if not foreign or any(name.startswith(OUR_FILES) for name in foreign):
        return
    named = ", ".join(foreign[:NAMED]) + (f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else "")
    owner = "Apache Kafka's data" if "meta.properties" in foreign else f"files that are not kohort's ({named})"
    raise WrongDirectory(f"the data directory {directory} holds {owner}; choose an empty or a new one as data.dir")


@contextmanager
def os_errors(doing: str) -> Iterator[None]:
    """An OSError of the block is a StorageError: "cannot …"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {doing}: {error.strerror or error}") from error


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class WalFrames:
    """The frames of a write-ahead log, read before SQLite opens it; then `lost` checks what SQLite made of them.

    SQLite replays the log up to its first bad frame and drops the rest. After a crash the rest is the torn end of the
    last commit, which was never acknowledged. But if another frame follows that commit, the commit had been synced and
    acknowledged: then the file is damaged. Only a damaged last commit looks the same as a torn one.
    Format: https://www.sqlite.org/walformat.html

    Damage may also hit the marks that end commits. A frame whose salts differ from the present round's in one bit
    belongs to this round (those of a former round differ in many, and what was never written is zeros). If the mark of
    a commit has become 0, the frame matches its checksum once a bit of the mark is flipped back.
    """

    def __init__(self, path: Path) -> None:
        self.commit_ends: list[bool] = []
        """For each frame, True if it belongs to the log's present round and ends a commit."""
        self._path = path
        self._present = 0
        """Frames up to the last one of the present round."""
        self._page_size = 0
        self._order = ">"
        try:
            with path.open("rb") as file:
                self._read(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror or error}") from error

    def _read(self, file: BinaryIO) -> None:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return
        magic, _, self._page_size, _, salt1, salt2, sum1, sum2 = _WAL_HEADER.unpack(header)
        self._order = ">" if magic & 1 else "<"
        if checksum(header[:24], self._order) != (sum1, sum2):
            raise StorageError(
                f"{self._path} is damaged: its header does not match its checksum. Restore the data directory from a "
                "backup; to go on without the newest commits, move this file away"
            )
        salts = salt1 << 32 | salt2
        position = _WAL_HEADER.size
        size = self._path.stat().st_size
        while position + _FRAME_HEADER.size <= size:
            file.seek(position)
            _, commit, frame_salt1, frame_salt2, _, _ = _FRAME_HEADER.unpack(file.read(_FRAME_HEADER.size))
            is_of_round = ((frame_salt1 << 32 | frame_salt2) ^ salts).bit_count() <= _FLIPPED_BITS
            self.commit_ends.append(commit != 0 and is_of_round)
            if is_of_round:
                self._present = len(self.commit_ends)
            position += _FRAME_HEADER.size + self._page_size

    def lost(self, replayed: int) -> bool:
        """True if synced commits follow the `replayed` frames that SQLite accepted. To be called before a write."""
        if any(self.commit_ends[replayed : self._present - 1]):
            return True
        return self._mark_was_flipped(replayed)

    def _mark_was_flipped(self, replayed: int) -> bool:
        """True if the first bad frame is right with one bit of its commit mark flipped."""
        with self._path.open("rb") as file:
            # A checksum continues the checksum of the previous frame; the first one continues that of the log's
            # header.
            frame_size = _FRAME_HEADER.size + self._page_size
            file.seek(_WAL_HEADER.size + replayed * frame_size - (self._page_size + 8 if replayed else 8))
            before: tuple[int, int] = struct.unpack(">II", file.read(8))
            file.seek(_WAL_HEADER.size + replayed * frame_size)
            for _ in range(replayed, min(self._present - 1, replayed + _EXAMINED_FRAMES)):
                frame = file.read(frame_size)
                found = struct.unpack_from(">II", frame, 16)
                if self._sums(frame, 0, before) != found:
                    return any(self._sums(frame, 1 << bit, before) == found for bit in range(32))
                before = found
        return False

    def _sums(self, frame: bytes, flipped: int, before: tuple[int, int]) -> tuple[int, int]:
        """The checksum of a frame, with bits of its commit mark flipped."""
        page, mark = struct.unpack_from(">II", frame)
        start = checksum(struct.pack(">II", page, mark ^ flipped), self._order, before)
        return checksum(frame[_FRAME_HEADER.size :], self._order, start)


def checksum(data: bytes, order: str, start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    first, second = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
