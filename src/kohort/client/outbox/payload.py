"""The records of one outbox transaction: collected from the program, as record batches, as bytes in the row.

The row keeps the batches until Kafka has committed them, because Kafka may have aborted a transaction that timed out
before its commit; then they are sent again. The bytes are one of this module's format number and a ProduceRequest of
Kafka in version 9, in which each batch has an entry of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kohort.client.errors import Misuse
from kohort.client.metadata import TopicPartition
from kohort.client.records.partitioner import partition_for_key
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.codec import decode, encode
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FORMAT = 1
PRODUCE_VERSION = 9

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
BATCH_BYTES = 256 * 1024
"""A batch is closed at this size, so that topics with a smaller `max.message.bytes` than Kafka's default take it."""
RECORD_OVERHEAD = 32
"""About what a record takes besides its key, value and headers."""

Placed = tuple[TopicPartition, bytes]
"""A record batch and its partition."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record and where to: `partition` None leaves it to the key."""

    topic: str
    partition: int | None
    record: NewRecord


class Records:
    """The records of the block. They are sent when the block ends, before the database commits."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.outgoing: list[Outgoing] = []
        self.closed = False
        self._max_bytes = max_bytes
        self._bytes = 0

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | Iterable[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record to the transaction. Text is encoded as UTF-8.

        Without `partition`, the key's hash chooses it, as in Kafka's Java producer; records without key of one
        transaction and topic go to one partition. `timestamp_ms` None: now. Raises ValueError if the transaction gets
        larger than `max_bytes`, TypeError for other keys and values, Misuse after the block.
        """
        if self.closed:
            raise Misuse(f"the block has ended; a record for {topic} came too late")
        items = headers.items() if isinstance(headers, Mapping) else headers
        record = NewRecord(
            _bytes(key),
            _bytes(value),
            time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
            tuple(items),
        )
        self._bytes += _size(record)
        if self._bytes > self._max_bytes:
            raise ValueError(f"the transaction is larger than {self._max_bytes} bytes; see max_bytes")
        self.outgoing.append(Outgoing(topic, partition, record))


def in_batches(
    records: Sequence[Outgoing], partitions: Callable[[str], int], random: Random, batch_bytes: int = BATCH_BYTES
) -> list[Placed]:
    """Record batches in the order of each partition's records. `partitions` is the number of a topic's partitions."""
    keyless: dict[str, int] = {}
    waiting: dict[TopicPartition, list[NewRecord]] = {}
    sizes: dict[TopicPartition, int] = {}
    batches: list[Placed] = []
    for outgoing in records:
        place = outgoing.topic, _partition(outgoing, partitions, keyless, random)
        size = _size(outgoing.record)
        if place in waiting and sizes[place] + size > batch_bytes:
            batches.append((place, encode_batch(waiting.pop(place))))
        if place not in waiting:
            sizes[place] = 0
        waiting.setdefault(place, []).append(outgoing.record)
        sizes[place] += size
    return batches + [(place, encode_batch(rest)) for place, rest in waiting.items()]


def packed(batches: Sequence[Placed]) -> bytes:
    """The batches as bytes for the row."""
    topics = tuple(
        TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=index, records=batch),))
        for (topic, index), batch in batches
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=0, topic_data=topics)
    return bytes((FORMAT,)) + encode(request, PRODUCE_VERSION)


def unpacked(data: bytes) -> list[Placed]:
    """The batches in the row. Raises ValueError for a format of another version of this library."""
    if not data or data[0] != FORMAT:
        raise ValueError(
            f"the outbox's row has records of format {data[:1].hex() or 'none'}; this version reads {FORMAT}"
        )
    request = decode(ProduceRequest, PRODUCE_VERSION, data, 1)
    return list(_placed(request))


def _placed(request: ProduceRequest) -> Iterator[Placed]:
    for topic in request.topic_data:
        for entry in topic.partition_data:
            yield (topic.name, entry.index), entry.records or b""


def _partition(outgoing: Outgoing, partitions: Callable[[str], int], keyless: dict[str, int], random: Random) -> int:
    if outgoing.partition is not None:
        return outgoing.partition
    if outgoing.record.key is not None:
        return partition_for_key(outgoing.record.key, partitions(outgoing.topic))
    if outgoing.topic not in keyless:
        keyless[outgoing.topic] = random.randrange(partitions(outgoing.topic))
    return keyless[outgoing.topic]


def _bytes(data: bytes | str | None) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"a key or value is bytes, str or None, not {type(data).__name__}")


def _size(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + headers
