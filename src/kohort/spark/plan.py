"""Which offsets a query reads: where it starts, where a micro-batch ends, how a batch is cut into tasks.

Pure functions over positions, so that they are tested without Spark; `Planner` asks the cluster.

Spark keeps the end of each micro-batch in the checkpoint, and so where the next one starts; but not where the first one
started: a query that died in its first batch is asked for its initial offset again, and "latest" or "group" may mean
something else by then. So the end of the first batch carries its start with it, under START, and the batch is repeated
as it was.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from kohort.client.cluster import Cluster
from kohort.client.errors import check
from kohort.client.groups import Committed
from kohort.client.metadata import Topic, TopicPartition
from kohort.spark.options import EARLIEST, LATEST, OptionError, Options, Where
from kohort.wire.errors import ErrorCode

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, Any]]
"""As Spark keeps offsets in its checkpoint, and as its Kafka source writes them: topic, partition, offset."""

START = "@start"
"""Where the first batch of a query started, in the JSON of its end. No topic can have this name."""

MISSING_S = 2.0
"""A topic that was there is believed to be gone when it is still missing after this time."""
MISSING_POLL_S = 0.1


class DataLoss(RuntimeError):
    """Records that the query should have read are gone; the message names topic, partition and offsets."""


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    offsets: Json = {}
    for (topic, partition), offset in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        if topic != START
        for partition, offset in partitions.items()
    }


def batch_start(start: Mapping[str, Mapping[str, Any]], end: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Where the batch that ends at `end` starts, if Spark says `start`."""
    return from_json(end.get(START, start))


def admit(start: Positions, end: Positions, limit: int) -> Positions:
    """An end at most `limit` offsets behind `start` in all, each partition by its share of what is waiting."""
    waiting = {place: max(offset - start.get(place, offset), 0) for place, offset in end.items()}
    total = sum(waiting.values())
    if total <= limit:
        return end
    admitted: Positions = {}
    left = limit
    for place in sorted(end):
        share = min(waiting[place], limit * waiting[place] // total)
        admitted[place] = share
        left -= share
    for place in sorted(end, key=lambda p: admitted[p] - waiting[p]):
        # What rounding left over goes where most is waiting.
        more = min(left, waiting[place] - admitted[place])
        admitted[place] += more
        left -= more
    return {place: start.get(place, end[place]) + admitted[place] for place in end}


def cut(ranges: Mapping[TopicPartition, tuple[int, int]], pieces: int | None) -> list[tuple[TopicPartition, int, int]]:
    """Ranges of offsets for tasks: one a partition, large ones cut so that there are about `pieces` in all."""
    total = sum(end - start for start, end in ranges.values())
    tasks = []
    for place in sorted(ranges):
        start, end = ranges[place]
        size = end - start
        if size <= 0:
            continue
        parts = max(1, round(size / total * pieces)) if pieces and pieces > len(ranges) else 1
        edges = [start + size * n // parts for n in range(parts + 1)]
        tasks += [(place, first, last) for first, last in pairwise(edges) if last > first]
    return tasks


class Planner:
    """Asks the cluster about partitions, their ends, and the group's offsets. One thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster = Cluster(
            options.bootstrap_servers,
            options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            security=options.security,
        )
        self._gone: set[str] = set()
        """Topics that were missing at the last look: it is not waited for them again."""

    def close(self) -> None:
        self._cluster.close()

    # -- what there is

    def partitions(self, reached: Collection[str] = ()) -> list[TopicPartition]:
        """What the query reads. Raises OptionError where a topic does not exist, unless the query had `reached` it."""
        options = self._options
        if options.assigned:
            found = self._existing(options.assigned, reached)
            for name, topic in found.items():
                for partition in options.assigned[name]:
                    if not 0 <= partition < len(topic.partitions):
                        raise OptionError(
                            f"assign names {name}-{partition}; {name} has {len(topic.partitions)} partitions"
                        )
            return sorted((name, partition) for name in found for partition in options.assigned[name])
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            found = {name: topic for name, topic in self._cluster.topics().items() if pattern.fullmatch(name)}
            found.update(self._existing([name for name in reached if name not in found], reached))
        else:
            found = self._existing(options.topics, reached)
        return [(name, index) for name in sorted(found) for index in range(len(found[name].partitions))]

    def _existing(self, names: Iterable[str], reached: Collection[str]) -> dict[str, Topic]:
        """The topics that exist. A broker that has just started may not know one yet, so a second look is taken."""
        deadline = time.monotonic() + MISSING_S
        while True:
            found = self._cluster.topics(names)
            missing = {name for name, topic in found.items() if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if missing <= self._gone or time.monotonic() > deadline:
                break
            time.sleep(MISSING_POLL_S)
        self._gone = missing
        unknown = sorted(missing.difference(reached))
        if unknown:
            raise OptionError(f"no such topic: {', '.join(unknown)} (on {self._options.bootstrap_servers})")
        for name, topic in found.items():
            if name not in missing:
                check(topic.error, f"topic {name}")
        return {name: topic for name, topic in found.items() if name not in missing}

    def ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "latest", isolation=self._options.isolation)

    def beginnings(self, partitions: Iterable[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "earliest")

    # -- where to start and end

    def starting(self, default: Literal["earliest", "latest"]) -> Positions:
        partitions = self.partitions()
        where = self._options.starting_or(default)
        if where == "group":
            return self._group_positions(partitions)
        return self._resolve("startingOffsets", where, partitions)

    def ending(self, partitions: list[TopicPartition]) -> Positions:
        return self._resolve("endingOffsets", self._options.ending, partitions)

    def _resolve(self, name: str, where: Where, partitions: list[TopicPartition]) -> Positions:
        if isinstance(where, str):
            return self.beginnings(partitions) if where == "earliest" else self.ends(partitions)
        given = {(topic, index): offset for topic, indexes in where.items() for index, offset in indexes.items()}
        if set(given) != set(partitions):
            differ = sorted(set(given) ^ set(partitions))
            raise OptionError(
                f"{name} must name every partition that is read and no other; they differ in "
                + ", ".join(f"{topic}-{index}" for topic, index in differ)
            )
        if any(offset < (LATEST if name == "endingOffsets" else EARLIEST) for offset in given.values()):
            marks = "-1 (latest)" if name == "endingOffsets" else "-1 (latest) or -2 (earliest)"
            raise OptionError(f"{name} takes offsets from 0 on, or {marks}")
        marked = {mark: [p for p, offset in given.items() if offset == mark] for mark in (LATEST, EARLIEST)}
        positions = self._in_log(
            {place: offset for place, offset in given.items() if offset >= 0}, f"{name} asks for offset"
        )
        positions.update(self.ends(marked[LATEST]))
        positions.update(self.beginnings(marked[EARLIEST]))
        return positions

    def _group_positions(self, partitions: list[TopicPartition]) -> Positions:
        """The group's committed offsets, else the earliest ones."""
        committed = self._cluster.committed(self._options.group_id or "", partitions)
        positions = {place: entry.offset for place, entry in committed.items()}
        positions = self._in_log(positions, f"the group {self._options.group_id} has committed offset")
        return positions | self.beginnings([place for place in partitions if place not in positions])

    def _in_log(self, positions: Positions, whose: str) -> Positions:
        """The positions, each inside its log; one that is not is data loss."""
        beginnings, ends = self.beginnings(positions), self.ends(positions)
        inside = {}
        for (topic, partition), offset in positions.items():
            first, last = beginnings[topic, partition], ends[topic, partition]
            if not first <= offset <= last:
                self.lost(f"{whose} {offset} of {topic}-{partition}, but its log holds {first} to {last}")
            inside[topic, partition] = min(max(offset, first), last)
        return inside

    # -- the group

    def commit(self, positions: Mapping[TopicPartition, int], metadata: str) -> None:
        """Commit to the group. Raises KafkaError."""
        offsets = {place: Committed(offset, -1, metadata) for place, offset in positions.items()}
        self._cluster.commit(self._options.group_id or "", offsets)

    def lost(self, what: str) -> None:
        """Data is gone: an error, or with failOnDataLoss=false a warning."""
        lost(self._options, what)


def lost(options: Options, what: str) -> None:
    """Data is gone. Raises DataLoss, or warns with failOnDataLoss=false."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}. To go on with what there is: failOnDataLoss=false")
    print(f"kohort: data loss: {what}", file=sys.stderr, flush=True)
