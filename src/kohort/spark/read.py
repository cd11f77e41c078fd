"""One task's work: fetch a range of a partition's offsets and yield it as Arrow record batches.

The range ends at a position and not at a count: compaction, transaction markers and aborted records leave gaps. The
broker skips a gap in the middle of a log; one at its end is known by silence, since every answer is empty although the
log goes on. A single empty answer says nothing: a broker that throttles a client sends those too.
Batches are bounded in rows and bytes, whatever the records' sizes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError, ServerError
from kohort.client.leaders import FetchedPartition
from kohort.client.records import data_batches, next_position
from kohort.spark.options import Options
from kohort.spark.plan import lost
from kohort.wire.batches import BatchHeader, RecordColumns, decode_columns
from kohort.wire.errors import ErrorCode, ProtocolError

ROWS = 20_000
BYTES = 8 * 1024 * 1024
STALLED_S = 60.0
"""A partition whose log does not reach the end of the range for this long is given up."""
GAP_S = 5.0
"""A partition whose log reaches it, but that yields nothing for this long, has nothing more in the range."""

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
BASE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
HEADERS_FIELD = pa.field("headers", pa.list_(pa.field("element", HEADER)))


def arrow_schema(include_headers: bool) -> pa.Schema:
    return BASE_SCHEMA.append(HEADERS_FIELD) if include_headers else BASE_SCHEMA


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition."""

    topic: str
    partition: int
    start: int
    end: int


def read_range(options: Options, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLoss, or KafkaError naming topic, partition and offset."""
    rows = _Rows(wanted, options.include_headers)
    position = wanted.start
    with Cluster(
        options.bootstrap_servers,
        options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        security=options.security,
    ) as cluster:
        progressed = time.monotonic()
        while position < wanted.end:
            fetched = _fetch(options, cluster, wanted, position)
            if fetched is None:
                break
            if fetched.error:
                reached = _after_error(options, cluster, wanted, position, fetched.error)
            else:
                yield from rows.take(fetched, position)
                reached = next_position(fetched, position)
            if reached > position:
                position = reached
                progressed = time.monotonic()
            elif _is_over(options, wanted, fetched, position, time.monotonic() - progressed):
                break
    if rows.count:
        yield rows.flush()


def _fetch(options: Options, cluster: Cluster, wanted: Range, position: int) -> FetchedPartition | None:
    """What stands at a position; None where the topic is gone and failOnDataLoss is false."""
    try:
        answered = cluster.fetch(
            {(wanted.topic, wanted.partition): position},
            max_wait_ms=options.max_wait_ms,
            partition_max_bytes=options.partition_fetch_bytes,
            isolation=options.isolation,
        )
    except ServerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        lost(options, f"{_name(wanted)} is gone, and with it the offsets from {position} to {wanted.end}")
        return None
    return answered[0]


def _after_error(options: Options, cluster: Cluster, wanted: Range, position: int, error: ErrorCode) -> int:
    """Where to go on after an error of the fetch. Raises DataLoss or KafkaError."""
    if error != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise KafkaError(error, f"cannot read {_name(wanted)} at offset {position}: {error.name}: {error.message}")
    place = (wanted.topic, wanted.partition)
    beginning, end = cluster.offsets([place], "earliest")[place], cluster.offsets([place], "latest")[place]
    lost(options, f"{_name(wanted)}: offset {position} is not in the log, which holds {beginning} to {end}")
    return beginning if beginning > position else wanted.end


def _is_over(options: Options, wanted: Range, fetched: FetchedPartition, position: int, silent_s: float) -> bool:
    """Whether nothing more will come, after so much silence. Raises DataLoss."""
    committed = options.isolation == "read_committed"
    log_end = fetched.last_stable_offset if committed else fetched.high_watermark
    if log_end >= wanted.end:
        return silent_s > GAP_S
    if silent_s > STALLED_S:
        lost(
            options,
            f"{_name(wanted)}: nothing to read at offset {position} for {silent_s:.0f} s; the range goes to "
            f"{wanted.end}, the log to {log_end}",
        )
        return True
    return False


def _name(wanted: Range) -> str:
    return f"{wanted.topic}-{wanted.partition}"


class _Rows:
    """Columns being filled, until a record batch is full."""

    def __init__(self, wanted: Range, include_headers: bool) -> None:
        self._wanted = wanted
        self._schema = arrow_schema(include_headers)
        self._include_headers = include_headers
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._types: list[int] = []
        self._headers: list[Any] = []

    def take(self, fetched: FetchedPartition, position: int) -> Iterator[pa.RecordBatch]:
        """Add what a fetch brought; yields whenever a batch is full."""
        end = self._wanted.end
        for header, batch in _data_batches(fetched, position):
            columns = _columns(self._wanted, header, batch)
            offsets = columns.offsets
            first, last = 0, len(offsets)
            while first < last and offsets[first] < position:
                first += 1
            while last > first and offsets[last - 1] >= end:
                last -= 1
            if first == last:
                continue
            self._keys += columns.keys[first:last]
            self._values += columns.values[first:last]
            self._offsets += offsets[first:last]
            self._timestamps += columns.timestamps[first:last]
            self._types += [header.timestamp_type] * (last - first)
            if self._include_headers:
                self._headers += [_header_dicts(h) for h in (columns.headers or [()] * len(offsets))[first:last]]
            self.count += last - first
            self._bytes += header.size if header.compression == 0 else _size(columns)
            if self.count >= ROWS or self._bytes >= BYTES:
                yield self.flush()

    def flush(self) -> pa.RecordBatch:
        count = self.count
        milliseconds = pa.array(self._timestamps, pa.int64())
        columns = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(self._wanted.topic, pa.string()), count),
            pa.repeat(pa.scalar(self._wanted.partition, pa.int32()), count),
            pa.array(self._offsets, pa.int64()),
            milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
            pa.array(self._types, pa.int32()),
        ]
        if self._include_headers:
            columns.append(pa.array(self._headers, HEADERS_FIELD.type))
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _data_batches(fetched: FetchedPartition, position: int) -> Iterator[tuple[BatchHeader, bytes]]:
    try:
        yield from data_batches(fetched, position)
    except KafkaError as error:
        raise error.because(f"fetched at offset {position}") from None


def _columns(wanted: Range, header: BatchHeader, batch: bytes) -> RecordColumns:
    try:
        return decode_columns(batch, header)
    except ProtocolError as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"cannot read {_name(wanted)}, batch at offset {header.base_offset}: {error}"
        ) from None


def _size(columns: RecordColumns) -> int:
    return sum(map(len, filter(None, columns.values))) + sum(map(len, filter(None, columns.keys)))


def _header_dicts(headers: tuple[tuple[str, bytes | None], ...]) -> list[dict[str, Any]] | None:
    """None for a record without headers, as Spark's source has it."""
    return [{"key": key, "value": value} for key, value in headers] or None
