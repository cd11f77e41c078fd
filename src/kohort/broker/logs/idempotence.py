"""Idempotent producers of a partition: distinguishes new batches, repeats and wrong batches.

A producer numbers its records per partition. A batch is accepted when its numbers follow the last batch. A copy of
one of the last five batches is a repeat. Its answer has the offsets of the original. Nothing is stored for this: each
stored batch names its producer and its numbers, so after a restart a producer's last batches are read when that
producer sends again.

Rules: Kafka's ProducerAppendInfo and ProducerStateEntry. A producer that is unknown, or silent for longer than
producer.id.expiration.ms, may begin with any sequence number; a new epoch begins with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kohort.storage.protocol import StoredBatch
from kohort.wire.batches import BatchHeader, read_header
from kohort.wire.errors import ErrorCode

REMEMBERED_BATCHES = 5
"""Clients keep at most five requests in flight, so older batches are not repeated."""
REMEMBERED_PRODUCERS = 1000
"""Producers of a partition in memory. Others are read from storage again when they return."""
MAX_SEQUENCE = 2**31 - 1


class Written(msgspec.Struct, frozen=True):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class _Producer(msgspec.Struct):
    epoch: int
    last_seen_ms: int
    batches: list[Written] = msgspec.field(default_factory=list)


def sequence_after(sequence: int, steps: int) -> int:
    """Sequence numbers wrap from 2^31 - 1 to 0."""
    return (sequence + steps) & MAX_SEQUENCE


class Producers:
    """`load` gives the last batches of a producer from storage, oldest first."""

    def __init__(self, load: Callable[[int, int], Sequence[StoredBatch]], expiration_ms: int) -> None:
        self._load = load
        self.expiration_ms = expiration_ms
        self._known: dict[int, _Producer] = {}
        """In the order of their last batches."""

    def check(self, header: BatchHeader, now: int) -> ErrorCode | Written:
        """NONE when the batch may be appended, an error, or the batch that it repeats."""
        producer = self._producer(header.producer_id, now)
        if producer is None:
            return ErrorCode.NONE
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > producer.epoch:
            return ErrorCode.NONE if header.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        last_sequence = sequence_after(header.base_sequence, header.record_count - 1)
        for written in producer.batches:
            if (written.first_sequence, written.last_sequence) == (header.base_sequence, last_sequence):
                return written
        if header.base_sequence == sequence_after(producer.batches[-1].last_sequence, 1):
            return ErrorCode.NONE
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def remember(self, header: BatchHeader, base_offset: int, timestamp: int, now: int) -> None:
        """Note a batch that `check` found new and that is being appended."""
        producer = self._known.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch or self._is_expired(producer, now):
            producer = _Producer(header.producer_epoch, now)
        self._known[header.producer_id] = producer
        producer.last_seen_ms = now
        producer.batches.append(_written(header, base_offset, timestamp))
        del producer.batches[:-REMEMBERED_BATCHES]

    def forget_some(self) -> None:
        """Limit the memory. Call this only when all remembered batches are in storage."""
        while len(self._known) > REMEMBERED_PRODUCERS:
            del self._known[next(iter(self._known))]

    def _producer(self, producer_id: int, now: int) -> _Producer | None:
        producer = self._known.get(producer_id)
        if producer is None:
            batches = self._load(producer_id, REMEMBERED_BATCHES)
            if not batches:
                return None
            # After a restart the time of its last batch is unknown (records may have any timestamps). It counts as
            # now, so that the producer is remembered for too long rather than too short a time.
            headers = [read_header(batch.data) for batch in batches]
            producer = _Producer(headers[-1].producer_epoch, now)
            producer.batches.extend(
                _written(header, header.base_offset, header.max_timestamp)
                for header in headers
                if header.producer_epoch == producer.epoch
            )
            self._known[producer_id] = producer
        return None if self._is_expired(producer, now) else producer

    def _is_expired(self, producer: _Producer, now: int) -> bool:
        return now - producer.last_seen_ms >= self.expiration_ms


def _written(header: BatchHeader, base_offset: int, timestamp: int) -> Written:
    # Not the record count: compaction leaves fewer records, and keeps the last offset.
    last_sequence = sequence_after(header.base_sequence, header.last_offset_delta)
    return Written(header.base_sequence, last_sequence, base_offset, timestamp)
