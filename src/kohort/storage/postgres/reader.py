"""Reads of batches: where they are is in memory, their data comes from the database.

A read has READ_S, and may fail: the next one connects again. What the index says and the database has can differ while
a commit is under way; then the database counts. They also differ if another node has taken over and compacted the log
while this one was paused. So a missing row fails the read if this node does not hold its lease. Otherwise a missing or
a changed row is damage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any

import asyncpg

from kohort.storage.intact import is_intact
from kohort.storage.postgres.batch_index import LogIndex
from kohort.storage.postgres.connections import NO_ANSWER, READ_S, NotThePrimary, Server
from kohort.storage.postgres.io_thread import IoThread
from kohort.storage.protocol import (
    NO_END,
    BatchInfo,
    DamagedBatch,
    DamagedFile,
    LogKey,
    StorageError,
    StoredBatch,
)

_DATA = """
SELECT base_offset, last_offset, max_timestamp, data, producer_id, leader_epoch, kind, transaction_start,
       coordinator_epoch
FROM kohort.batch WHERE log = $1 AND base_offset BETWEEN $2 AND $3 ORDER BY base_offset
"""
INFOS_A_LOOK = 256


class Logs:
    """The index of all logs, and the lock that a commit holds while it changes the index."""

    def __init__(self, by_key: dict[LogKey, LogIndex]) -> None:
        self.by_key = by_key
        self.lock = Lock()
        self.version = 0
        """Odd while a commit is under way: the index is ahead of the database."""


class PostgresReader:
    """A `LogReader` with a connection of its own. The first read connects."""

    def __init__(
        self,
        io: IoThread,
        logs: Logs,
        dial: Callable[[], Awaitable[tuple[Any, Server]]],
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`holds`: whether the lease is held, by the node's own clock."""
        self._holds = holds
        self._io = io
        self._logs = logs
        self._dial = dial
        self._connection: asyncpg.Connection[Any] | None = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(StorageError):
                self._io.wait(_terminate(connection))

    def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int = NO_END) -> list[StoredBatch]:
        with self._logs.lock:
            held = self._logs.by_key.get(log)
            if held is None:
                return []
            begin, end = held.run(offset, max_bytes, end_offset)
            version = self._logs.version
            infos = [held.info_at(position) for position in range(begin, end)]
        return self._load(held.no, infos, version) if infos else []

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        while True:
            with self._logs.lock:
                held = self._logs.by_key.get(log)
                if held is None:
                    return
                begin = held.index_of(offset)
                infos = [held.info_at(position) for position in range(begin, min(begin + INFOS_A_LOOK, len(held)))]
            if not infos:
                return
            yield from infos
            offset = infos[-1].last_offset + 1

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        with self._logs.lock:
            held = self._logs.by_key.get(log)
            position = None if held is None else held.first_at_or_after(timestamp)
            if held is None or position is None:
                return None
            version, infos = self._logs.version, [held.info_at(position)]
        found = self._load(held.no, infos, version)
        return found[0] if found else None

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        with self._logs.lock:
            held = self._logs.by_key.get(log)
            return None if held is None else held.max_timestamp()

    def _load(self, no: int, infos: list[BatchInfo], version: int) -> list[StoredBatch]:
        rows = self._io.wait(self._fetch(no, infos[0].base_offset, infos[-1].base_offset))
        found = [StoredBatch(*row) for row in rows]
        if [batch.base_offset for batch in found] != [info.base_offset for info in infos]:
            with self._logs.lock:
                is_settled = version == self._logs.version and not version % 2
            if is_settled and not self._holds():
                raise StorageError("the database gives no batches: the lease is not held")
            if is_settled:
                raise DamagedFile(
                    f"the database lacks rows of log {no} between the offsets {infos[0].base_offset} and "
                    f"{infos[-1].last_offset}"
                )
        for batch in found:
            if not is_intact(batch, len(batch.data)):
                raise DamagedBatch(f"the batch at offset {batch.base_offset} of log {no} fails its checksum")
        return found

    async def _fetch(self, no: int, first: int, last: int) -> list[Any]:
        try:
            async with asyncio.timeout(READ_S):
                if self._connection is None:
                    self._connection, _ = await self._dial()
                return list(await self._connection.fetch(_DATA, no, first, last))
        except (*NO_ANSWER, NotThePrimary, asyncpg.PostgresError) as error:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            raise StorageError(f"the database gives no batches: {str(error) or type(error).__name__}") from error


async def _terminate(connection: asyncpg.Connection[Any]) -> None:
    connection.terminate()
