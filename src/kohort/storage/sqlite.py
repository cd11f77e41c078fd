"""The SQLite engine: one file, `kohort.db`, one transaction and one sync a commit.

Tables: `logs` has a row a log; `batches` a row a record batch without its bytes, clustered by log and offset, so that
walking a log's batches reads no data; `batch_data` the bytes, in the order they were written. The view `log_batches`
joins them for people with an SQLite tool. Small appends of the broker's own records are first stored in `gathered`
(gathered.py).

Settings, and why:
- WAL with synchronous=FULL: a commit appends to the WAL and syncs it once; it survives power loss.
- page_size 8192: a turn that writes one small batch touches about four pages, so the WAL grows with the page size; a
  batch of a megabyte is a chain of overflow pages, so small pages cost there. Of 4, 8 and 16 KiB: small commits took
  the same time (WAL bytes 1 : 2 : 4), batches of 1 MB went at 190, 240 and 340 MB/s.
- Checkpoints (copying the WAL into the file, two syncs) are done by a thread with a connection of its own: SQLite
  lets a PASSIVE checkpoint run beside a writer, so a commit hardly ever waits for one.

Damage. SQLite detects only some damage: its pages have no checksum. So every row of `logs` and `batches` has a CRC-32C
over its columns, a batch's bytes are compared with its columns and with their own CRC-32C when they are read, and every
row says at which offset the next one begins (`next_offset`; for the last row, the log's end), so that a missing row is
noticed. Reading batches gives what was written or raises StorageError. Not covered are the index by producer (a lost
entry would hide a repeated batch; open and aborted transactions are counted) and a whole log that is missing: the
broker notices that, since its metadata names the log.

Trimmed and deleted batches leave the log at once and the file later, a few with each commit (`purges`).

One process at a time: an flock on `kohort.lock` in the data directory, which the kernel drops when the process dies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kohort.storage.check import Extent, check_operations
from kohort.storage.checkpoint import Checkpointer
from kohort.storage.directory import WalFrames
from kohort.storage.protocol import (
    ABORT_MARKER,
    Append,
    CreateLog,
    DeleteLog,
    Fenced,
    KeepProducers,
    Lease,
    Log,
    LogKey,
    NoLog,
    Operation,
    Replace,
    StorageError,
    StoredBatch,
    Trim,
    opened,
)
from kohort.storage.sqlite_file import FILE_NAME, SqliteFile
from kohort.storage.sqlite_format import (
    FORMAT_VERSION,
    INSERT_BATCHES,
    INSERT_GATHERED,
    IS_ABORT,
    PAGE_SIZE,
    BatchRow,
    LogRow,
    upgrade,
)
from kohort.storage.sqlite_reader import SqliteReader
from kohort.storage.sqlite_reads import SqliteReads

PURGED_BATCHES = 2000
PURGED_BYTES = 8 * 1024 * 1024
"""The most that a commit deletes of trimmed and deleted logs: some ten milliseconds of work."""
GATHERED_BYTES = 256 * 1024
"""Gathered batches beyond this size are moved into their logs: a few milliseconds of work."""


class SqliteStorage(SqliteReads):
    """Opens (or creates) the data directory `data_dir`; raises StorageError when it cannot be used. `failed` is called
    in a thread with an error that ends the use of the engine between two commits."""

    _file: SqliteFile

    def __init__(
        self, data_dir: Path, log: Log | None = None, failed: Callable[[Exception], None] = lambda error: None
    ) -> None:
        self._file = SqliteFile(Path(data_dir))
        self.path = self._file.path
        self._failed = False
        self._lease = Lease(0)
        try:
            wal = WalFrames(self.path.with_name(FILE_NAME + "-wal"))
            with self._file.errors("open"):
                self._file.open()
                self._db = self._file.db
                try:
                    self._load(wal)
                    self._checkpointer = Checkpointer(self._file, log or NoLog(), failed)
                except BaseException:
                    self._db.close()
                    raise
        except BaseException:
            self._file.release()
            raise

    # -- opening and closing

    def _load(self, wal: WalFrames) -> None:
        self._load_logs()
        self._file.watch()
        if wal.commit_ends and wal.lost(self._file.watched.replayed_frames()):
            raise self._file.damaged("its write-ahead log has a bad frame, and synced commits after it")
        if self._file.version < FORMAT_VERSION:
            self._db.executescript(f"BEGIN IMMEDIATE; {upgrade(self._file.version)} COMMIT;")
        self._load_gathered()
        row = self._db.execute("SELECT max(id) FROM batch_data").fetchone()
        self._next_data_id = (row[0] or 0) + 1
        self._new_data: list[tuple[int, bytes]] = []
        self._new_rows: list[tuple[int, ...]] = []
        """Rows of the commit under way that are not written yet."""
        self._new_bytes = 0
        """Bytes of the batches that the present commit has put into their logs."""
        # A deleted log's number is not given again before its batches are purged.
        taken = [*(log.id for log in self._logs.values()), *self._purges]
        self._next_log_id = max(taken, default=0) + 1

    def close(self) -> None:
        if not self._file.closed:
            self._checkpointer.stop()
            self._file.close()

    def abandon(self) -> None:
        """A commit waits for no other machine."""

    def reader(self) -> SqliteReader:
        return SqliteReader(self._file)

    # -- writing

    def acquire(self) -> Lease:
        self._lease = Lease(self._lease + 1)
        return self._lease

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        if lease != self._lease:
            raise Fenced
        if self._failed:
            raise StorageError(f"an earlier write to {self.path} failed; restart kohort to go on")
        check_operations(operations, self._extent)
        if not operations:
            return
        changed: dict[LogKey, LogRow] = {}
        before = self._next_data_id
        self._checkpointer.before_commit()
        try:
            with self._file.errors("write to"):
                self._db.execute("BEGIN IMMEDIATE")
                gathered = self._gathered.add(operations, self._logs)  # a turn of commits is nothing else
                for operation in operations[gathered:]:
                    self._gather_or_apply(operation, changed)
                if self._gathered.size > GATHERED_BYTES:
                    self._move_gathered(changed, join=True)
                self._write_rows()
                if self._purges:
                    self._purge()
                if changed:
                    self._db.executemany(
                        "INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        [log.row() for log in changed.values()],
                    )
                rows = self._gathered.rows()
                if rows:
                    self._db.executemany(INSERT_GATHERED, rows)
                self._db.execute("COMMIT")
                self._file.watched.check_database()
                written = self._new_bytes + sum(len(data) for _, data in rows)
                pages = 2 + len(rows) + len(changed) + (self._next_data_id - before)
                self._checkpointer.after_commit(self._db, written + pages * PAGE_SIZE)
                self._new_bytes = 0
        except BaseException:
            # Fail-stop: memory and file may differ from here on, so nothing more is written.
            self._failed = True
            with suppress(sqlite3.Error):  # the transaction was never committed: a restart recovers without this
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    def _extent(self, key: LogKey) -> Extent | None:
        log = self._logs.get(key)
        if log is None:
            return None
        gathered = self._gathered.logs.get(key)
        return Extent(log.start_offset, log.end_offset if gathered is None else gathered.end_offset)

    def _gather_or_apply(self, operation: Operation, changed: dict[LogKey, LogRow]) -> None:
        if self._gathered.add((operation,), self._logs):
            return
        key = operation.log
        if key in self._gathered.logs:
            # The batches are not joined, because the operation refers to batches as they were read.
            self._move_gathered(changed, join=False)
        self._apply(operation, changed)

    def _move_gathered(self, changed: dict[LogKey, LogRow], *, join: bool) -> None:
        logs, zero = self._gathered.take(join=join)
        for key, batches in logs.items():
            log = changed[key] = self._logs[key]
            self._append(log, batches)
        self._db.execute("DELETE FROM gathered WHERE id > 0")
        self._db.executemany(INSERT_GATHERED, zero)

    def _apply(self, operation: Operation, changed: dict[LogKey, LogRow]) -> None:
        key = operation.log
        if not isinstance(operation, Append):
            self._write_rows()
        match operation:
            case CreateLog(start_offset=start, open_transactions=opened_before):
                self._logs[key] = changed[key] = LogRow(self._next_log_id, key, start, start, 0, start, opened_before)
                self._next_log_id += 1
                return
            case DeleteLog():
                log = self._logs.pop(key)
                changed.pop(key, None)
                self._db.execute("DELETE FROM logs WHERE id = ?", (log.id,))
                self._producers.keep(log, b"")
                self._purge_later(log.id, log.end_offset)
                return
        log = changed[key] = self._logs[key]
        match operation:
            case KeepProducers(data=data):
                self._producers.keep(log, data)
            case Append(batches=batches):
                self._append(log, batches)
            case Trim(start_offset=start):
                self._trim(log, start)
            case Replace():
                self._replace(log, operation)

    def _append(self, log: LogRow, batches: Sequence[StoredBatch]) -> None:
        if not batches:
            return
        if log.newest is None:
            self._write_rows()
            tail = self._rows.last_row(log)
            log.newest = batches[0].max_timestamp if tail is None else tail.newest_timestamp
        if batches[0].base_offset != log.end_offset:
            self._write_rows()
            tail = self._rows.last_row(log)
            if tail is not None:
                self._set_next(tail, batches[0].base_offset)
            else:
                log.first_batch = batches[0].base_offset
        ends = [batch.base_offset for batch in batches[1:]] + [batches[-1].last_offset + 1]
        log.newest = self._insert(log, batches, ends, log.newest)
        log.open_transactions += sum(map(opened, batches))
        log.end_offset = batches[-1].last_offset + 1

    def _insert(self, log: LogRow, batches: Sequence[StoredBatch], ends: Sequence[int], newest: int) -> int:
        """`newest` is the largest timestamp before these batches; the largest up to their end is returned.

        Consecutive appends are written together: a turn of many groups' commits appends to many logs."""
        for batch, end in zip(batches, ends, strict=True):
            newest = max(newest, batch.max_timestamp)
            size = len(batch.data)
            self._new_data.append((self._next_data_id, batch.data))
            row = BatchRow(
                log.id,
                batch.base_offset,
                batch.last_offset,
                end,
                batch.max_timestamp,
                newest,
                size,
                batch.producer_id,
                batch.leader_epoch,
                self._next_data_id,
                batch.kind,
                batch.transaction_start,
                batch.coordinator_epoch,
            )
            if batch.kind == ABORT_MARKER:
                log.aborts += batch.transaction_start >= 0
            self._new_rows.append(row.values())
            self._next_data_id += 1
            self._new_bytes += size
            log.size += size
        return newest

    def _write_rows(self) -> None:
        if self._new_rows:
            self._db.executemany("INSERT INTO batch_data VALUES (?, ?)", self._new_data)
            self._db.executemany(INSERT_BATCHES, self._new_rows)
            self._new_data.clear()
            self._new_rows.clear()

    def _trim(self, log: LogRow, start_offset: int) -> None:
        if start_offset <= log.start_offset:
            return
        log.start_offset = start_offset
        first = self._rows.row(
            log,
            "AND base_offset >= ? AND last_offset >= ? ORDER BY base_offset LIMIT 1",
            (log.first_batch, start_offset),
        )
        first_batch = first.base_offset if first is not None else log.end_offset
        gone = self._db.execute(
            f"SELECT total(size), total({IS_ABORT}) FROM batches "
            "WHERE log_id = ? AND base_offset >= ? AND base_offset < ?",
            (log.id, log.first_batch, first_batch),
        ).fetchone()
        log.size -= int(gone[0])
        log.aborts -= int(gone[1])
        log.newest = None
        log.first_batch = first_batch
        self._purge_later(log.id, first_batch)

    def _purge_later(self, log_id: int, below_offset: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO purges VALUES (?, ?)", (log_id, below_offset))
        self._purges[log_id] = below_offset

    def _purge(self) -> None:
        """Delete some of the purged batches. To delete a whole log in one commit could take seconds."""
        log_id, below_offset = next(iter(self._purges.items()))
        rows = self._db.execute(
            "SELECT base_offset, data_id, size FROM batches WHERE log_id = ? AND base_offset < ? "
            "ORDER BY base_offset LIMIT ?",
            (log_id, below_offset, PURGED_BATCHES),
        ).fetchall()
        if not rows:
            self._db.execute("DELETE FROM purges WHERE log_id = ?", (log_id,))
            del self._purges[log_id]
            return
        size, count = 0, 0
        while count < len(rows) and size < PURGED_BYTES:
            size += rows[count][2]
            count += 1
        self._db.executemany("DELETE FROM batch_data WHERE id = ?", [(row[1],) for row in rows[:count]])
        self._db.execute("DELETE FROM batches WHERE log_id = ? AND base_offset <= ?", (log_id, rows[count - 1][0]))

    def _replace(self, log: LogRow, operation: Replace) -> None:
        before = self._rows.row(
            log,
            "AND base_offset >= ? AND base_offset < ? ORDER BY base_offset DESC LIMIT 1",
            (log.first_batch, operation.first),
        )
        old_last = self._rows.row(log, "AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1", (operation.last,))
        if old_last is None or old_last.base_offset < max(operation.first, log.first_batch):
            raise StorageError(f"Replace: no batch begins between {operation.first} and {operation.last}")
        self._remove(log, max(operation.first, log.first_batch), operation.last)
        batches = operation.batches
        begin = batches[0].base_offset if batches else old_last.next_offset
        if before is not None:
            self._set_next(before, begin)
        else:
            log.first_batch = begin
        # The batches after the range rely on `newest_timestamp` never falling: keep the old bound.
        if any(batch.max_timestamp > old_last.newest_timestamp for batch in batches):
            raise StorageError("Replace: its batches are newer than those they replace")
        if batches:
            ends = [batch.base_offset for batch in batches[1:]] + [old_last.next_offset]
            self._insert(log, batches, ends, before.newest_timestamp if before is not None else -1)
            self._write_rows()

    def _remove(self, log: LogRow, first: int, last: int) -> None:
        chosen = "FROM batches WHERE log_id = ? AND base_offset BETWEEN ? AND ?"
        arguments = (log.id, first, last)
        gone = self._db.execute(f"SELECT total(size), total({IS_ABORT}) {chosen}", arguments).fetchone()
        self._db.execute(f"DELETE FROM batch_data WHERE id IN (SELECT data_id {chosen})", arguments)
        self._db.execute(f"DELETE {chosen}", arguments)
        log.size -= int(gone[0])
        log.aborts -= int(gone[1])
        log.newest = None

    def _set_next(self, row: BatchRow, next_offset: int) -> None:
        values = row._replace(next_offset=next_offset).values()
        self._db.execute(
            "UPDATE batches SET next_offset = ?, checksum = ? WHERE log_id = ? AND base_offset = ?",
            (next_offset, values[-1], row.log_id, row.base_offset),
        )
