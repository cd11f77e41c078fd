"""Locks of a lake: one run of a query and one compaction of a table at a time.

On a local file system a lock ends with its process (flock), and the second process is refused. Other file systems have
no such locks, and the two cases need different replacements.

A new ingest must be able to start at once after its driver was killed. So the newest run becomes the owner of the
directory (`Ownership`): it writes a token there, which an older run that still lives finds before it decides its next
batch. If two runs decide at the same moment, the run that creates the manifest first wins.

A compaction can wait, but not for ever for a dead process. So the holder renews its lock (`Lease`), and a lock that was
not renewed for STALE_S is taken over. Ages are differences between the times of two files, by the file system's clock.
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
from typing import IO

from kohort.spark.files.directory import FileSystemError
from kohort.spark.files.hadoop import HadoopDirectory

NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK)
"""The errors of a file system without locks."""
BEAT_S = 20.0
STALE_S = 180.0
"""A lease that was not renewed for this time has no holder."""


class Taken(RuntimeError):
    """Another process has it; the message names the process if it is known."""


def lock_file(path: str) -> IO[str] | None:
    """A local file, locked until it is closed; None if the file system has no locks. Raises Taken."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = open(path, "a+")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in NO_LOCKS:
            return None
        raise Taken("a running process") from None
    return file


class Ownership:
    """The right to write to a directory; one run has it at a time."""

    def __init__(self, directory: HadoopDirectory) -> None:
        self._directory = directory
        self._token = directory / "owner.json"
        self._lock: IO[str] | None = None
        self._mine: str | None = None

    @property
    def taken(self) -> bool:
        return self._mine is not None

    def take(self) -> None:
        """Become the owner. Raises Taken, FileSystemError."""
        if self._mine is not None:
            return
        if self._directory.scheme == "file":
            try:
                self._lock = lock_file(f"{self._directory.path}/owner.lock")
            except Taken:
                raise Taken(_describe(_text(self._token))) from None
        mine = _signature()
        self._token.write_text(mine)
        self._mine = mine

    def check(self) -> None:
        """Raises Taken if another run has become the owner since, FileSystemError if the token cannot be read."""
        owner = self._token.read_text() if self._token.exists() else ""
        if owner != self._mine:
            raise Taken(_describe(owner))

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock = self._mine = None


class Lease:
    """A lock in a file, which its holder renews."""

    def __init__(self, file: HadoopDirectory) -> None:
        self._file = file
        self._mine = _signature()
        self._writing = threading.Lock()
        self._over = threading.Event()

    def take(self) -> None:
        """Raises Taken, FileSystemError."""
        if not self._file.write_new(self._mine) and not (self._free_stale() and self._file.write_new(self._mine)):
            raise Taken(_describe(_text(self._file)))

    def held(self) -> bool:
        """True unless another process has taken the lease over."""
        with self._writing:
            return _text(self._file) == self._mine

    def renew(self) -> bool:
        """False if another process has taken the lease over."""
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
        """Remove a lock that is not renewed. False if it is renewed, or if another process was faster."""
        seen, at = _text(self._file), self._file.modified_ms()
        if at is None:
            return True
        beside = self._beside()
        beside.write_over("")  # shows the file system's time
        now = beside.modified_ms()
        beside.remove()
        if now is None or now - at < STALE_S * 1000:
            return False
        gone = self._beside()
        try:
            self._file.move(gone)
            if _text(gone) != seen:  # already another process's lock
                gone.move(self._file)
                return False
        except FileSystemError:
            return False
        gone.remove()
        return True

    def _beside(self) -> HadoopDirectory:
        return self._file.parent / f".{uuid.uuid4().hex}"


@contextmanager
def leased(file: HadoopDirectory) -> Iterator[Lease]:
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
    """A text that names this process and this moment, different each time."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"token": uuid.uuid4().hex, "host": socket.gethostname(), "process": os.getpid(), "since": since})


def _text(file: HadoopDirectory) -> str:
    """The text of a small file; empty if the file is missing or disappears at this moment."""
    try:
        return file.read_text() if file.exists() else ""
    except OSError:
        return ""


def _describe(signature: str) -> str:
    try:
        one = json.loads(signature)
        return f"process {one['process']} on {one['host']}, since {one['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"
