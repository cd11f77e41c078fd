"""The newest records of a partition, or one record, bounded in number and in bytes.

A fetch begins WANTED offsets before the end and takes BYTES at most. If it does not reach the end, because records are
large, the next one begins nearer to it. So there are few fetches, and one record that is larger than BYTES is whole.
If there are records of transactions among them, another fetch tells which of them readers of committed records get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kohort.client.cluster import Cluster
from kohort.client.errors import server_error
from kohort.client.records.fetched_records import FetchedRecord, data_batches, next_position, records
from kohort.client.records.partition_leaders import FetchedPartition, Isolation
from kohort.wire.errors import ErrorCode

WANTED = 100
BYTES = 1_048_576
NEARER = 5
WAIT_MS = 0

Mark = Literal["aborted", "open"]
"""Why readers of committed records do not get a record: its transaction was aborted, or an earlier one is open."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest first. Offsets of the log: `start` is the first one, `end` the next one to be written."""

    records: tuple[FetchedRecord, ...]
    start: int
    end: int
    stable_end: int
    """Where readers of committed records stop."""
    cut: bool = False
    """Some of the newest WANTED are left out, because they are large."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """By offset."""


def newest(cluster: Cluster, topic: str, partition: int, isolation: Isolation) -> Newest:
    """Raises ServerError."""
    start, end, stable_end = _limits(cluster, topic, partition)
    last = stable_end if isolation == "read_committed" else end
    distance = WANTED
    while True:
        position = max(last - distance, start)
        fetched = _fetch(cluster, topic, partition, position, isolation) if position < last else None
        if fetched is None:
            return Newest((), start, end, stable_end)
        if next_position(fetched, position) >= last or distance == 1:
            break
        distance = max(distance // NEARER, 1)
    found = [record for record in records(fetched, position) if record.offset < last]
    marks = _marks(cluster, fetched, position, found, stable_end) if isolation == "read_uncommitted" else {}
    cut = distance < WANTED and position > start
    return Newest(tuple(reversed(found)), start, end, stable_end, cut, marks)


def one(cluster: Cluster, topic: str, partition: int, offset: int) -> Newest:
    """A single record; none if the log has no such offset. Raises ServerError."""
    start, end, stable_end = _limits(cluster, topic, partition)
    fetched = _fetch(cluster, topic, partition, offset, "read_uncommitted") if start <= offset < end else None
    if fetched is None:
        return Newest((), start, end, stable_end)
    found = [record for record in records(fetched, offset) if record.offset == offset]
    return Newest(tuple(found), start, end, stable_end, marks=_marks(cluster, fetched, offset, found, stable_end))


def _limits(cluster: Cluster, topic: str, partition: int) -> tuple[int, int, int]:
    place = (topic, partition)
    start = cluster.offsets([place], "earliest")[place]
    stable_end = cluster.offsets([place], "latest", isolation="read_committed")[place]
    end = cluster.offsets([place], "latest")[place]
    return start, end, stable_end


def _marks(
    cluster: Cluster, fetched: FetchedPartition, position: int, found: list[FetchedRecord], stable_end: int
) -> dict[int, Mark]:
    marks: dict[int, Mark] = {record.offset: "open" for record in found if record.offset >= stable_end}
    if any(header.is_transactional for header, _ in data_batches(fetched, position)):
        committed = _fetch(cluster, fetched.topic, fetched.partition, position, "read_committed")
        if committed is not None:
            readable = {record.offset for record in records(committed, position)}
            reach = min(next_position(committed, position), stable_end)
            marks |= {
                record.offset: "aborted" for record in found if record.offset < reach and record.offset not in readable
            }
    return marks


def _fetch(
    cluster: Cluster, topic: str, partition: int, position: int, isolation: Isolation
) -> FetchedPartition | None:
    """None if there is nothing to read, or the leader does not answer this time."""
    found = cluster.fetch(
        {(topic, partition): position},
        max_wait_ms=WAIT_MS,
        min_bytes=0,
        max_bytes=BYTES,
        partition_max_bytes=BYTES,
        isolation=isolation,
    )
    for fetched in found:
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention was faster
            return None
        if fetched.error:
            raise server_error(fetched.error, f"cannot read {topic}-{partition}")
        return fetched if fetched.records else None
    return None
