"""Puts records into topics from an event loop. What is put while a request is under way goes together with the next
one.

The records are written by a `Cluster` in a thread, without idempotence: a retry after a lost answer may write a record
twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from functools import partial

from kohort.client.cluster import Cluster
from kohort.client.consumer.lookups import Lookups
from kohort.client.errors import check
from kohort.client.metadata import TopicPartition
from kohort.client.records.partitioner import partition_for_key
from kohort.wire.batches import NewRecord, encode_batch

MOST_BYTES = 500_000
"""Of keys and values of one partition in one request, about."""

Waiting = tuple[str, int | None, NewRecord, "asyncio.Future[TopicPartition]"]


class Puts:
    """Belongs to one event loop."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}
        self._turn = itertools.count()

    async def put(self, topic: str, record: NewRecord, partition: int | None = None) -> TopicPartition:
        """Returns where the record is when it is durable. `partition` None: that of the key, or one after the other.
        Raises KafkaError."""
        answer: asyncio.Future[TopicPartition] = asyncio.get_running_loop().create_future()
        self._waiting.append((topic, partition, record, answer))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())
        return await answer

    async def flush(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _write(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting, []
                topics = {topic for topic, _, _, _ in taken} - self._counts.keys()
                try:
                    if topics:
                        self._counts |= await self._lookups.run(partial(_counts, topics=topics))
                    await self._write_all(taken)
                except Exception as error:
                    for _, _, _, answer in taken:
                        if not answer.done():
                            answer.set_exception(error)
        finally:
            self._task = None

    async def _write_all(self, taken: list[Waiting]) -> None:
        rounds: list[dict[TopicPartition, list[tuple[NewRecord, asyncio.Future[TopicPartition]]]]] = []
        sizes: dict[TopicPartition, int] = {}
        for topic, partition, record, answer in taken:
            place = topic, self._partition(topic, record.key) if partition is None else partition
            size = sizes.get(place, 0) + len(record.key or b"") + len(record.value or b"")
            number = size // MOST_BYTES
            sizes[place] = size
            while len(rounds) <= number:
                rounds.append({})
            rounds[number].setdefault(place, []).append((record, answer))
        for rows in rounds:
            if not rows:
                continue
            batches = {place: encode_batch([record for record, _ in row]) for place, row in rows.items()}
            await self._lookups.run(partial(_produce, batches=batches))
            for place, row in rows.items():
                for _, answer in row:
                    if not answer.done():
                        answer.set_result(place)

    def _partition(self, topic: str, key: bytes | None) -> int:
        count = self._counts[topic]
        return next(self._turn) % count if key is None else partition_for_key(key, count)


def _counts(cluster: Cluster, topics: set[str]) -> Mapping[str, int]:
    found = cluster.topics(topics)
    for name, topic in found.items():
        check(topic.error, f"topic {name}")
    return {name: len(topic.partitions) for name, topic in found.items()}


def _produce(cluster: Cluster, batches: Mapping[TopicPartition, bytes]) -> None:
    cluster.produce_batches(batches)
