"""Positions in partitions, as pure functions: their JSON, the end of a micro-batch, its division into tasks.

Spark keeps the end of each micro-batch in the checkpoint, which is where the next one starts. It does not keep where
the first one started: a query that died in its first batch is asked for its initial offset again, and "latest" or
"group" may mean another offset by then. So the end of the first batch also holds its start, under START.

The end also holds the topics' ids, so that a restarted query notices a topic that was deleted and created again. Each
is a key "topic@id" of an empty map. Spark's own source reads the checkpoint as a map of maps of offsets (JsonUtils),
in which an empty map has no effect.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kohort.client.metadata import TopicPartition

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, Any]]
"""Offsets by topic and partition, as Spark keeps them in its checkpoint and as its own Kafka source writes them."""

START = "@start"
"""In the JSON of a batch's end: where the batch started. No topic can have this name."""

BATCH = "@batch"
"""In the JSON of a batch's end: the number and the reader of a batch with groupMode=member (`member/sharing.py`)."""


MARK = "@"
"""Stands between a topic's name and its id. No topic's name has it."""


def ids_in(end: Mapping[str, Any]) -> dict[str, bytes]:
    """The ids of the topics in a batch's end. Spark's own source and earlier versions of this one write none."""
    marked = [key.split(MARK) for key in end if not key.startswith(MARK) and MARK in key]
    return {topic: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for topic, text in marked}


def with_ids(end: Json, ids: Mapping[str, bytes]) -> Json:
    """The end of a batch, and the ids of its topics as far as they are known."""
    topics = [topic for topic in end if MARK not in topic and topic in ids]
    texts = {topic: base64.urlsafe_b64encode(ids[topic]).decode().rstrip("=") for topic in topics}
    return end | {f"{topic}{MARK}{text}": {} for topic, text in texts.items()}


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    offsets: Json = {}
    for (topic, partition), offset in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        if MARK not in topic
        for partition, offset in partitions.items()
    }


def admit(start: Positions, end: Positions, limit: int) -> Positions:
    """An end at most `limit` offsets after `start` in all. Each partition gets its share of what is waiting.

    If the limit allows one offset for each partition with waiting records, each gets at least one.
    """
    waiting = {place: max(offset - start.get(place, offset), 0) for place, offset in end.items()}
    if sum(waiting.values()) <= limit:
        return end
    some = [place for place in sorted(end) if waiting[place]]
    each = 1 if limit >= len(some) else 0
    rest, total = limit - each * len(some), sum(waiting[place] - each for place in some)
    admitted = {place: each + rest * (waiting[place] - each) // total for place in some}
    left = limit - sum(admitted.values())
    for place in sorted(some, key=lambda p: admitted[p] - waiting[p]):
        # The remainder of the rounding goes to the partitions with the most waiting offsets.
        more = min(left, waiting[place] - admitted[place])
        admitted[place] += more
        left -= more
    return {place: start.get(place, offset) + admitted.get(place, 0) for place, offset in end.items()}


def cut(
    ranges: Mapping[TopicPartition, tuple[int, int]], pieces: int | None = None, most: int | None = None
) -> list[tuple[TopicPartition, int, int]]:
    """Ranges of offsets for tasks: one for each partition, divided if it has more than `most` offsets.

    Large ranges are divided further to make about `pieces` tasks in all; rounding changes that number a little.
    """
    sizes = {place: end - start for place, (start, end) in sorted(ranges.items()) if end > start}
    parts = {place: -(-size // most) if most else 1 for place, size in sizes.items()}
    if pieces and pieces > sum(parts.values()):
        total = sum(sizes.values())
        large = {place: size for place, size in sizes.items() if round(size / total * pieces) > 1}
        for_large = max(pieces - (len(sizes) - len(large)), 1)
        for place, size in large.items():
            parts[place] = max(parts[place], round(size / sum(large.values()) * for_large))
    tasks = []
    for place, count in parts.items():
        start, size = ranges[place][0], sizes[place]
        edges = [start + size * n // count for n in range(count + 1)]
        tasks += [(place, first, last) for first, last in pairwise(edges) if last > first]
    return tasks
