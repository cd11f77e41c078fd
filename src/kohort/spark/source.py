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
Spark's checkpoint, not the group, decides where the query goes on. A commit that will never be allowed does stop it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kohort.client.errors import KafkaError
from kohort.spark import sink_options
from kohort.spark.options import OptionError, Options, parse
from kohort.spark.plan import START, Json, Planner, Positions, admit, batch_start, cut, from_json, to_json
from kohort.spark.sink import KohortStreamWriter, KohortWriter
from kohort.spark.sink_rows import check
from kohort.wire.errors import ErrorCode

COMMIT_METADATA = "kohort-spark"

IDLE_S = 0.1
"""Spark asks for new offsets a hundred times a second when there are none; the cluster is asked this often."""
COMMIT_RETRY_S = 1.0

REFUSED = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Answers to a commit that asking again does not change, and that a person must see."""

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


class KohortDataSource(DataSource):
    """Registered by `import pyspark_kohort`; see the module's docstring."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> str | StructType:
        options = parse(self.options)
        if options.decode == "consumer_offsets":
            from pyspark.sql.pandas.types import from_arrow_schema

            from kohort.spark.history.decode import SCHEMA as DECODED  # pyarrow and numpy: only where they are needed
            from kohort.spark.read import converted_schema

            return from_arrow_schema(converted_schema(DECODED))
        return SCHEMA + HEADERS if options.include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options)
        if options.member is not None:
            raise OptionError("groupMode=member is for streaming reads; a batch read commits nothing")
        if options.starting == "latest":
            raise OptionError("startingOffsets may not be latest in a batch read: there would be nothing to read")
        return KohortReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(self.options)
        if options.ending != "latest":
            raise OptionError("endingOffsets is for batch reads; a streaming read has no end")
        if options.member is not None:
            raise OptionError("groupMode=member: this version knows its options, and cannot do it yet")
        return KohortStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = sink_options.parse(self.options)
        return KohortWriter(options, check(schema, options.topic), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = sink_options.parse(self.options)
        return KohortStreamWriter(options, check(schema, options.topic))


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
    wanted = Range(task.topic, task.partition, task.start, task.end)
    if options.decode == "consumer_offsets":
        from kohort.spark.history.decode import decode

        return read_range(options, wanted, decode)
    return read_range(options, wanted)


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
        self._idle_since = 0.0
        self._committed: Positions = {}
        self._commit_at = 0.0
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

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        reached = from_json(start)
        first = START not in start and reached == self._initial
        if not first:
            self._commit(reached)
        ends = self._ends(reached)
        self._note_lost(reached, ends)
        begin = self._begin(reached, ends)
        self._latest = ends
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        if ends == reached:
            return start  # word for word: anything else would be a new batch to Spark
        self._idle_since = 0.0
        end = to_json(ends)
        if first:
            end[START] = to_json(reached)
        return end

    def reportLatestOffset(self) -> Json:
        if not self._latest:
            # A restarted query repeats its last batch, and reports it, before it asks for new offsets.
            self._latest = self._target or self.planner.ends(self.planner.partitions())
        return to_json(self._latest)

    def _ends(self, reached: Positions) -> Positions:
        """Where the logs end now; where they ended at the beginning of an availableNow run."""
        if self._target is not None:
            return dict(self._target)
        time.sleep(max(0.0, self._idle_since + IDLE_S - time.monotonic()))
        self._idle_since = time.monotonic()
        return self.planner.ends(self.planner.partitions({topic for topic, _ in reached}))

    def _begin(self, reached: Positions, until: Positions) -> Positions:
        """Where reading goes on: partitions that are new, or were created anew, at their beginning."""
        anew = [place for place, offset in until.items() if offset < reached.get(place, offset + 1)]
        return reached | self.planner.beginnings(anew) if anew else reached

    def _note_lost(self, reached: Positions, ends: Positions) -> None:
        for topic, index in sorted(set(reached) - set(ends)):
            self.planner.lost(f"{topic}-{index} is gone; the query had reached its offset {reached[topic, index]}")
        for (topic, index), offset in ends.items():
            if offset < reached.get((topic, index), 0):
                self.planner.lost(
                    f"{topic}-{index} ends at offset {offset}, below {reached[topic, index]}, which the query has "
                    "reached: it was deleted and created again"
                )

    # -- tasks

    def partitions(self, start: Json, end: Json) -> Any:
        until = from_json(end)
        return _tasks(self._options, self._begin(batch_start(start, end), until), until)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition)

    # -- the group

    def commit(self, end: Json) -> None:
        self._commit(from_json(end))

    def _commit(self, positions: Positions) -> None:
        """Commit a finished batch's end to the group, once. Raises KafkaError only where that will never work."""
        if self._options.group_id is None or time.monotonic() < self._commit_at:
            return
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        if not changed:
            return
        try:
            self.planner.commit(changed, COMMIT_METADATA)
        except KafkaError as error:
            if error.code in REFUSED:
                raise
            self._commit_at = time.monotonic() + COMMIT_RETRY_S
            if str(error) != self._warned:
                self._warned = str(error)
                print(f"kohort: could not commit to the group {self._options.group_id}: {error}", file=sys.stderr)
            return
        self._committed.update(changed)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None
