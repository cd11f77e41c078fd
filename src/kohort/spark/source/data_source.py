"""`format("kohort")`: a Spark data source that is a citizen of its consumer group.

Batch and streaming reads with the schema and the option names of Spark's own Kafka source; `group.id` makes the query
start from the group's committed offsets and commit to them what it has finished.

How a streaming query runs (Spark 4.2 and later): planning calls (initialOffset, latestOffset, partitions, commit) come
to one long-lived Python process a query; `read` runs in the executors' Python workers, on a pickled copy that has
nothing but the options.

When to commit. Spark calls `commit(end)` only while it builds the next batch that is not empty, so the last batch of an
availableNow run would never be committed. But `latestOffset(start, …)` is called after each batch, the last one
included, and by then `start` stands in Spark's own commit log: so `start` is what is committed to the group, there.
With asynchronous progress tracking it may not stand there yet, so such a query is refused. No source is told of it, but
it shows: Spark then plans a batch's tasks without having called `commit` for the batch before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.spark.options.source import OptionError, Options, for_batch, for_stream, parse
from kohort.spark.sink import options as sink_options
from kohort.spark.sink.data_sink import KohortStreamWriter, KohortWriter
from kohort.spark.sink.rows import check
from kohort.spark.source.commits import Commits
from kohort.spark.source.identity import ReplyTo, tell
from kohort.spark.source.plan import BATCH, START, Json, Planner, Positions, admit, cut, from_json, to_json

IDLE_S = 0.1
"""Spark asks for new offsets a hundred times a second when there are none; the cluster is asked this often."""
TELLERS = 3
"""Tasks of a batch that tell which query they belong to; one would do, if it always got through."""

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

            from kohort.spark.history.decoding.decode import (
                SCHEMA as DECODED,  # pyarrow and numpy: only where they are needed
            )
            from kohort.spark.source.read import converted_schema

            return from_arrow_schema(converted_schema(DECODED))
        return SCHEMA + HEADERS if options.include_headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return KohortReader(for_batch(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = for_stream(self.options)
        if options.member is not None:
            from kohort.spark.source.member.reader import KohortMemberReader  # it builds on this module

            return KohortMemberReader(options)
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
        self.reply_to: ReplyTo | None = None
        """Where the task tells which query and batch it belongs to."""
        self.reader: GroupMember | None = None
        """In whose name to fetch."""


def read_task(options: Options, task: InputPartition | None) -> Iterator[Any]:
    from kohort.spark.source.read import Range, read_range  # pyarrow: in the workers only

    if not isinstance(task, RangePartition):
        return iter(())  # a batch read without tasks: Spark asks once all the same
    context = TaskContext.get()
    if task.reply_to is not None and context is not None:
        tell(task.reply_to, context.getLocalProperty)
    wanted = Range(task.topic, task.partition, task.start, task.end, task.reader)
    if options.decode == "consumer_offsets":
        from kohort.spark.history.decoding.decode import decode

        return read_range(options, wanted, decode)
    return read_range(options, wanted)


def _tasks(options: Options, start: Positions, end: Positions) -> list[RangePartition]:
    return tasks_of(options, {place: (start[place], offset) for place, offset in end.items()})


def tasks_of(options: Options, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[RangePartition]:
    return [
        RangePartition(topic, partition, first, last)
        for (topic, partition), first, last in cut(ranges, options.min_partitions, options.max_records_per_partition)
    ]


class KohortReader(DataSourceReader):
    """A batch read: from the starting to the ending offsets. It commits nothing."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        try:
            start = planner.starting("earliest")
            end = planner.ending(start)
            for (topic, index), offset in end.items():
                if offset < start[topic, index]:
                    raise OptionError(
                        f"{topic}-{index} would be read from offset {start[topic, index]} back to {offset}: what the "
                        "options say of its start and its end is the wrong way round"
                    )
            return list(_tasks(self._options, start, end))
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, partition)


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. The planning state lives in the query's planning process and is never pickled."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._commits = Commits(options)
        self._initial: Positions | None = None
        self._target: Positions | None = None
        """Where an availableNow run ends: fixed when it begins."""
        self._target_checked = False
        """Whether the target was compared with what the query has reached."""
        self._latest: Positions = {}
        self._planned: tuple[Json, Positions] | None = None
        """The end of the newest batch, and where its partitions begin."""
        self._idle_since = 0.0
        self._batch_at: float | None = None
        """When the last batch was planned, on the monotonic clock."""
        self._commit_due = False
        """Whether Spark is going to call commit() before it plans the tasks of the new batch."""

    def __reduce__(self) -> Any:
        return KohortStreamReader, (self._options,)

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
            self._commits.finish_when_ended()
        return self._planner

    # -- offsets

    def initialOffset(self) -> Json:
        if self._initial is None:
            self._initial = self.planner.starting("latest")
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadMinRows(least) if least is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        # What is missing is told when it is known whether the query had reached it.
        self._target = self.planner.ends(self.planner.partitions(self.planner.named))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        if BATCH in start:
            raise OptionError(
                "this checkpoint is of a query with groupMode=member: it does not know where all partitions have got "
                "to. Go on with groupMode=member, or begin a new checkpoint at the group's committed offsets"
            )
        reached = from_json(start)
        first = START not in start and reached == self._initial
        if not first:
            self._commits.commit(reached)
        ends = self._ends(reached)
        recreated = self.planner.take_recreated()
        lost = self._note_lost(reached, ends, recreated)
        begin = self._begin(reached, ends, recreated)
        lost |= self.planner.note_late(reached, begin, ends)
        ends = {place: offset for place, offset in ends.items() if place in begin}
        self._latest = ends
        if not lost and self._held_back(begin, ends, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = admit(begin, ends, limit.max_rows)
        if ends == reached and not (recreated or first):
            return start  # word for word: anything else would be a new batch to Spark
        self._idle_since = 0.0
        self._batch_at = time.monotonic()
        self._commit_due = not first
        end = to_json(ends)
        if first or any(begin[place] != reached.get(place, begin[place]) for place in ends):
            end[START] = to_json({place: begin[place] for place in ends})
        self._planned = (end, begin)
        self._commits.plan(end)
        return end

    def _held_back(self, begin: Positions, ends: Positions, limit: ReadLimit) -> bool:
        """Whether the batch waits for more records: minOffsetsPerTrigger, for at most maxTriggerDelay."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        delay_s = self._options.max_trigger_delay_ms / 1000
        if self._batch_at is None or time.monotonic() - self._batch_at >= delay_s:
            return False
        return sum(max(offset - begin[place], 0) for place, offset in ends.items()) < least

    def reportLatestOffset(self) -> Json:
        if not self._latest:
            # A restarted query repeats its last batch, and reports it, before it asks for new offsets.
            self._latest = self._target or self.planner.ends(self.planner.partitions(self.planner.named))
        return to_json(self._latest)

    def _ends(self, reached: Positions) -> Positions:
        """Where the logs end now; where they ended at the beginning of an availableNow run."""
        if self._target is not None:
            if not self._target_checked:
                self._check_target(self._target, reached)
            return dict(self._target)
        time.sleep(max(0.0, self._idle_since + IDLE_S - time.monotonic()))
        self._idle_since = time.monotonic()
        return self.planner.ends_behind(self.planner.partitions({topic for topic, _ in reached}), reached)

    def _check_target(self, target: Positions, reached: Positions) -> None:
        """A log that seemed to end before what was reached is looked at again. Raises OptionError where a topic that
        was never reached does not exist."""
        there = set(self.planner.partitions({topic for topic, _ in reached}))
        behind = [place for place, offset in target.items() if offset < reached.get(place, offset) and place in there]
        target.update(self.planner.ends_behind(behind, reached))
        self._target_checked = True

    def _begin(self, reached: Positions, until: Positions, recreated: set[str]) -> Positions:
        """Where reading goes on. Partitions that are new, or of a topic created anew: at their beginning. Where a log
        has become shorter: at its end, as in Spark's source, for most of it was read."""
        anew = [place for place in until if place not in reached or place[0] in recreated]
        shorter = {place: until[place] for place in until.keys() & reached.keys() if until[place] < reached[place]}
        return reached | shorter | self.planner.beginnings_left(anew)

    def _note_lost(self, reached: Positions, ends: Positions, recreated: set[str]) -> bool:
        """Whether the query goes on although something is lost. Raises DataLoss where it may not."""
        told = False
        for topic, index in sorted(set(reached) - set(ends)):
            gone = "is gone" if self.planner.includes(topic, index) else "is not among what the query is to read"
            self.planner.lost(f"{topic}-{index} {gone}; the query had reached its offset {reached[topic, index]}")
            told = True
        for (topic, index), offset in ends.items():
            before = reached.get((topic, index), 0)
            if topic in recreated:
                if before:
                    what = f"{topic} was deleted and created again; the query had reached offset {before} of "
                    self.planner.lost(f"{what}partition {index}")
                told = True
            elif offset < before:
                self.planner.lost(
                    f"{topic}-{index} ends at offset {offset}, below {before}, which the query has reached: its log "
                    f"was cut, or it was deleted and created again. Without these records reading goes on at {offset}"
                )
                told = True
        return told

    # -- tasks

    def partitions(self, start: Json, end: Json) -> Any:
        if self._commit_due and start != end:
            raise OptionError(
                "asynchronous progress tracking (asyncProgressTrackingEnabled) is not supported: the group's offsets "
                "could get ahead of the checkpoint"
            )
        if self._planned is not None and self._planned[0] == end:
            begin = self._planned[1]
            ranges = {place: (begin[place], offset) for place, offset in from_json(end).items()}
        else:
            ranges = self.planner.repeated(start, end)
        tasks = tasks_of(self._options, ranges)
        for task in tasks[:TELLERS]:
            task.reply_to = self._commits.reply_to()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, partition)

    # -- the group

    def commit(self, end: Json) -> None:
        self._commit_due = False
        self._commits.commit(from_json(end))

    def stop(self) -> None:
        self._commits.finish()
        self._commits.close()
        if self._planner is not None:
            self._planner.close()
            self._planner = None
