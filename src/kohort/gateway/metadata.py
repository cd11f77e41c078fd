"""Metadata answers of any size, read a part at a time. Without IO.

With 100,000 partitions an answer has four megabytes, and to decode it takes a fifth of a second, in which all clients
wait. The brokers come first. So of a large answer that passes, the brokers alone are read and written again, and the
rest leaves as it comes. The gateway's own answers are read topic by topic (`topics_of`), with other work in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from kohort.wire.codec import decode_prefix, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_unsigned_varint, skip_tagged_fields, unsigned_varint
from kohort.wire.schema import NO_UUID, field, message
from kohort.wire.schemas.metadata import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic

LARGE_BYTES = 262_144
"""An answer of this size takes ten milliseconds to decode and encode."""
PARTITIONS_A_STEP = 500
"""Some milliseconds."""
MOST_REPLICAS = 1_000
LENGTH = Struct(">i")
SHORT = Struct(">h")
HEAD = 4 + 4
"""The length of the frame and the correlation id."""
FLEXIBLE, THROTTLE, CLUSTER_ID, CONTROLLER, OFFLINE, EPOCH, IDS, INTERNAL, OPERATIONS = 9, 3, 2, 1, 5, 7, 10, 1, 8
"""The first versions with these fields."""


@message(versions="0-13", flexible="9+")
class BrokerRow:
    """A broker by itself; `MetadataResponseBroker` is a part of a message."""

    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", "1+", nullable="1+", default=None)


class Beginning(NamedTuple):
    """What comes before the topics."""

    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: str | None
    start: int
    """Where the array of brokers begins, and where it ends."""
    end: int
    topics: int
    """Where the array of topics begins."""


def beginning_of(frame: bytes, version: int) -> Beginning:
    """`frame` has its length, and may lack the end. Raises ProtocolError if it ends too early, or makes no sense."""
    try:
        start = position = HEAD if version < FLEXIBLE else skip_tagged_fields(frame, HEAD)
        if version >= THROTTLE:
            start = position = position + LENGTH.size
        count, position = _count(frame, position, version)
        rows = []
        for _ in range(count):
            row, position = decode_prefix(BrokerRow, version, frame, position)
            rows.append(MetadataResponseBroker(node_id=row.node_id, host=row.host, port=row.port, rack=row.rack))
        end, cluster_id = position, None
        if version >= CLUSTER_ID:
            cluster_id, position = _string(frame, position, version)
        if version >= CONTROLLER:
            position += LENGTH.size
    except (error, IndexError, UnicodeDecodeError) as failure:
        raise ProtocolError(f"Metadata v{version}: {failure}") from None
    if position >= len(frame):
        raise ProtocolError(f"Metadata v{version}: cut short at {len(frame)} bytes")
    return Beginning(tuple(rows), cluster_id, start, end, position)


def with_brokers(
    frame: bytes, version: int, beginning: Beginning, brokers: tuple[MetadataResponseBroker, ...]
) -> bytes:
    """The part of an answer that has arrived, with other brokers. The length at its beginning is that of the whole new
    answer."""
    rows = [encode(BrokerRow(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack), version) for b in brokers]
    count = unsigned_varint(1 + len(rows)) if version >= FLEXIBLE else LENGTH.pack(len(rows))
    array = b"".join((count, *rows))
    (length,) = LENGTH.unpack_from(frame)
    length += len(array) - (beginning.end - beginning.start)
    return b"".join((LENGTH.pack(length), frame[LENGTH.size : beginning.start], array, frame[beginning.end :]))


def topics_of(frame: bytes, version: int, position: int) -> Iterator[list[MetadataResponseTopic]]:
    """The topics from `position` on, in steps. A list may be empty. Of partitions, the index, the leader and the
    replicas are read. Raises ProtocolError."""
    try:
        count, position = _count(frame, position, version)
        rows: list[MetadataResponseTopic] = []
        weight = 0
        for _ in range(count):
            (code,) = SHORT.unpack_from(frame, position)
            name, position = _string(frame, position + SHORT.size, version)
            topic_id = NO_UUID
            if version >= IDS:
                topic_id, position = frame[position : position + 16], position + 16
            is_internal = False
            if version >= INTERNAL:
                is_internal, position = bool(frame[position]), position + 1
            left, position = _count(frame, position, version)
            partitions: list[MetadataResponsePartition] = []
            while left:
                step = min(left, PARTITIONS_A_STEP - weight)
                position = _partitions(frame, version, position, step, partitions)
                left, weight = left - step, weight + step
                if weight >= PARTITIONS_A_STEP:
                    yield rows
                    rows, weight = [], 0
            if version >= OPERATIONS:
                position += LENGTH.size
            if version >= FLEXIBLE:
                position = skip_tagged_fields(frame, position)
            rows.append(
                MetadataResponseTopic(
                    error_code=code,
                    name=name,
                    topic_id=topic_id,
                    is_internal=is_internal,
                    partitions=tuple(partitions),
                )
            )
            weight += 1
        yield rows
    except (error, IndexError, UnicodeDecodeError) as failure:
        raise ProtocolError(f"Metadata v{version}: {failure}") from None
    if position > len(frame):
        raise ProtocolError(f"Metadata v{version}: cut short at {len(frame)} bytes")


_PARTITION, _PARTITION_WITH_EPOCH = Struct(">hii"), Struct(">hiii")


def _partitions(frame: bytes, version: int, position: int, count: int, into: list[MetadataResponsePartition]) -> int:
    """Read so many partitions. Returns the position after them."""
    fixed = _PARTITION_WITH_EPOCH if version >= EPOCH else _PARTITION
    more = 2 if version >= OFFLINE else 1
    is_flexible = version >= FLEXIBLE
    for _ in range(count):
        row = fixed.unpack_from(frame, position)
        size, position = _count(frame, position + fixed.size, version)
        if size > MOST_REPLICAS:
            raise ProtocolError(f"Metadata v{version}: a partition has {size} replicas")
        replicas = _REPLICAS[size] if size < len(_REPLICAS) else Struct(f">{size}i")
        into.append(
            MetadataResponsePartition(
                error_code=row[0],
                partition_index=row[1],
                leader_id=row[2],
                replica_nodes=replicas.unpack_from(frame, position),
                isr_nodes=(),
            )
        )
        position += replicas.size
        for _ in range(more):
            size, position = _count(frame, position, version)
            position += LENGTH.size * size
        if is_flexible:
            position = position + 1 if not frame[position] else skip_tagged_fields(frame, position)
    return position


_REPLICAS = tuple(Struct(f">{size}i") for size in range(8))


def _count(frame: bytes, position: int, version: int) -> tuple[int, int]:
    """The number of an array's elements, and the position after it."""
    if version < FLEXIBLE:
        (count,) = LENGTH.unpack_from(frame, position)
        position += LENGTH.size
    else:
        first = frame[position]
        if first < 128:
            return max(first - 1, 0), position + 1
        count, position = read_unsigned_varint(frame, position)
        count -= 1
    if count > len(frame):
        raise ProtocolError(f"Metadata v{version}: an array of {count} elements")
    return max(count, 0), position


def _string(frame: bytes, position: int, version: int) -> tuple[str | None, int]:
    if version < FLEXIBLE:
        (size,) = SHORT.unpack_from(frame, position)
        position += SHORT.size
    else:
        size, position = read_unsigned_varint(frame, position)
        size -= 1
    if size < 0:
        return None, position
    end = position + size
    if end > len(frame):
        raise ProtocolError(f"Metadata v{version}: cut short at {len(frame)} bytes")
    return frame[position:end].decode(), end
