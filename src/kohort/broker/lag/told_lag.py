"""The lag and Burrow's status in an answer to OffsetFetch, for a client that asks for them (docs/wire-extensions.md).

A group's committed offsets and the ends of its logs are read in one step, so the lags of all its partitions are of one
instant; of more than AT_ONCE partitions or so, the ends are read in several steps. Ages, statuses and last stable
offsets follow, a partition a step, because they may read the storage. The turn's own appends and commits count: they
are durable when the answer leaves.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import msgspec

from kohort.broker.lag.commit_windows import BurrowStatus, Key
from kohort.broker.lag.lag_times import IN_BATCH, UNKNOWN, Ages
from kohort.broker.logs.partition import Partition
from kohort.broker.messages import changed
from kohort.broker.state import BrokerState
from kohort.broker.turn import Millis
from kohort.coordinator.records import Place
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
)

AT_ONCE = 8_000
"""Partitions whose ends are read in one step: half a millisecond."""
TOPIC_WORK = 20
"""To look up a topic takes as long as to read so many ends."""
NAMES_A_STEP = 1_000
ROW_BYTES = 45
"""The fields of a row, on the wire and about in memory."""


class Instant(msgspec.Struct, frozen=True):
    now: Millis
    shard: int
    offsets: Mapping[Place, OffsetCommitValue]
    logs: Mapping[str, tuple[Sequence[Partition], Sequence[int]]]
    """Of each topic: its partitions, and where they ended."""


class ToldLag:
    """The lags of one answer."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._ages = Ages(state.lag_times)
        self._windows = state.commit_windows

    def instant(self, shard: int, group: OffsetFetchRequestGroup) -> Generator[int, None, Instant]:
        """The last step reads the offsets and the ends. The caller goes on in the same step."""
        state, group_id = self._state, group.group_id
        names: dict[str, None] = {}
        asked = group.topics
        if asked is None:
            places = list(state.shards[shard].hard.offsets.get(group_id, ()))
            for at in range(0, len(places), NAMES_A_STEP):
                names.update((name, None) for name, _ in places[at : at + NAMES_A_STEP])
                yield 0
        else:
            names.update((topic.name, None) for topic in asked)
        logs: dict[str, tuple[Sequence[Partition], Sequence[int]]] = {}
        offsets, now, left = dict(state.shards[shard].hard.offsets.get(group_id, {})), state.now, AT_ONCE
        for name in names:
            if left <= 0:
                yield 0
                left = AT_ONCE
            left -= TOPIC_WORK
            topic = state.topic(name)
            if topic is not None:
                partitions = tuple(state.topics.partitions[topic.topic_id])
                left -= len(partitions)
                logs[name] = partitions, [partition.end_offset for partition in partitions]
        return Instant(now, shard, offsets, logs)

    def told(self, found: OffsetFetchResponseGroup, instant: Instant) -> Generator[int, None, OffsetFetchResponseGroup]:
        """The group's answer with the lags. Its topics have their names."""
        topics = []
        for topic in found.topics:
            rows = []
            partitions, ends = instant.logs.get(topic.name, ((), ()))
            for row in topic.partitions:
                if not row.error_code and 0 <= row.partition_index < len(ends):
                    at = row.partition_index
                    key = instant.shard, found.group_id, (topic.name, at)
                    row = self._row(row, key, instant, partitions[at], ends[at])
                rows.append(row)
                yield ROW_BYTES
            topics.append(changed(topic, partitions=tuple(rows)))
        return changed(found, topics=tuple(topics), as_of_ms=instant.now)

    def _row(
        self, row: OffsetFetchResponsePartitions, key: Key, instant: Instant, partition: Partition, end: int
    ) -> OffsetFetchResponsePartitions:
        lag_ms, status, offset, now = UNKNOWN, BurrowStatus.UNKNOWN, row.committed_offset, instant.now
        if offset >= 0:
            lag_ms = self._ages.times.lag_ms(partition, offset, end, now)
            status = self._windows.status(key, instant.offsets[key[2]], partition, end, now)
            if lag_ms == IN_BATCH:
                lag_ms = self._ages.look_up(partition, offset, now)
        stable_end = min(partition.stable_end, end)
        return changed(row, end_offset=end, last_stable_offset=stable_end, lag_ms=lag_ms, burrow_status=status)
