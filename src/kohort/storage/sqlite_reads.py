"""Reads of the SQLite engine: the tables as they are loaded when a database is opened, and the reads of `Storage`.

`SqliteStorage` reads what it writes, `StoredFile` a database that nobody writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from kohort.storage.gathered import Gathered, loaded
from kohort.storage.protocol import BatchInfo, LogInfo, LogKey, ProducerBatch, StoredBatch, info_of
from kohort.storage.sqlite_file import DatabaseFile
from kohort.storage.sqlite_format import LogRow
from kohort.storage.sqlite_producers import ProducerRows
from kohort.storage.sqlite_rows import BatchRows, load_logs


class SqliteReads:
    """Set `_file` and `_db`, then call `_load_logs` and `_load_gathered`."""

    is_ours: Callable[[], bool] | None = None

    _file: DatabaseFile
    _db: sqlite3.Connection
    _gathered: Gathered

    def _load_logs(self) -> None:
        self._logs: dict[LogKey, LogRow] = load_logs(self._file)
        self._rows = BatchRows(self._file, self._logs)
        self._producers = ProducerRows(self._file, self._logs, self._rows)
        self._purges = self._load_purges()

    def _load_purges(self) -> dict[int, int]:
        purges: dict[int, int] = dict(self._db.execute("SELECT log_id, below_offset FROM purges"))
        for log in self._logs.values():
            if purges.get(log.id, 0) > log.first_batch:
                raise self._file.damaged("the table of purges names batches that a log still has")
        return purges

    def _load_gathered(self) -> None:
        keys = {log.id: log.key for log in self._logs.values()}
        ends = {log.key: log.end_offset for log in self._logs.values()}
        rows = self._db.execute("SELECT id, data FROM gathered ORDER BY id").fetchall()
        try:
            self._gathered = loaded(rows, keys, ends)
        except ValueError as error:
            raise self._file.damaged(str(error)) from None

    # -- reading

    def logs(self) -> list[LogInfo]:
        return [self._info_of(log) for _, log in sorted(self._logs.items(), key=lambda item: item[0])]

    def log_info(self, log: LogKey) -> LogInfo | None:
        held = self._logs.get(log)
        return None if held is None else self._info_of(held)

    def _info_of(self, log: LogRow) -> LogInfo:
        gathered = self._gathered.logs.get(log.key)
        if gathered is None:
            return LogInfo(log.key, log.start_offset, log.end_offset, log.size, log.open_transactions)
        size = log.size + gathered.size
        return LogInfo(log.key, log.start_offset, gathered.end_offset, size, log.open_transactions)

    def _gathered_since(self, log: LogKey, offset: int) -> list[StoredBatch]:
        gathered = self._gathered.logs.get(log)
        return [] if gathered is None else gathered.since(offset)

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        found: list[StoredBatch] = []
        room = max_bytes
        with self._file.errors("read"):
            for row, data in self._rows.walk_data(log, offset):
                room -= row.size
                if room < 0 and found:
                    return found
                found.append(self._rows.load(row) if data is None else self._rows.batch(row, data))
                if room <= 0:
                    return found
        for batch in self._gathered_since(log, offset):
            room -= len(batch.data)
            if room < 0 and found:
                break
            found.append(batch)
            if room <= 0:
                break
        return found

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        with self._file.errors("read"):
            for row in self._rows.walk(log, offset):
                yield row.info()
        for batch in self._gathered_since(log, offset):
            yield info_of(batch)

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        held = self._logs.get(log)
        if held is None:
            return None
        with self._file.errors("read"):
            for row in self._rows.walk(log, self._rows.bisect_newest(held, timestamp)):
                if row.max_timestamp >= timestamp:
                    return self._rows.load(row)
        return next((batch for batch in self._gathered_since(log, 0) if batch.max_timestamp >= timestamp), None)

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        held = self._logs.get(log)
        if held is None:
            return None
        with self._file.errors("read"):
            stored = self._rows.newest_of(held)
        infos = [info for info in (stored, *map(info_of, self._gathered_since(log, 0))) if info is not None]
        return max(infos, key=lambda info: info.max_timestamp, default=None)

    def producer_batches(self, log: LogKey, producer_id: int, limit: int) -> list[ProducerBatch]:
        with self._file.errors("read"):
            return self._producers.batches(log, producer_id, limit)

    def last_of_producer(self, log: LogKey, producer_id: int) -> ProducerBatch | None:
        with self._file.errors("read"):
            return self._producers.last(log, producer_id)

    def producers_ending_before(self, log: LogKey, offset: int) -> list[BatchInfo]:
        with self._file.errors("read"):
            return self._producers.ending_before(log, offset)

    def open_transactions(self, log: LogKey) -> list[BatchInfo]:
        with self._file.errors("read"):
            return self._producers.open_transactions(log)

    def aborted_transactions(self, log: LogKey) -> list[BatchInfo]:
        with self._file.errors("read"):
            return self._producers.aborted_transactions(log)

    def kept_producers(self, log: LogKey) -> bytes:
        with self._file.errors("read"):
            return self._producers.kept(log)

    def producers(self, log: LogKey, after: int = -1, limit: int = 1 << 31) -> list[int]:
        with self._file.errors("read"):
            return self._producers.ids(log, after, limit)
