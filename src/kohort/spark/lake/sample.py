"""A sample of the records of topics, to infer a schema from: the oldest and the newest ones of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from kohort.client.cluster import Cluster
from kohort.client.metadata import TopicPartition
from kohort.client.records import next_position, records
from kohort.wire.errors import ErrorCode

PATIENCE_S = 5.0
"""If a partition yields nothing for this time, the rest of the range has been compacted away."""


def sample(cluster: Cluster, topics: Sequence[str], count: int) -> Iterator[bytes | None]:
    """The values of up to about `count` records, evenly from all partitions. Raises KafkaError."""
    partitions = [
        (name, index)
        for name, topic in sorted(cluster.topics(topics).items())
        for index in range(len(topic.partitions))
    ]
    if not partitions:
        return
    first, last = cluster.offsets(partitions, "earliest"), cluster.offsets(partitions, "latest")
    half = max(count // len(partitions) // 2, 1)
    for place in partitions:
        start, end = first[place], last[place]
        yield from _values(cluster, place, start, min(start + half, end))
        yield from _values(cluster, place, max(start + half, end - half), end)


def _values(cluster: Cluster, place: TopicPartition, start: int, end: int) -> Iterator[bytes | None]:
    position, deadline = start, time.monotonic() + PATIENCE_S
    while position < end and time.monotonic() < deadline:
        for fetched in cluster.fetch({place: position}):
            if fetched.error != ErrorCode.NONE:
                return
            for record in records(fetched, position):
                if record.offset < end:
                    yield record.value
            reached = next_position(fetched, position)
            if reached > position:
                position, deadline = reached, time.monotonic() + PATIENCE_S
