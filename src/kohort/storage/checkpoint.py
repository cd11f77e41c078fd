"""Checkpoints of the SQLite engine: a thread copies the WAL into the database, so that commits do not wait for it.

SQLite restarts the WAL only when all of it is copied. Under steady writing the copy never quite catches up. So when the
WAL has grown to WAL_LIMIT, the next commit copies the little that is left and restarts the WAL.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from kohort.storage.sqlite_format import PAGE_SIZE

CHECKPOINT_BYTES = 8 * 1024 * 1024
"""A checkpoint starts in the background when about this much has been written to the WAL since the last one."""
WAL_LIMIT = 64 * 1024 * 1024
"""Bytes of WAL above which a commit finishes the checkpoint and restarts the WAL."""

BUSY_MS = 10_000
"""How long a commit waits for another program that holds a lock on the file."""


class Checkpointer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = 0
        self._wake = threading.Event()
        self._stopping = False
        self._restart_due = False
        self._thread: threading.Thread | None = None

    def after_commit(self, db: sqlite3.Connection, written: int) -> None:
        """`written`: about how many bytes the commit added to the WAL."""
        self._bytes += written
        if self._wake.is_set():
            return
        if self._restart_due:
            self._restart_due = False
            # A program that reads the file delays this. The work is tried again after the next checkpoint.
            db.execute("PRAGMA busy_timeout = 20")
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if self._bytes >= CHECKPOINT_BYTES:
            self._bytes = 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kohort-checkpoint", daemon=True)
                self._thread.start()
            self._wake.set()

    def _run(self) -> None:
        db = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_MS / 1000)
        db.execute("PRAGMA synchronous = FULL")
        try:
            self._wake.wait()
            while not self._stopping:
                try:
                    frames = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
                    self._restart_due = frames * PAGE_SIZE >= WAL_LIMIT
                except sqlite3.Error:
                    # The WAL still holds everything. If the disk fails the next commit too, that stops the process;
                    # if not, the next commit copies by itself and reports the error.
                    self._restart_due = True
                self._wake.clear()
                if not self._stopping:  # `clear` may have undone the wake-up of `stop`
                    self._wake.wait()
        finally:
            db.close()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
