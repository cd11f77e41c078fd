"""One task: fetches a range of a partition's offsets and yields it as Arrow record batches.

The range ends at an offset, not after a number of records: compaction, transaction markers and aborted records leave
gaps. The broker skips a gap in the middle of a log. A gap at the end of the log shows only as empty answers, which
prove little: a broker also answers with nothing while it cannot read, for example from tiered storage. So the task
waits for several empty answers, counts the time between them (not that of connecting, retrying and quotas), and asks
for the last offset of the log. If there is nothing either, the range is finished, and a line on stderr says so. Else
the task waits for the records that the broker owes, and reports data loss in the end.

Two ranges that meet inside a batch both fetch that batch, and each takes its own records. The task sends the next fetch
before it decodes the last answer, so the broker and the task work at the same time.

Memory is bounded, whatever the sizes of the records. A task holds one answer (`kafka.max.partition.fetch.bytes`, 4 MiB,
or one larger batch; for a moment three times that, until it is taken out of its frame), one decompressed batch (at most
DECOMPRESSED_BYTES; a larger one is an error), and two sets of columns (each `columns.BYTES`, 8 MiB, or one larger
record, and some 60 bytes for each of `columns.ROWS` rows). Without numba a decompressed batch also exists as Python
objects, at some 300 bytes a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, ServerError
from kohort.client.records import data_batches, next_position
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.spark.arrow.columns import HEADERS, MICROSECONDS, Columns, Filler, fixed, repeated, timestamps
from kohort.spark.arrow.decoder import filler
from kohort.spark.options.source import Options
from kohort.spark.runtime.failures import warn
from kohort.spark.source.planner import open_cluster, report_loss
from kohort.wire.batches import HEADER_SIZE, BatchHeader, CorruptBatch
from kohort.wire.compression import DEFAULT_MAX_BYTES as DECOMPRESSED_BYTES
from kohort.wire.compression import NONE, expand
from kohort.wire.errors import ErrorCode, ProtocolError

GAP_S = 5.0
GAP_ANSWERS = 3
"""After this time and this many empty answers, the task checks whether the log holds anything more."""
BEYOND_WAIT_S = 1.0
"""Of an empty answer that took longer than the broker was asked to wait, at most so much more counts as silence."""

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": MICROSECONDS,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""Of the columns that `columns` may name."""

Convert = Callable[[pa.BinaryArray, pa.BinaryArray], pa.RecordBatch]
"""Makes other columns from keys and values: one row for each record, in the same order, always of the same schema."""

PLACE = [pa.field("log_partition", pa.int32()), pa.field("log_offset", pa.int64()), pa.field("log_time", MICROSECONDS)]
"""The position of a converted record, after its own columns. The names leave `topic`, `partition`, `offset` free."""

_INT64_MAX = 2**63 - 1


def converted_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that `read_range` yields with a `convert` that yields `schema`."""
    return pa.schema([*schema, *PLACE])


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int
    reader: GroupMember | None = None
    """The member to fetch for: kohort refuses it partitions that it does not own."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


FENCED = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
)  # fmt: skip
"""The reader does not own the partition any more. The owner begins at the group's offset, which is not after this
range's start, and so reads the rest of the range."""


def read_range(options: Options, wanted: Range, convert: Convert | None = None) -> Iterator[pa.RecordBatch]:
    """The records of a range: the columns of the options, or with `convert` its columns and PLACE (`converted_schema`).

    Raises DataLoss, or KafkaError naming topic, partition and offset.
    """
    columns = filler(wanted.end - wanted.start, "headers" in options.columns and convert is None)
    build = _RowBuilder(wanted, options.columns, convert)
    position = wanted.start
    with open_cluster(options) as cluster:
        silence = _Silence()
        answer = _send(options, cluster, wanted, position)
        while position < wanted.end:
            fetched = _receive(options, answer, wanted, position)
            if fetched is None:
                break
            if not fetched:
                answer = _send(options, cluster, wanted, position)  # a quota allowed no response yet
                continue
            if wanted.reader is not None and fetched[0].error in FENCED:
                _leave(wanted, position, fetched[0].error)
                break
            if fetched[0].error:
                reached = _after_error(options, cluster, wanted, position, fetched[0].error)
                answer = _send(options, cluster, wanted, reached)
            else:
                reached = _reached(fetched[0], position)
                if reached < wanted.end:
                    answer = _send(options, cluster, wanted, reached)
                yield from map(build, _take(columns, wanted, fetched[0], position))
            if reached > position:
                position = reached
                silence = _Silence()
                continue
            silence.add(options, time.monotonic())
            if _is_over(options, wanted, fetched[0], position, silence):
                break
    rest = columns.flush()
    if rest is not None:
        yield build(rest)


Answer = Callable[[], list[FetchedPartition]]


def _send(options: Options, cluster: Cluster, wanted: Range, position: int) -> Answer:
    """Send a fetch of the records at a position: the broker reads while the task handles the records before it."""
    return cluster.fetch_ahead(
        {(wanted.topic, wanted.partition): position},
        max_wait_ms=options.max_wait_ms,
        partition_max_bytes=options.partition_fetch_bytes,
        isolation=options.isolation,
        as_member=wanted.reader,
    )


@dataclass(slots=True)
class _Silence:
    """Empty answers from one position."""

    answers: int = 0
    seconds: float = 0.0
    """The time from the first to the last, as far as it counts."""
    last_at: float = 0.0
    owed: bool = False
    """True once the log is known to hold later records: those asked for must come."""

    def add(self, options: Options, now: float) -> None:
        if self.answers:
            self.seconds += min(now - self.last_at, options.max_wait_ms / 1000 + BEYOND_WAIT_S)
        self.answers, self.last_at = self.answers + 1, now


def _receive(options: Options, answer: Answer, wanted: Range, position: int) -> list[FetchedPartition] | None:
    """The answer to a fetch; None if the topic is gone and failOnDataLoss is false."""
    try:
        return answer()
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        report_loss(options, f"{wanted} is gone, and with it the offsets from {position} to {wanted.end}")
        return None


def _leave(wanted: Range, position: int, error: ErrorCode) -> None:
    group = wanted.reader.group_id if wanted.reader is not None else ""
    left = f"{wanted} from offset {position} to {wanted.end}"
    warn(f"the group {group} has taken the partition away ({error.name}); not read here: {left}")


def _after_error(options: Options, cluster: Cluster, wanted: Range, position: int, error: ErrorCode) -> int:
    """Where to continue after an error of the fetch. Raises DataLoss or KafkaError."""
    if error != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise KafkaError(error, f"cannot read {wanted} at offset {position}: {error.name}: {error.message}")
    place = (wanted.topic, wanted.partition)
    beginning, end = cluster.offsets([place], "earliest")[place], cluster.offsets([place], "latest")[place]
    report_loss(options, f"{wanted}: offset {position} is not in the log, which holds {beginning} to {end}")
    return beginning if beginning > position else wanted.end


def _is_over(options: Options, wanted: Range, fetched: FetchedPartition, position: int, silence: _Silence) -> bool:
    """True if nothing more will come after this silence. Raises DataLoss."""
    if silence.answers < GAP_ANSWERS:
        return False
    committed = options.isolation == "read_committed"
    log_end = fetched.last_stable_offset if committed else fetched.high_watermark
    patience_s = options.poll_timeout_ms / 1000
    if log_end >= wanted.end and not silence.owed and silence.seconds > min(GAP_S, patience_s):
        if _is_last(options, wanted, position, log_end):
            gap = f"no records from offset {position} to {wanted.end}: a gap at the end of the log ({log_end})"
            warn(f"{wanted}: {gap}")
            return True
        silence.owed = True
    if silence.seconds > patience_s:
        report_loss(
            options,
            f"{wanted}: nothing to read at offset {position} for {silence.seconds:.0f} s; the range goes to "
            f"{wanted.end}, the log to {log_end}",
        )
        return True
    return False


def _is_last(options: Options, wanted: Range, position: int, log_end: int) -> bool:
    """True if the log holds nothing from the position on: asks for the last offset of the log."""
    if log_end - 1 <= position:
        return True
    with open_cluster(options) as cluster:  # the task's own connection waits for an answer
        while (last := _receive(options, _send(options, cluster, wanted, log_end - 1), wanted, log_end - 1)) == []:
            pass
        return last is None or not (last[0].records or last[0].error)


def _reached(fetched: FetchedPartition, position: int) -> int:
    try:
        return next_position(fetched, position)
    except KafkaError as error:
        raise error.because(f"fetched at offset {position}") from None


def _take(columns: Filler, wanted: Range, fetched: FetchedPartition, position: int) -> Iterator[Columns]:
    """Add the records of an answer. Raises KafkaError if its bytes are damaged."""
    try:
        for header, start in data_batches(fetched, position, wanted.end):
            try:
                yield from columns.take(header, _records(fetched.records, header, start), position, wanted.end)
            except ProtocolError as error:
                why = f"cannot read {wanted}, batch at offset {header.base_offset}: {error}"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, why) from None
    except KafkaError as error:
        raise error.because(f"fetched at offset {position}") from None


def _records(data: bytes, header: BatchHeader, start: int) -> bytes | memoryview:
    """The decompressed bytes of a batch's records. Raises ProtocolError."""
    if header.last_offset > _INT64_MAX:
        raise CorruptBatch(f"{header.last_offset} is not a valid offset")
    begin, end = start + HEADER_SIZE, start + header.size
    if header.compression == NONE:
        return memoryview(data)[begin:end]
    return expand(header.compression, data[begin:end], DECOMPRESSED_BYTES)


class _RowBuilder:
    """Makes record batches from columns. Columns with the same value in every row are made once."""

    def __init__(self, wanted: Range, names: Sequence[str], convert: Convert | None) -> None:
        self._wanted = wanted
        self._topics = self._partitions = pa.nulls(0)
        self._convert = convert
        self._names = names
        self._schema = pa.schema([pa.field(name, TYPES[name]) for name in names])

    def __call__(self, columns: Columns) -> pa.RecordBatch:
        rows = len(columns.offsets)
        if len(self._topics) < rows:
            self._topics = repeated(self._wanted.topic, rows)
            self._partitions = fixed(pa.int32(), np.full(rows, self._wanted.partition, np.int32))
        if self._convert is not None:
            made = self._convert(columns.keys, columns.values)
            assert made.num_rows == rows, "a row a record"
            place = [self._array("partition", columns), columns.offsets, self._array("timestamp", columns)]
            return pa.RecordBatch.from_arrays([*made.columns, *place], schema=converted_schema(made.schema))
        return pa.RecordBatch.from_arrays([self._array(name, columns) for name in self._names], schema=self._schema)

    def _array(self, name: str, columns: Columns) -> Any:
        rows = len(columns.offsets)
        match name:
            case "key":
                return columns.keys
            case "value":
                return columns.values
            case "topic":
                return self._topics[:rows]
            case "partition":
                return self._partitions[:rows]
            case "offset":
                return columns.offsets
            case "timestamp":
                return timestamps(columns.times)
            case "timestampType":
                return columns.time_types
            case _:
                return columns.headers
