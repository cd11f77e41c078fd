"""Where logs begin and end: this node says it of its own logs, once a second, and learns it of the others.

Nothing but the lag of groups depends on it, which may be some seconds old.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kohort.broker.state import BrokerState
from kohort.storage.protocol import LogKey

if TYPE_CHECKING:
    from kohort.storage.postgres.engine import PostgresStorage

EVERY_S = 1.0
OVERLAP_S = 5.0
"""Rows that other nodes wrote up to this long before the last look are read again: they may have become visible
later."""


class LogEnds:
    def __init__(self, storage: PostgresStorage, state: BrokerState) -> None:
        self._storage = storage
        self._state = state
        self._told: dict[LogKey, tuple[int, int]] = {}
        self._looked_at = 0.0
        """0: everything is still to be read."""
        self._known: dict[LogKey, tuple[int, int]] = {}

    async def look(self) -> tuple[tuple[LogKey, int, int], ...]:
        """What is new of other nodes' logs; nothing if the last look was less than a second ago."""
        now = time.monotonic()
        if now - self._looked_at < EVERY_S:
            return ()
        own = {
            partition.log: (partition.start_offset, partition.high_watermark)
            for partition in self._state.topics.all_partitions()
        }
        changed = [(log, *ends) for log, ends in own.items() if self._told.get(log) != ends]
        topics = self._state.catalog.by_id
        gone = [log for log in self._told if log not in own and log.topic_id not in topics]
        within_s = now - self._looked_at + OVERLAP_S
        found = await asyncio.to_thread(self._storage.ends, changed, gone, within_s if self._looked_at else 1e9)
        if found is None:
            return ()
        self._told, self._looked_at = own, now
        others = {log: (start, end) for log, start, end in found if log not in own}
        new = tuple((log, *ends) for log, ends in others.items() if self._known.get(log) != ends)
        self._known = others
        return new
