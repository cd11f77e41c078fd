"""Reads the tables of logs and batches into memory, at the start."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import asyncpg

from kohort.storage.postgres.batch_index import LogIndex
from kohort.storage.protocol import LogKey
from kohort.storage.slots import slot_of

ROWS_A_FETCH = 5_000

_LOGS = """
SELECT no, topic_id, partition, start_offset, end_floor, removed_opened, kept.data
FROM kohort.log LEFT JOIN kohort.kept_producers kept ON kept.log = no WHERE NOT gone
"""
_OF_SOME = " AND log.no = ANY ($1)"
_BATCHES = """
SELECT batch.log, base_offset, last_offset, max_timestamp, producer_id, transaction_start, leader_epoch,
       coordinator_epoch, base_sequence, producer_epoch, kind, octet_length(data)
FROM kohort.batch JOIN kohort.log ON log.no = batch.log
WHERE NOT log.gone AND base_offset >= log.first_batch
"""
_ORDER = " ORDER BY batch.log, base_offset"


async def load(connection: asyncpg.Connection[Any], slots: Collection[int] | None = None) -> dict[LogKey, LogIndex]:
    """All logs, or those of some slots. Nobody may write to them meanwhile."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        some, arguments = "", []
        if slots is not None:
            keys = await connection.fetch("SELECT no, topic_id, partition FROM kohort.log WHERE NOT gone")
            some = _OF_SOME
            arguments = [[no for no, *key in keys if slot_of(LogKey(*key)) in slots]]
        by_number: dict[int, LogIndex] = {}
        for no, topic_id, partition, start, end, removed, kept in await connection.fetch(_LOGS + some, *arguments):
            log = by_number[no] = LogIndex(no, LogKey(topic_id, partition), start, end, removed)
            log.kept_producers = kept or b""
        async for row in connection.cursor(_BATCHES + some + _ORDER, *arguments, prefetch=ROWS_A_FETCH):
            by_number[row[0]].add(tuple(row)[1:])
    return {log.key: log for log in by_number.values()}
