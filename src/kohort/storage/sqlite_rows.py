"""Reads the table of logs, and rows of the table `batches`, in order and checked, with the bytes that belong to them.

Every row says where the next one begins, so a missing row is noticed. A row or a batch that does not match its checksum
raises StorageError and is never handed out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from kohort.storage.intact import is_intact
from kohort.storage.protocol import BatchInfo, DamagedBatch, LogKey, StoredBatch
from kohort.storage.sqlite_file import DatabaseFile
from kohort.storage.sqlite_format import COLUMNS, SELECT, BatchRow, LogRow, row_checksum

READ_AT_ONCE = 16 * 1024
"""Batches up to this size are read together with their row. A larger one is read once the reader has room for it:
otherwise a consumer that fetches a megabyte of large batches would have each of them read twice."""


_LOG_COLUMNS = "id, topic_id, partition, start_offset, end_offset, size, first_batch, checksum"


def load_logs(file: DatabaseFile) -> dict[LogKey, LogRow]:
    """The table of logs, of the format that was found. Raises StorageError for a damaged row."""
    transactions = "open_transactions, aborts" if file.version >= 3 else "0, 0"
    rows = file.db.execute(f"SELECT {_LOG_COLUMNS}, {transactions} FROM logs NOT INDEXED")
    return {log.key: log for log in (_log_row(file, row) for row in rows)}


def load_log(file: DatabaseFile, key: LogKey) -> LogRow | None:
    """One log of a file of the present format. Raises StorageError for a damaged row."""
    select = f"SELECT {_LOG_COLUMNS}, open_transactions, aborts FROM logs WHERE topic_id = ? AND partition = ?"
    row = file.db.execute(select, key).fetchone()
    return None if row is None else _log_row(file, row)


def _log_row(file: DatabaseFile, row: tuple[Any, ...]) -> LogRow:
    try:
        log = LogRow(row[0], LogKey(row[1], row[2]), row[3], row[4], row[5], row[6], row[8], row[9])
        intact = log.row() == row
    except (TypeError, struct.error):
        intact = False
    if not intact:
        raise file.damaged("a row of the table of logs does not match its checksum")
    return log


class BatchRows:
    def __init__(self, file: DatabaseFile, logs: Mapping[LogKey, LogRow]) -> None:
        self._file = file
        self._db = file.db
        self._logs = logs

    def newest_of(self, held: LogRow) -> BatchInfo | None:
        tail = self.last_row(held)
        if tail is None:
            return None
        begin = self.bisect_newest(held, tail.newest_timestamp)
        first = next(self.walk(held.key, begin))
        if first.max_timestamp == tail.newest_timestamp:
            return first.info()
        # The batch with that timestamp has been trimmed or compacted away: look at all that are left.
        return max((row.info() for row in self.walk(held.key, 0)), key=lambda info: info.max_timestamp)

    def walk(self, key: LogKey, offset: int) -> Iterator[BatchRow]:
        """Rows in order from the one that holds `offset` (or the next) on; raises when one is missing."""
        for row, _ in self._chain(key, offset, f"SELECT {COLUMNS} FROM batches"):
            yield row

    def walk_data(self, key: LogKey, offset: int) -> Iterator[tuple[BatchRow, Any]]:
        """The same with the bytes of small batches; None instead of the bytes of large ones. When the caller stops, at
        most one batch was read without being used."""
        data = f"CASE WHEN size <= {READ_AT_ONCE} THEN data END"
        joined = f"SELECT {COLUMNS}, {data} FROM batches CROSS JOIN batch_data ON batch_data.id = data_id"
        return self._chain(key, offset, joined)

    def _chain(self, key: LogKey, offset: int, select: str) -> Iterator[tuple[BatchRow, Any]]:
        log = self._logs.get(key)
        if log is None or offset >= log.end_offset:
            return
        expected = self._first_base(log, offset)
        rows = self._db.execute(
            f"{select} WHERE log_id = ? AND base_offset >= ? ORDER BY base_offset", (log.id, expected)
        )
        for values in rows:
            row = self.checked(values)
            if row.base_offset != expected:
                raise self._file.damaged(f"a batch at offset {expected} is missing")
            expected = row.next_offset
            yield row, values[-1]
        if expected != log.end_offset:
            raise self._file.damaged(f"a batch at offset {expected} is missing")

    def _first_base(self, log: LogRow, offset: int) -> int:
        """The base offset of the batch that holds `offset`, or of the next one."""
        if offset < log.first_batch:
            return log.first_batch
        holder = self.row(log, "AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1", (offset,))
        if holder is not None and holder.last_offset >= offset:
            return holder.base_offset
        expected = log.first_batch if holder is None else holder.next_offset
        if expected <= offset:
            raise self._file.damaged(f"a batch at offset {expected} is missing")
        return expected

    def bisect_newest(self, log: LogRow, timestamp: int) -> int:
        """The base offset of the first batch whose `newest_timestamp` is at or after `timestamp`, or the log's end."""
        low, high = log.first_batch, log.end_offset
        while low < high:
            row = self.row(log, "AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1", ((low + high) // 2,))
            if row is None:
                raise self._file.damaged(f"a batch at offset {log.first_batch} is missing")
            if row.newest_timestamp >= timestamp:
                high = max(row.base_offset, low)
            else:
                low = row.next_offset
        return low

    def last_row(self, log: LogRow) -> BatchRow | None:
        if log.first_batch >= log.end_offset:
            return None
        row = self.row(log, "ORDER BY base_offset DESC LIMIT 1", ())
        if row is None or row.next_offset != log.end_offset:
            raise self._file.damaged(f"the last batch before offset {log.end_offset} is missing")
        return row

    def row(self, log: LogRow, rest: str, arguments: tuple[int, ...]) -> BatchRow | None:
        values = self._db.execute(SELECT + rest, (log.id, *arguments)).fetchone()
        return None if values is None else self.checked(values)

    def checked(self, values: tuple[Any, ...]) -> BatchRow:
        try:
            intact = row_checksum(values) == values[13]
        except struct.error:
            intact = False
        if not intact:
            raise self._file.damaged("a row of the table of batches does not match its checksum")
        return BatchRow._make(values[:13])

    def load(self, row: BatchRow) -> StoredBatch:
        found = self._db.execute("SELECT data FROM batch_data WHERE id = ?", (row.data_id,)).fetchone()
        if found is None:
            raise self._file.damaged(f"the data of the batch at offset {row.base_offset} is missing")
        return self.batch(row, found[0])

    def batch(self, row: BatchRow, data: Any) -> StoredBatch:
        if not isinstance(data, bytes):
            raise self._damaged_batch(row)
        batch = StoredBatch(
            row.base_offset,
            row.last_offset,
            row.max_timestamp,
            data,
            row.producer_id,
            row.leader_epoch,
            row.kind,
            row.transaction_start,
            row.coordinator_epoch,
        )
        if not is_intact(batch, row.size):
            raise self._damaged_batch(row)
        return batch

    def _damaged_batch(self, row: BatchRow) -> DamagedBatch:
        return DamagedBatch(f"{self._file.path} is damaged: the batch at offset {row.base_offset} fails its checksum")
