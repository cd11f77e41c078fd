"""A consumer for tests: reads what it owns from where the group is, keeps it, and commits before it gives up."""

from __future__ import annotations

import asyncio
from typing import Any

from kohort.client import GroupConsumer, NotOwned
from kohort.client.consumer.ownership import Partitions
from kohort.client.metadata import TopicPartition
from kohort.client.records import records


class Working(GroupConsumer):
    def __init__(self, servers: str, group: str, topics: list[str] | None = None, **settings: Any) -> None:
        settings.setdefault("session_timeout_ms", 10_000)
        settings.setdefault("rebalance_timeout_ms", 20_000)
        super().__init__(servers, group, **settings)
        self.topics = topics
        self.pattern: str | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.values: list[bytes] = []
        self.told: list[tuple[str, Partitions]] = []

    @property
    def mine(self) -> set[TopicPartition]:
        return set(self.positions)

    async def on_assigned(self, partitions: Partitions) -> None:
        self.told.append(("assigned", partitions))
        committed = await self.committed(partitions)
        self.positions |= {place: committed[place].offset if place in committed else 0 for place in partitions}

    async def on_revoked(self, partitions: Partitions) -> None:
        self.told.append(("revoked", partitions))
        done = {place: self.positions.pop(place) for place in partitions}
        await self.commit(done)

    def on_lost(self, partitions: Partitions) -> None:
        self.told.append(("lost", partitions))
        for place in partitions:
            self.positions.pop(place, None)

    async def run(self) -> None:
        async with self:
            self.subscribe(self.topics or (), pattern=self.pattern)
            while True:
                await self.read()

    async def read(self) -> None:
        if not self.positions:
            await asyncio.sleep(0.01)
        try:
            fetched = await self.fetch(dict(self.positions), max_wait_ms=20)
        except NotOwned:
            return  # given up meanwhile
        for one in fetched:
            place = (one.topic, one.partition)
            if place not in self.positions:
                continue
            for record in records(one, self.positions[place]):
                self.values.append(record.value or b"")
                self.positions[place] = record.offset + 1
