"""`format("kohort")`: batch and streaming reads and writes of topics, with a consumer group's offsets.

Reads have the schema and the option names of Spark's own Kafka source. With `group.id` a query starts from the group's
committed offsets, and a streaming query commits to the group what it has finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from kohort.spark.options.sink import SinkOptions, parse_sink
from kohort.spark.options.source import COLUMNS, HEADERS, Options, for_batch, for_stream, parse
from kohort.spark.options.values import OptionError
from kohort.spark.sink.data_sink import KohortStreamWriter, KohortWriter
from kohort.spark.sink.rows import check
from kohort.spark.source import bounds
from kohort.spark.source.filters import Narrowing
from kohort.spark.source.planner import Planner
from kohort.spark.source.stream_reader import KohortStreamReader
from kohort.spark.source.tasks import read_task, tasks_of


class KohortDataSource(DataSource):
    """Registered by `import pyspark_kohort`."""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> str | StructType:
        options = parse(self.options)
        if options.decode == "consumer_offsets":
            # pyarrow and numpy: only where they are needed
            from pyspark.sql.pandas.types import from_arrow_schema

            from kohort.spark.history.decoding.decode import SCHEMA as DECODED
            from kohort.spark.source.read import converted_schema

            return from_arrow_schema(converted_schema(DECODED))
        types = COLUMNS | HEADERS
        return ", ".join(f"{name} {types[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = for_batch(self.options)
        return FilteredReader(options) if options.push_filters else KohortReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = for_stream(self.options)
        if options.member is not None:
            from kohort.spark.source.member.reader import KohortMemberReader  # the client's consumer: not for all

            return KohortMemberReader(options)
        return KohortStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = parse_sink(self.options)
        columns = check(schema, options.topic)
        if overwrite:  # a topic has nothing to replace
            raise OptionError('kohort\'s sink appends; write with mode("append")')
        self._prepare(options)
        return KohortWriter(options, columns)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_sink(self.options, streaming=True)
        columns = check(schema, options.topic)
        self._prepare(options)
        return KohortStreamWriter(options, columns)

    @staticmethod
    def _prepare(options: SinkOptions) -> None:
        if options.exactly_once is not None:
            from kohort.spark.sink.batch_commit import prepare

            prepare(options)


class KohortReader(DataSourceReader):
    """A batch read from the starting to the ending offsets. It commits nothing."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        try:
            start = bounds.starting(planner, "earliest")
            end = bounds.ending(planner, start)
            for (topic, index), offset in end.items():
                if offset < start[topic, index]:
                    raise OptionError(
                        f"{topic}-{index} would be read from offset {start[topic, index]} back to {offset}: the "
                        "options' start is after their end"
                    )
            ranges = {place: (start[place], offset) for place, offset in end.items()}
            return list(tasks_of(self._options, self._narrowing.of(ranges, planner.at_times)))
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._options, partition)


class FilteredReader(KohortReader):
    """Spark refuses a reader with this method unless spark.sql.python.filterPushdown.enabled is true."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        return self._narrowing.take(filters)
