"""Reads the table of batches by producer: the last batches of one, open and aborted transactions.

The index by producer has an entry a batch that names a producer, and the index of aborts one a marker that aborted
something. A log's row has the numbers of its open transactions and of its aborts. A log without them is not searched,
and a number that does not match is damage of an index. The distinct producers of a log are found by jumping from one to
the next one.

The statements name their index, and say IS where = would do: SQLite puts the value of `producer_id = ?` into the other
condition, which the index needs, and reads the entries of all producers (tests/storage/test_plans.py).

`kept_producers` has a row a log: the CRC-32C of the log's number and the content, and the content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from kohort.storage.protocol import TRANSACTIONAL, BatchInfo, LogKey, ProducerBatch, of_producer
from kohort.storage.sqlite_file import DatabaseFile
from kohort.storage.sqlite_format import COLUMNS, GATHERED_CRC, IS_ABORT, BatchRow, LogRow, gathered_checksum
from kohort.storage.sqlite_rows import BatchRows

_OF_PRODUCER = (
    f"SELECT {COLUMNS} FROM batches INDEXED BY batches_by_producer "
    "WHERE log_id = ? AND producer_id IS ? AND producer_id >= 0 AND base_offset >= ? "
)
_ABORTS = f"SELECT {COLUMNS} FROM batches INDEXED BY aborts"
_RECORDS = f"AND kind <= {TRANSACTIONAL}"
_NEXT_PRODUCER = (
    "SELECT producer_id FROM batches WHERE log_id = ? AND producer_id > ? AND producer_id >= 0 "
    "ORDER BY producer_id LIMIT 1"
)


class ProducerRows:
    def __init__(self, file: DatabaseFile, logs: Mapping[LogKey, LogRow], rows: BatchRows) -> None:
        self._file = file
        self._db = file.db
        self._logs = logs
        self._rows = rows

    def batches(self, log: LogKey, producer_id: int, limit: int) -> list[ProducerBatch]:
        held = self._logs.get(log)
        if held is None or limit <= 0 or producer_id < 0:
            return []
        rows = self._db.execute(
            f"{_OF_PRODUCER}{_RECORDS} ORDER BY base_offset DESC LIMIT ?",
            (held.id, producer_id, held.first_batch, limit),
        ).fetchall()
        return [of_producer(self._rows.load(self._rows.checked(row))) for row in reversed(rows)]

    def last(self, log: LogKey, producer_id: int) -> ProducerBatch | None:
        held = self._logs.get(log)
        row = None if held is None or producer_id < 0 else self._last(held, producer_id)
        return None if row is None else of_producer(self._rows.load(row))

    def ids(self, log: LogKey, after: int, limit: int) -> list[int]:
        held = self._logs.get(log)
        return [] if held is None else [row.producer_id for row in islice(self._lasts(held, after), limit)]

    def ending_before(self, log: LogKey, offset: int) -> list[BatchInfo]:
        held = self._logs.get(log)
        if held is None:
            return []
        # With the plus sign, the rows are read in the order of their offsets: only those below `offset`.
        ids = self._db.execute(
            "SELECT DISTINCT producer_id FROM batches WHERE log_id = ? AND base_offset >= ? AND base_offset < ? "
            "AND +producer_id >= 0",
            (held.id, held.first_batch, offset),
        ).fetchall()
        found = []
        for (producer_id,) in sorted(ids):
            records = self._last(held, producer_id, records=True)
            if records is None or records.last_offset < offset:
                last = self._last(held, producer_id)
                found += [last.info()] if last is not None else []
        return found

    def open_transactions(self, log: LogKey) -> list[BatchInfo]:
        held = self._logs.get(log)
        if held is None or not held.open_transactions:
            return []
        return [row.info() for row in self._lasts(held) if row.kind == TRANSACTIONAL]

    def aborted_transactions(self, log: LogKey) -> list[BatchInfo]:
        held = self._logs.get(log)
        if held is None or not held.aborts:
            return []
        rows = self._db.execute(
            f"{_ABORTS} WHERE log_id = ? AND base_offset >= ? AND {IS_ABORT} ORDER BY base_offset",
            (held.id, held.first_batch),
        ).fetchall()
        if len(rows) != held.aborts:
            raise self._file.damaged(f"{held.aborts - len(rows)} entries of the index of aborts are missing")
        return [self._rows.checked(row).info() for row in rows]

    def kept(self, log: LogKey) -> bytes:
        held = self._logs.get(log)
        if held is None:
            return b""
        found = self._db.execute("SELECT data FROM kept_producers WHERE log_id = ?", (held.id,)).fetchone()
        if found is None:
            return b""
        data: Any = found[0]
        if not isinstance(data, bytes) or data[: GATHERED_CRC.size] != gathered_checksum(
            held.id, data[GATHERED_CRC.size :]
        ):
            raise self._file.damaged("a row of the table of kept producers does not match its checksum")
        return data[GATHERED_CRC.size :]

    def keep(self, held: LogRow, data: bytes) -> None:
        """Part of a commit."""
        if not data:
            self._db.execute("DELETE FROM kept_producers WHERE log_id = ?", (held.id,))
            return
        row = (held.id, gathered_checksum(held.id, data) + data)
        self._db.execute("INSERT OR REPLACE INTO kept_producers VALUES (?, ?)", row)

    def _lasts(self, held: LogRow, producer_id: int = -1) -> Iterator[BatchRow]:
        """The last batch of each producer above `producer_id`, by producer id."""
        while found := self._db.execute(_NEXT_PRODUCER, (held.id, producer_id)).fetchone():
            (producer_id,) = found
            row = self._last(held, producer_id)
            if row is not None:  # otherwise all its batches are trimmed, and wait for their deletion
                yield row

    def _last(self, held: LogRow, producer_id: int, *, records: bool = False) -> BatchRow | None:
        """The producer's last batch, or its last batch of records."""
        kinds = _RECORDS if records else ""
        values = self._db.execute(
            f"{_OF_PRODUCER}{kinds} ORDER BY base_offset DESC LIMIT 1", (held.id, producer_id, held.first_batch)
        ).fetchone()
        return None if values is None else self._rows.checked(values)
