"""`format("kohort")`: a Spark data source that is a citizen of its consumer group.

Batch and streaming reads with the schema and the option names of Spark's own Kafka source; `group.id` makes the query
start from the group's committed offsets and commit to them what it has finished.

How a streaming query runs (Spark 4.2 and later): planning calls (initialOffset, latestOffset, partitions, commit) come
to one long-lived Python process a query; `read` runs in the executors' Python workers, on a pickled copy that has
nothing but the options.

When to commit. Spark calls `commit(end)` only while it builds the next batch that is not empty, so the last batch of an
availableNow run would never be committed. But `latestOffset(start, …)` is called after each batch, the last one
included, and by then `start` stands in Spark's own commit log: so `start` is what is committed to the group, there.
The group is never ahead of the checkpoint. A failed commit does not stop the query: the next one carries it too, and
Spark's checkpoint, not the group, decides where the query goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kohort.client.errors import KafkaError
from kohort.spark.options import Options, parse
from kohort.spark.plan import Json, Planner, Positions, admit, cut, from_json, to_json

COMMIT_METADATA = "kohort-spark"

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


class KohortDataSource(DataSource):
    """Registered by `import pyspark_kohort`; see the module's docstring."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> str:
        return SCHEMA + HEADERS if parse(self.options).include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return KohortReader(parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KohortStreamReader(parse(self.options))


class RangePartition(InputPartition):
    """A task: offsets [start, end) of a partition."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(f"{topic}-{partition}[{start},{end})")
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


def _read(options: Options, task: InputPartition) -> Iterator[Any]:
    from kohort.spark.read import Range, read_range  # pyarrow: in the workers only

    assert isinstance(task, RangePartition)
    return read_range(options, Range(task.topic, task.partition, task.start, task.end))


def _tasks(options: Options, start: Positions, end: Positions) -> list[RangePartition]:
    ranges = {place: (start[place], offset) for place, offset in end.items()}
    return [
        RangePartition(topic, partition, first, last)
        for (topic, partition), first, last in cut(ranges, options.min_partitions)
    ]


class KohortReader(DataSourceReader):
    """A batch read: from the starting to the ending offsets. It commits nothing."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        try:
            start = planner.starting("earliest")
            end = planner.ending(list(start))
            beginnings = planner.beginnings(list(start))
            for (topic, index), offset in start.items():
                if offset < beginnings[topic, index]:
                    planner.lost(
                        f"{topic}-{index}: offset {offset} is gone, its log begins at {beginnings[topic, index]}"
                    )
                    start[topic, index] = beginnings[topic, index]
            return list(_tasks(self._options, start, end))
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. The planning state lives in the query's planning process and is never pickled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._initial: Positions | None = None
        self._target: Positions | None = None
        """Where an availableNow run ends: fixed when it begins."""
        self._latest: Positions = {}
        self._committed: Positions = {}
        self._warned = ""

    def __reduce__(self) -> Any:
        return KohortStreamReader, (self._options,)

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    # -- offsets

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = self.planner.starting("latest")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.planner.ends(self.planner.partitions())

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> Json:
        begin = from_json(start)
        self._commit(begin)
        end = dict(self._target) if self._target is not None else self.planner.ends(self.planner.partitions())
        self._latest = end
        self._note_vanished(begin, end)
        new = [place for place in end if place not in begin]
        if new:
            begin.update(self.planner.beginnings(new))
        end = {place: max(offset, begin[place]) for place, offset in end.items()}
        if isinstance(limit, ReadMaxRows):
            end = admit(begin, end, limit.max_rows)
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        return to_json(self._latest) if self._latest else None

    def _note_vanished(self, begin: Positions, end: Positions) -> None:
        for topic, index in sorted(set(begin) - set(end)):
            self.planner.lost(f"{topic}-{index} is gone; the query had reached its offset {begin[topic, index]}")
        for (topic, index), offset in end.items():
            if offset < begin.get((topic, index), 0):
                self.planner.lost(
                    f"{topic}-{index} ends at offset {offset}, below {begin[topic, index]}, which the query has "
                    "reached: it was deleted and created again"
                )

    # -- tasks

    def partitions(self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> Any:
        begin, until = from_json(start), from_json(end)
        new = [place for place in until if place not in begin]
        if new:
            begin.update(self.planner.beginnings(new))
        return _tasks(self._options, begin, until)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)

    # -- the group

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        self._commit(from_json(end))

    def _commit(self, positions: Positions) -> None:
        """Commit a finished batch's end to the group, once."""
        if self._options.group_id is None or positions == self._initial:
            return
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        if not changed:
            return
        try:
            self.planner.commit(changed, COMMIT_METADATA)
        except KafkaError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                print(f"kohort: could not commit to the group {self._options.group_id}: {error}", file=sys.stderr)
            return
        self._committed.update(changed)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
