"""Who may write to a lake: one run of a query, and one compaction of a table, at a time.

On a local file system a lock ends with its process (flock), and whoever comes second is told to wait. Elsewhere there
are no such locks, and the two need different things.

An ingest must be able to start at once after its driver was killed, and a killed one cannot say that it is dead. So the
newest run owns the directory (`Ownership`): it leaves a token there, and the run before, should it live, finds out at
the next thing that it decides. What two runs may still do in the same moment, the one that creates a file first wins.

A compaction can wait, but must not be waited for when it is dead. So its lock (`Lease`) is renewed while it lives, and
one that has not been renewed for STALE_S is taken over. By whose clock? By that of the file system: what is compared
are the times of two files.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from kohort.spark.files.directory import FileSystemError

NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK)
"""What a file system says that has none."""
BEAT_S = 20.0
STALE_S = 180.0
"""A lease that was not renewed for so long belongs to nobody."""


class Taken(RuntimeError):
    """Somebody else has it; the message is who, as far as that is known."""


def lock_file(path: str) -> IO[str] | None:
    """A local file with a lock on it that lasts until it is closed; None where the file system has no locks. Raises
    Taken."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "a+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in NO_LOCKS:
            return None
        raise Taken("a process that is alive") from None
    return file


class Ownership:
    """Of a directory (a place) to which one run writes at a time."""

    def __init__(self, directory: Any) -> None:
        self._directory = directory
        self._token = directory / "owner.json"
        self._lock: IO[str] | None = None
        self._mine: str | None = None

    @property
    def taken(self) -> bool:
        return self._mine is not None

    def take(self) -> None:
        """Be the owner from now on. Raises Taken, FileSystemError."""
        if self._mine is not None:
            return
        if self._directory.scheme == "file":
            try:
                self._lock = lock_file(f"{self._directory.path}/owner.lock")
            except Taken:
                raise Taken(_who(_text(self._token))) from None
        mine = _signature()
        self._token.write_text(mine)
        self._mine = mine

    def check(self) -> None:
        """Raises Taken where another run has become the owner since, FileSystemError where that cannot be seen."""
        there = self._token.read_text() if self._token.exists() else ""
        if there != self._mine:
            raise Taken(_who(there))

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock = self._mine = None


class Lease:
    """A lock in a file (a place), which its holder renews."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._mine = _signature()
        self._writing = threading.Lock()
        self._over = threading.Event()

    def take(self) -> None:
        """Raises Taken, FileSystemError."""
        if not self._file.write_new(self._mine) and not (self._free_stale() and self._file.write_new(self._mine)):
            raise Taken(_who(_text(self._file)))

    def held(self) -> bool:
        """Whether nobody has taken it over."""
        with self._writing:
            return _text(self._file) == self._mine

    def renew(self) -> bool:
        """False where somebody has taken it over."""
        with self._writing:
            if _text(self._file) != self._mine:
                return False
            self._file.write_over(self._mine)
            return True

    def renew_until_released(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                if not self.renew():
                    return
            except FileSystemError:
                continue  # the file system may come back before the lease is stale

    def release(self) -> None:
        self._over.set()
        if self.held():
            self._file.remove()

    def _free_stale(self) -> bool:
        """Take away a lock that nobody renews. False where it is alive, or somebody else was faster."""
        seen, at = _text(self._file), self._file.modified_ms()
        if at is None:
            return True
        beside = self._beside()
        beside.write_over("")  # what time is it there?
        now = beside.modified_ms()
        beside.remove()
        if now is None or now - at < STALE_S * 1000:
            return False
        gone = self._beside()
        try:
            self._file.move(gone)
            if _text(gone) != seen:  # it was another one already
                gone.move(self._file)
                return False
        except FileSystemError:
            return False
        gone.remove()
        return True

    def _beside(self) -> Any:
        return self._file.parent / f".{uuid.uuid4().hex}"


@contextmanager
def leased(file: Any) -> Iterator[Lease]:
    """Hold a lease. Raises Taken, FileSystemError."""
    lease = Lease(file)
    lease.take()
    beating = threading.Thread(target=lease.renew_until_released, name="kohort-lease", daemon=True)
    beating.start()
    try:
        yield lease
    finally:
        lease.release()


def _signature() -> str:
    """Of this process and this moment; no two are the same."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"token": uuid.uuid4().hex, "host": socket.gethostname(), "process": os.getpid(), "since": since})


def _text(place: Any) -> str:
    """Of a small file that may not be there, or be gone in this moment."""
    try:
        return str(place.read_text()) if place.exists() else ""
    except (FileSystemError, OSError):
        return ""


def _who(text: str) -> str:
    try:
        one = json.loads(text)
        return f"process {one['process']} on {one['host']}, since {one['since']}"
    except (ValueError, KeyError, TypeError):
        return "somebody who has left no name"
