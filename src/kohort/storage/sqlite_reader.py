"""Reads of the SQLite engine beside its writer, in a thread of its own.

The reader has a connection of its own, and each call is a transaction: it sees the database as of one commit, while the
writer goes on (WAL). What the engine keeps in memory belongs to the writer and is not used here: the log's row and the
gathered appends are read from their tables.

A call ends soon, because a transaction that stays open keeps the write-ahead log from being restarted (checkpoint.py).
SQLite opens the file once more, and closes it without ending the locks of the other connections.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kohort.storage.gathered import batches_of
from kohort.storage.protocol import NO_END, BatchInfo, DamagedBatch, LogKey, StorageError, StoredBatch, info_of
from kohort.storage.sqlite_file import BUSY_MS, DatabaseFile
from kohort.storage.sqlite_format import LogRow
from kohort.storage.sqlite_rows import BatchRows, load_log


class SqliteReader:
    """A `LogReader`. The first call connects."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._own: _OwnConnection | None = None

    def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            with suppress(sqlite3.Error):
                own.db.close()

    @contextmanager
    def _view(self, log: LogKey) -> Iterator[_View]:
        """One log, as of one commit."""
        with self._file.errors("read"):
            try:
                own = self._own = self._own or _OwnConnection(self._file)
                own.db.execute("BEGIN")
                try:
                    yield _View(own, log)
                finally:
                    if own.db.in_transaction:
                        own.db.execute("ROLLBACK")
            except (DamagedBatch, GeneratorExit):
                raise
            except BaseException:
                self.close()
                raise

    def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int = NO_END) -> list[StoredBatch]:
        with self._view(log) as view:
            return view.read(offset, max_bytes, end_offset)

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        with self._view(log) as view:
            yield from view.batches(offset)

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        with self._view(log) as view:
            return view.first_at_or_after(timestamp)

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        with self._view(log) as view:
            return view.max_timestamp()


class _OwnConnection(DatabaseFile):
    def __init__(self, file: DatabaseFile) -> None:
        super().__init__(file.path)
        self._file = file
        where = f"{file.path.as_uri()}?mode=rw"  # which creates no file; a reader has to lock bytes of kohort.db-shm
        self.db = sqlite3.connect(
            where, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
        )
        self.db.execute("PRAGMA query_only = ON")
        self.db.execute("PRAGMA cell_size_check = ON")
        self.db.execute("PRAGMA trusted_schema = OFF")

    def damaged(self, what: str) -> StorageError:
        return self._file.damaged(what)


class _View:
    """A log in a transaction; without batches if it does not exist."""

    def __init__(self, own: _OwnConnection, key: LogKey) -> None:
        self._own = own
        self._key = key
        self._log = load_log(own, key)
        self._rows = BatchRows(own, {} if self._log is None else {key: self._log})

    def read(self, offset: int, max_bytes: int, end_offset: int) -> list[StoredBatch]:
        found: list[StoredBatch] = []
        room = max_bytes
        for row, data in self._rows.walk_data(self._key, offset):
            room -= row.size
            if row.base_offset >= end_offset or (room < 0 and found):
                return found
            found.append(self._rows.load(row) if data is None else self._rows.batch(row, data))
            if room <= 0:
                return found
        if self._log is None or self._log.end_offset >= end_offset:
            return found
        for batch in self._gathered(self._log, offset):
            room -= len(batch.data)
            if batch.base_offset >= end_offset or (room < 0 and found):
                break
            found.append(batch)
            if room <= 0:
                break
        return found

    def batches(self, offset: int) -> Iterator[BatchInfo]:
        for row in self._rows.walk(self._key, offset):
            yield row.info()
        if self._log is not None:
            yield from map(info_of, self._gathered(self._log, offset))

    def first_at_or_after(self, timestamp: int) -> StoredBatch | None:
        if self._log is None:
            return None
        for row in self._rows.walk(self._key, self._rows.bisect_newest(self._log, timestamp)):
            if row.max_timestamp >= timestamp:
                return self._rows.load(row)
        return next((batch for batch in self._gathered(self._log) if batch.max_timestamp >= timestamp), None)

    def max_timestamp(self) -> BatchInfo | None:
        if self._log is None:
            return None
        infos = [*filter(None, [self._rows.newest_of(self._log)]), *map(info_of, self._gathered(self._log))]
        return max(infos, key=lambda info: info.max_timestamp, default=None)

    def _gathered(self, log: LogRow, offset: int = 0) -> list[StoredBatch]:
        rows = self._own.db.execute("SELECT id, data FROM gathered WHERE id > 0 ORDER BY id").fetchall()
        try:
            return [batch for batch in batches_of(log.id, rows) if batch.last_offset >= offset]
        except ValueError as error:
            raise self._own.damaged(str(error)) from None
