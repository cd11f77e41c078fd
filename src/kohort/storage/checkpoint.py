"""The SQLite engine's thread beside the writer: checkpoints, and a look at the files once a second.

A checkpoint copies the WAL into the database, so that commits do not wait for it. SQLite restarts the WAL only when all
of it is copied. Under steady writing the copy never quite catches up. So when the WAL has grown to WAL_LIMIT, a
commit copies the little that is left and restarts the WAL. Is it more than RESTART_BYTES, the thread copies first; but
at twice WAL_LIMIT the commit copies whatever is left.

What may go wrong:

- A checkpoint fails for a passing reason, for instance because too many files are open. The WAL still holds everything.
  The next commit copies by itself, and the thread tries again, with growing pauses. The log says so.
- Another program reads the database. SQLite cannot restart the WAL while a reader uses it, so the WAL grows. The log
  names the process. When the reader has finished, the file is truncated.
- The WAL reaches WAL_MAX, a file was deleted or replaced, the database is damaged, or the thread has a bug: the engine
  fails. `failed` gets the error at once, and every later commit raises it.
- Another program holds the write lock: the log names the process after SLOW_COMMIT_S, and the commit fails after
  BUSY_MS (sqlite_file.py).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable

from kohort.storage.protocol import Log, StorageError
from kohort.storage.sqlite_file import BUSY_MS, SqliteFile
from kohort.storage.sqlite_format import PAGE_SIZE

CHECKPOINT_BYTES = 8 * 1024 * 1024
"""A checkpoint starts in the background when about this much has been written to the WAL since the last one."""
WAL_LIMIT = 64 * 1024 * 1024
"""Bytes of WAL above which a commit finishes the checkpoint and restarts the WAL. A file of more than twice this size
is truncated."""
RESTART_BYTES = 4 * 1024 * 1024
"""What a commit may have to copy: about ten milliseconds of work."""
WAL_MAX = 4 * 1024 * 1024 * 1024
"""Bytes of WAL at which the engine fails. What is written within a second may come on top."""

TICK_S = 1.0
SLOW_COMMIT_S = 1.0
RESTART_MS = 20
"""How long a restart or a truncation of the WAL waits for readers. A commit waits meanwhile."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Pauses between attempts of a checkpoint that fails."""
WARN_AGAIN_S = 60.0


class Checkpointer:
    def __init__(self, file: SqliteFile, log: Log, failed: Callable[[Exception], None]) -> None:
        """Raises StorageError if there can be no thread."""
        self._file = file
        self._log = log
        self._failed = failed
        self._failure: Exception | None = None
        self._bytes = 0
        self._wake = threading.Event()
        """Set from when a checkpoint is due until it is over."""
        self._stopping = False
        self._restart_due = False
        self._copied_bytes = 0
        """Of the WAL, by the last checkpoint."""
        self._commit_began = 0.0
        """Of the commit under way; 0 between commits."""
        self._warned_of_commit = 0.0
        self._db: sqlite3.Connection | None = None
        self._pause_s = 0.0
        """After the last attempt, if it failed."""
        self._retry_at = 0.0
        self._warned_at: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="kohort-checkpoint", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise StorageError(
                f"cannot start a thread for {file.path}: {error}; raise the limit of processes and threads "
                "(ulimit -u, or pids.max of the container)"
            ) from error

    # -- called by the writer

    def before_commit(self) -> None:
        self._commit_began = time.monotonic()

    def after_commit(self, db: sqlite3.Connection, written: int) -> None:
        """`written`: about how many bytes the commit added to the WAL. Raises the error that has ended the thread."""
        self._commit_began = 0.0
        self._bytes += written
        if self._wake.is_set():
            if self._failure is not None:
                raise self._failure
            return
        if self._restart_due and self._bytes > RESTART_BYTES and self._copied_bytes + self._bytes < 2 * WAL_LIMIT:
            self._bytes = 0
            self._wake.set()
            return
        if self._restart_due:
            self._restart_due = False
            # A program that reads the file delays this. The work is tried again after the next checkpoint.
            db.execute(f"PRAGMA busy_timeout = {RESTART_MS}")
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if self._bytes >= CHECKPOINT_BYTES:
            self._bytes = 0
            self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._look(is_asked=self._wake.wait(TICK_S))
        except Exception as error:
            self._failure = error
            self._wake.set()  # the next commit looks at the failure
            self._failed(error)
        finally:
            self._disconnect()

    def _look(self, *, is_asked: bool) -> None:
        if self._stopping:
            return
        self._file.watched.check()
        self._watch_commit()
        if is_asked or self._is_due():
            self._wake.set()
            self._checkpoint()
            self._wake.clear()

    def _is_due(self) -> bool:
        if self._pause_s:
            return time.monotonic() >= self._retry_at
        return self._file.watched.wal_size > 2 * WAL_LIMIT

    def _checkpoint(self) -> None:
        try:
            db = self._connected()
            _, frames, copied = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames == copied and self._file.watched.wal_size > 2 * WAL_LIMIT:
                is_busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                frames = frames if is_busy else 0
        except (sqlite3.OperationalError, MemoryError) as error:
            self._disconnect()
            self._try_again(error)
            return
        except sqlite3.Error as error:
            raise self._file.explained(error, "copy the write-ahead log into") from error
        if self._pause_s:
            self._pause_s = self._retry_at = 0.0
            self._log.info("the write-ahead log is copied again", file=self._file.path)
        self._copied_bytes = copied * PAGE_SIZE
        self._restart_due = frames * PAGE_SIZE >= WAL_LIMIT
        self._watch_size(frames * PAGE_SIZE)

    def _connected(self) -> sqlite3.Connection:
        if self._db is None:
            where = f"{self._file.path.as_uri()}?mode=rw"  # which creates no file
            self._db = sqlite3.connect(where, uri=True, isolation_level=None, timeout=RESTART_MS / 1000)
            self._db.execute("PRAGMA synchronous = FULL")
        return self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _try_again(self, error: sqlite3.OperationalError | MemoryError) -> None:
        # If the disk fails the next commit too, that stops the process.
        self._restart_due = True
        size = self._file.watched.wal_size
        why = str(error) or "out of memory"
        if size >= WAL_MAX:
            raise StorageError(
                f"the write-ahead log of {self._file.path} has grown to {size} bytes, because it cannot be copied: "
                f"{why}; start kohort again: everything that it acknowledged is there"
            )
        now = time.monotonic()
        if now >= self._retry_at:  # attempts that commits have asked for come in between
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
            self._retry_at = now + self._pause_s
        self._warn("the write-ahead log cannot be copied", error=why, wal_bytes=size, again_in_s=self._pause_s)

    # -- other programs

    def _watch_size(self, pending: int) -> None:
        """`pending`: bytes of the WAL that are in use."""
        if pending <= 2 * WAL_LIMIT:
            return
        reader = self._file.watched.reader()
        if pending >= WAL_MAX:
            raise StorageError(
                f"the write-ahead log of {self._file.path} has grown to {pending} bytes, because "
                f"{reader or 'another program'} reads the database in one long transaction; end that program and start "
                "kohort again: everything that it acknowledged is there"
            )
        if reader or pending > 4 * WAL_LIMIT:
            self._warn(
                "another program reads the database, and the write-ahead log grows until it ends",
                process=reader or "unknown",
                wal_bytes=pending,
                stops_at_bytes=WAL_MAX,
            )

    def _watch_commit(self) -> None:
        began = self._commit_began
        if self._warned_of_commit and began != self._warned_of_commit:
            self._warned_of_commit = 0.0
            self._log.info("the lock on the database is free again, and commits go on", file=self._file.path)
        if began and not self._warned_of_commit and time.monotonic() - began >= SLOW_COMMIT_S:
            writer = self._file.watched.writer()
            if writer:
                self._warned_of_commit = began
                self._log.warning(
                    "a commit waits, because another program holds the lock on the database",
                    process=writer,
                    file=self._file.path,
                    stops_after_s=BUSY_MS / 1000,
                )

    def _warn(self, what: str, **values: object) -> None:
        now = time.monotonic()
        if now - self._warned_at.get(what, -WARN_AGAIN_S) >= WARN_AGAIN_S:
            self._warned_at[what] = now
            self._log.warning(what, file=self._file.path, **values)
