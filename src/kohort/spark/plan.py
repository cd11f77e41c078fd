"""Which offsets a query reads: where it starts, where a micro-batch ends, how a batch is cut into tasks.

Pure functions over positions, so that they are tested without Spark; `Planner` asks the cluster.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from kohort.client.cluster import Cluster
from kohort.client.groups import Committed
from kohort.client.metadata import TopicPartition
from kohort.spark.options import EARLIEST, LATEST, OptionError, Options, Where
from kohort.wire.errors import ErrorCode

Positions = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]
"""As Spark keeps offsets in its checkpoint, and as its Kafka source writes them: topic, partition, offset."""


class DataLoss(RuntimeError):
    """Records that the query should have read are gone; the message names topic, partition and offsets."""


def to_json(positions: Mapping[TopicPartition, int]) -> Json:
    offsets: Json = {}
    for (topic, partition), offset in sorted(positions.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return offsets


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Positions:
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


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
            options.bootstrap_servers, options.client_id, request_timeout_ms=options.request_timeout_ms
        )

    def close(self) -> None:
        self._cluster.close()

    # -- what there is

    def partitions(self) -> list[TopicPartition]:
        options = self._options
        if options.assigned:
            found = self._cluster.topics(options.assigned)
            self._check_exist({name: topic.error for name, topic in found.items()})
            counts = {name: len(topic.partitions) for name, topic in found.items()}
            for name, wanted in options.assigned.items():
                for partition in wanted:
                    if not 0 <= partition < counts[name]:
                        raise OptionError(f"assign names {name}-{partition}; {name} has {counts[name]} partitions")
            return [(name, partition) for name, wanted in sorted(options.assigned.items()) for partition in wanted]
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            found = {name: topic for name, topic in self._cluster.topics().items() if pattern.fullmatch(name)}
        else:
            found = self._cluster.topics(options.topics)
            self._check_exist({name: topic.error for name, topic in found.items()})
        return [(name, index) for name in sorted(found) for index in range(len(found[name].partitions))]

    def _check_exist(self, errors: Mapping[str, ErrorCode]) -> None:
        missing = sorted(name for name, error in errors.items() if error)
        if missing:
            raise OptionError(f"no such topic: {', '.join(missing)} (on {self._options.bootstrap_servers})")

    def ends(self, partitions: list[TopicPartition]) -> Positions:
        return self._cluster.offsets(partitions, "latest", isolation=self._options.isolation)

    def beginnings(self, partitions: list[TopicPartition]) -> Positions:
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
        marked = {mark: [p for p, offset in given.items() if offset == mark] for mark in (LATEST, EARLIEST)}
        positions = {place: offset for place, offset in given.items() if offset >= 0}
        positions.update(self.ends(marked[LATEST]))
        positions.update(self.beginnings(marked[EARLIEST]))
        return positions

    def _group_positions(self, partitions: list[TopicPartition]) -> Positions:
        """The group's committed offsets, else the earliest ones."""
        committed = self._cluster.committed(self._options.group_id or "", partitions)
        beginnings = self.beginnings(partitions)
        ends = self.ends(partitions)
        positions = {}
        for place in partitions:
            if place not in committed:
                positions[place] = beginnings[place]
                continue
            offset = committed[place].offset
            if not beginnings[place] <= offset <= ends[place]:
                self.lost(
                    f"the group {self._options.group_id} has committed offset {offset} of {place[0]}-{place[1]}, "
                    f"but its log holds {beginnings[place]} to {ends[place]}"
                )
                offset = min(max(offset, beginnings[place]), ends[place])
            positions[place] = offset
        return positions

    # -- the group

    def commit(self, positions: Mapping[TopicPartition, int], metadata: str) -> None:
        """Commit to the group. Raises KafkaError."""
        offsets = {place: Committed(offset, -1, metadata) for place, offset in positions.items()}
        self._cluster.commit(self._options.group_id or "", offsets)

    def committed(self) -> Positions:
        return {
            place: committed.offset
            for place, committed in self._cluster.committed(self._options.group_id or "").items()
        }

    def lost(self, what: str) -> None:
        """Data is gone: an error, or with failOnDataLoss=false a warning."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. To go on with what there is, set failOnDataLoss=false")
        print(f"kohort: data loss: {what}", file=sys.stderr)
