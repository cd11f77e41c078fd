"""Decompresses the batches of a produce request in steps before they are appended, and compresses them with the codec
of their topic if that is another one.

Both may take a tenth of a second for one request: all other clients would wait. What is prepared is kept in the `Room`
of the request, where `validation` and `Partition.append` find it. They do at once what is not there: a batch that they
refuse for another reason (it is larger than its topic takes, or does not match its CRC) is not prepared, and nor is one
for which the earlier ones have left no room. Batches in lz4 and zstd are prepared only for another codec: the largest
takes ten milliseconds, and has no parts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from kohort.broker.logs.validation import Room
from kohort.broker.state import BrokerState
from kohort.broker.topics.topic_configs import TopicSettings
from kohort.wire.batches import HEADER_SIZE, check_crc, read_header
from kohort.wire.compression import (
    GZIP,
    SNAPPY,
    ExpansionLimit,
    compress_in_steps,
    decompress_in_steps,
)
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.produce import ProduceRequest, TopicProduceData

AT_ONCE = 16_384
"""Bytes of a request's batches that are done within three milliseconds."""
GROWS = (1, 16, 1, 4, 512, 1, 1, 1)
"""By codec: how many times more work a byte may be. A byte of gzip may expand a thousandfold, one of zstd more."""
_ATTRIBUTES, _CODEC, _TRANSACTIONAL = 22, 7, 16
"""The byte of a batch that says its codec, and whether it is part of a transaction."""

Batch = tuple[bytes, int | None]
"""A batch as it was sent, and the codec that its topic stores; None: any."""


def look_through(request: ProduceRequest) -> tuple[int, int, bool]:
    """One look at each batch: the number of partitions; the bytes that all batches may be, whatever their topics store;
    and whether a batch may be part of a transaction."""
    partitions = work = attributes = 0
    for topic in request.topic_data:
        partitions += len(topic.partition_data)
        for partition in topic.partition_data:
            data = partition.records
            if data is not None and len(data) >= HEADER_SIZE:
                own = data[_ATTRIBUTES]
                attributes |= own
                work += len(data) * GROWS[own & _CODEC]
    return partitions, work, bool(attributes & _TRANSACTIONAL)


def costly_batches(state: BrokerState, request: ProduceRequest, *, by_id: bool) -> list[Batch]:
    """The batches that must be decompressed or compressed, if that may take long; otherwise none."""
    found: list[Batch] = []
    size = 0
    for topic in request.topic_data:
        settings = _settings(state, topic, by_id=by_id)
        if settings is None:
            continue
        codec = settings.codec
        for partition in topic.partition_data:
            data = partition.records
            if data is None or not HEADER_SIZE < len(data) <= settings.max_message_bytes:
                continue
            own = data[_ATTRIBUTES] & _CODEC
            is_changed = codec is not None and codec != own
            if own in (GZIP, SNAPPY) or is_changed:
                found.append((data, codec))
                size += len(data) * GROWS[own]
    return found if size > AT_ONCE else []


def _settings(state: BrokerState, data: TopicProduceData, *, by_id: bool) -> TopicSettings | None:
    """None if there is no such topic: nothing of it is appended."""
    topic = state.catalog.by_id.get(data.topic_id) if by_id else state.topic(data.name)
    partition = None if topic is None else state.partition(topic, 0)
    return None if partition is None else partition.settings


def prepare(batches: Iterable[Batch], room: Room) -> Generator[int, None, None]:
    """Yields by how many bytes a step takes more."""
    left = whole = room.uncompressed_bytes
    for data, codec in batches:
        try:
            header = read_header(data)
            if header.size != len(data) or not check_crc(data, header):
                continue
        except ProtocolError:
            continue
        sliced = len(data) - HEADER_SIZE
        yield sliced
        records = data[HEADER_SIZE:]
        if header.compression:
            try:
                records = yield from decompress_in_steps(header.compression, records, left)
            except ProtocolError as error:
                if left == whole or not isinstance(error, ExpansionLimit):
                    room.expanded[id(data)] = error
                left = 0
                yield -sliced
                continue
            left -= len(records)
            room.expanded[id(data)] = records
        if codec is not None and codec != header.compression:
            room.compressed[id(data), codec] = yield from compress_in_steps(codec, records)
        del records
        yield -sliced
