"""The reads of `Storage`: from the index in memory, and data from the database.

`PostgresStorage` reads what it writes, `UnservedDatabase` a database that nobody writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.storage.postgres.batch_index import LogIndex
from kohort.storage.postgres.reader import Logs, PostgresReader
from kohort.storage.protocol import BatchInfo, LogInfo, LogKey, ProducerBatch, StoredBatch


class PostgresReads:
    """Set `_logs` and `_reader`."""

    _logs: Logs
    _reader: PostgresReader

    def _held(self, key: LogKey) -> LogIndex | None:
        return self._logs.by_key.get(key)

    def logs(self) -> list[LogInfo]:
        return [log.info() for _, log in sorted(self._logs.by_key.items())]

    def log_info(self, log: LogKey) -> LogInfo | None:
        held = self._held(log)
        return None if held is None else held.info()

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        return self._reader.read(log, offset, max_bytes)

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        held = self._held(log)
        return iter(()) if held is None else held.infos(offset)

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        return self._reader.first_at_or_after(log, timestamp)

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        held = self._held(log)
        return None if held is None else held.max_timestamp()

    def producer_batches(self, log: LogKey, producer_id: int, limit: int) -> list[ProducerBatch]:
        held = self._held(log)
        return [] if held is None else held.producer_batches(producer_id, limit)

    def last_of_producer(self, log: LogKey, producer_id: int) -> ProducerBatch | None:
        held = self._held(log)
        return None if held is None else held.last_of_producer(producer_id)

    def producers_ending_before(self, log: LogKey, offset: int) -> list[BatchInfo]:
        held = self._held(log)
        return [] if held is None else held.producers_ending_before(offset)

    def open_transactions(self, log: LogKey) -> list[BatchInfo]:
        held = self._held(log)
        return [] if held is None else held.open_transaction_batches()

    def aborted_transactions(self, log: LogKey) -> list[BatchInfo]:
        held = self._held(log)
        return [] if held is None else held.aborted_transactions()

    def kept_producers(self, log: LogKey) -> bytes:
        held = self._held(log)
        return b"" if held is None else held.kept_producers

    def producers(self, log: LogKey, after: int = -1, limit: int = 1 << 31) -> list[int]:
        held = self._held(log)
        return [] if held is None else held.producers(after, limit)
