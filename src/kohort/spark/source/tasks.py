"""The tasks of a batch, which every reader of the source makes on the driver and runs in the Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.spark.options.source import Options
from kohort.spark.source.identity import ReplyTo, send_identity
from kohort.spark.source.positions import cut

REPORTING_TASKS = 3
"""How many tasks of a batch report which query they belong to. One task is enough, but its datagram may get lost."""


@dataclass(eq=False)
class RangePartition(InputPartition):
    """A task: offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    reply_to: ReplyTo | None
    """Where the task reports which query and batch it belongs to."""
    reader: GroupMember | None
    """The member of the group on whose behalf the task fetches."""


def tasks_of(
    options: Options,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    reply_to: ReplyTo | None = None,
    reader: GroupMember | None = None,
) -> list[RangePartition]:
    pieces = cut(ranges, options.min_partitions, options.max_records_per_partition)
    return [
        RangePartition(topic, partition, first, last, reply_to if number < REPORTING_TASKS else None, reader)
        for number, ((topic, partition), first, last) in enumerate(pieces)
    ]


def read_task(options: Options, task: InputPartition | None) -> Iterator[Any]:
    """The records of a task, as Arrow record batches. Runs in a worker."""
    from kohort.spark.source.read import Range, read_range  # pyarrow: in the workers only

    if not isinstance(task, RangePartition):
        return iter(())  # Spark also calls this for a batch read without tasks
    context = TaskContext.get()
    if task.reply_to is not None and context is not None:
        send_identity(task.reply_to, context.getLocalProperty)
    wanted = Range(task.topic, task.partition, task.start, task.end, task.reader)
    if options.decode == "consumer_offsets":
        from kohort.spark.history.decoding.decode import decode

        return read_range(options, wanted, decode)
    return read_range(options, wanted)
