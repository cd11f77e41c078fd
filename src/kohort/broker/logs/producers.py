"""The producers of a partition: sequence numbers, epochs and open transactions.

A producer numbers its records per partition. A batch is accepted when its numbers follow the last batch. A copy of
one of the last five batches is a repeat. Its answer has the offsets of the original.

Nothing is written for this, because each stored batch names its producer, its numbers, the transaction that it belongs
to and the newest coordinator epoch of the producer. After a restart, a producer's last batches are read when that
producer sends again. A trim that removes all records of a producer keeps its state beside the log (`KeepProducers`):
markers that stay do not say which sequence number comes next.

Rules: Kafka's ProducerAppendInfo and ProducerStateEntry. A producer that is unknown, or silent for longer than
producer.id.expiration.ms, may begin with any sequence number; a new epoch begins with 0. A producer with an open
transaction does not expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from kohort.broker.logs.transactions import Transactions
from kohort.storage.protocol import KeepProducers, LogKey, ProducerBatch, Storage, StorageError
from kohort.wire.batches import BatchHeader
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker

REMEMBERED_BATCHES = 5
"""Clients keep at most five requests in flight, so older batches are not repeated."""
REMEMBERED_PRODUCERS = 1000
"""Producers of a partition in memory, besides those with open transactions. Others are read from storage again when
they return."""
REMEMBERED_IN_ALL = 100_000
"""Producers of all partitions of the process in memory: 30 MB. Beyond it, a partition that is written to remembers
FEW_PRODUCERS."""
FEW_PRODUCERS = 10
PRODUCERS_A_LOOK = 100
"""Producers that are listed at a time: a millisecond or two."""
MAX_SEQUENCE = 2**31 - 1
LAST_EPOCH = 2**15 - 1
"""Markers alone have it. The producer gets another id afterwards, so a repeated marker cannot have a higher epoch."""
NEW_EPOCHS = 2
"""The transaction version from which on each transaction has an epoch of its own, and its marker one more (KIP-890)."""
NONE = -1


class Written(msgspec.Struct, frozen=True, array_like=True):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Producer(msgspec.Struct, array_like=True):
    """Kafka's ProducerStateEntry. The offset at which the open transaction begins is in `Transactions`."""

    epoch: int
    last_seen_ms: int
    """When it last wrote, by the server's clock."""
    last_timestamp: int
    """The newest timestamp of its last batch or marker."""
    last_offset: int
    coordinator_epoch: int = NONE
    """Of its newest marker."""
    batches: list[Written] = msgspec.field(default_factory=list)
    """Its last batches of the present epoch that have sequence numbers."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE


class _Kept(msgspec.Struct, array_like=True):
    producer_id: int
    producer: Producer
    open_since: int


class ProducerState(msgspec.Struct, frozen=True):
    """What tools are told of a producer. Each -1 if there is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    open_since: int
    """The offset at which its open transaction begins."""


def sequence_after(sequence: int, steps: int) -> int:
    """Sequence numbers wrap from 2^31 - 1 to 0."""
    return (sequence + steps) & MAX_SEQUENCE


class _InAll:
    """How many producers all partitions of the process remember."""

    remembered = 0


class Producers:
    def __init__(self, log: LogKey, storage: Storage, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self._counted = 0
        """Of them, how many are this partition's."""
        self._log = log
        self._storage = storage
        self._known: dict[int, Producer] = {}
        """In the order of their last batches."""
        self._transactions: Transactions | None = None
        self._kept: dict[int, _Kept] | None = None
        """The producers whose records were all trimmed, as far as storage keeps them."""

    @property
    def transactions(self) -> Transactions:
        """Read from storage on first use."""
        if self._transactions is None:
            self._transactions = self._stored_transactions()
        return self._transactions

    @property
    def has_open(self) -> bool:
        """True if a transaction is open. False before its first use, for which nothing is read."""
        return self._transactions is not None and bool(self._transactions.open)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has an open transaction here in this epoch."""
        if producer_id not in self.transactions.open:
            return False
        producer = self._known.get(producer_id) or self._stored(producer_id, 0)
        return producer is not None and producer.epoch == epoch

    # -- checks

    def check(self, header: BatchHeader, now: int, *, new_epochs: bool = False) -> ErrorCode | Written:
        """NONE when a client's batch may be appended, an error, or the batch that it repeats.

        With `new_epochs`, the producer gets a new epoch with each transaction, so an unknown one begins a transaction
        with 0."""
        producer = self._producer(header.producer_id, now)
        if producer is None:
            if header.producer_epoch < NONE:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            refused = new_epochs and header.base_sequence != 0 and header.is_transactional
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if refused else ErrorCode.NONE
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > producer.epoch:
            expected = 0
        else:
            last_sequence = sequence_after(header.base_sequence, header.record_count - 1)
            for written in producer.batches:
                if (written.first_sequence, written.last_sequence) == (header.base_sequence, last_sequence):
                    return written
            expected = sequence_after(producer.last_sequence, 1)
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_open = self.transactions.open
        if is_open and header.producer_id in is_open and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def check_epoch(self, producer_id: int, epoch: int, now: int) -> ErrorCode:
        """For a batch of the coordinator's own, which has no sequence number."""
        producer = self._producer(producer_id, now)
        if producer is not None and epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.NONE

    def check_marker(self, marker: Marker, version: int, now: int) -> ErrorCode:
        """An equal epoch, where a higher one is due, is a repeated marker (KAFKA-19999)."""
        producer = self._producer(marker.producer_id, now)
        if producer is None:
            return ErrorCode.NONE
        is_open = marker.producer_id in self.transactions.open
        due = version >= NEW_EPOCHS and is_open and marker.epoch < LAST_EPOCH
        if marker.epoch < producer.epoch + due:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    # -- notes of what is appended

    def remember(self, header: BatchHeader, base_offset: int, timestamp: int, now: int) -> int:
        """Note a batch that `check` found new and that is being appended. Returns the producer's coordinator epoch."""
        producer = self._renewed(header.producer_id, header.producer_epoch, now)
        producer.last_timestamp = timestamp
        producer.last_offset = base_offset + header.last_offset_delta
        batches = producer.batches
        if batches and header.base_sequence != sequence_after(batches[-1].last_sequence, 1):
            batches.clear()  # it was expired
        batches.append(_written(header.base_sequence, header.last_offset_delta, base_offset, timestamp))
        del batches[:-REMEMBERED_BATCHES]
        return producer.coordinator_epoch

    def remember_other(
        self, producer_id: int, epoch: int, last_offset: int, now: int, coordinator_epoch: int = NONE
    ) -> int:
        """Note a batch without sequence numbers, whose timestamp is `now`. Returns the producer's coordinator epoch."""
        producer = self._renewed(producer_id, epoch, now)
        producer.last_timestamp = now
        producer.last_offset = last_offset
        producer.coordinator_epoch = max(coordinator_epoch, producer.coordinator_epoch)
        return producer.coordinator_epoch

    def _renewed(self, producer_id: int, epoch: int, now: int) -> Producer:
        """The producer, as the one that wrote last. A new epoch clears its sequence numbers."""
        producer = self._known.pop(producer_id, None)
        if producer is None:
            producer = Producer(epoch, now, NONE, NONE)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        self._known[producer_id] = producer
        producer.last_seen_ms = now
        return producer

    def forget_some(self) -> None:
        """Limit the memory. Call this only when all remembered batches are in storage."""
        self._count()
        most = REMEMBERED_PRODUCERS if _InAll.remembered <= REMEMBERED_IN_ALL else FEW_PRODUCERS
        if len(self._known) <= most:
            return
        is_open = self._transactions.open if self._transactions is not None else {}
        surplus = len(self._known) - len(is_open) - most
        for producer_id in list(self._known):
            if surplus <= 0:
                break
            if producer_id not in is_open:
                del self._known[producer_id]
                surplus -= 1
        self._count()

    def _count(self) -> None:
        _InAll.remembered += len(self._known) - self._counted
        self._counted = len(self._known)

    def __del__(self) -> None:
        _InAll.remembered -= self._counted

    # -- trims

    def kept_by_trim(self, offset: int, now: int) -> KeepProducers | None:
        """Keeps the state of the producers whose records all lie below `offset`. None if nothing changes."""
        kept = self._kept_producers()
        left = {entry.producer_id: entry for entry in kept.values() if self._is_needed(entry, now)}
        oldest = now - self.expiration_ms
        is_open = self.transactions.open
        for last in self._storage.producers_ending_before(self._log, offset):
            producer_id = last.producer_id
            if producer_id not in self._known and last.max_timestamp < oldest and producer_id not in is_open:
                continue  # Only what may return is read.
            producer = self._producer(producer_id, now)
            if producer is not None and (not producer.batches or producer.batches[-1].base_offset < offset):
                left[producer_id] = _Kept(producer_id, _copy(producer), is_open.get(producer_id, NONE))
        if left == kept:
            return None
        self._kept = left
        return KeepProducers(self._log, msgspec.msgpack.encode(list(left.values())) if left else b"")

    def _is_needed(self, kept: _Kept, now: int) -> bool:
        """False if the producer is expired, or if what it has written since says all about it."""
        producer = self._known.get(kept.producer_id) or self._stored(kept.producer_id, NONE)
        if producer is None or producer.epoch != kept.producer.epoch:
            return False
        if producer.batches and producer.batches[-1].base_offset > kept.producer.last_offset:
            return False
        seen_ms = max(producer.last_seen_ms, producer.last_timestamp)
        return now - seen_ms < self.expiration_ms or kept.producer_id in self.transactions.open

    # -- what storage knows

    def producer_ids(self) -> Iterator[list[int]]:
        """Of all producers that storage or memory knows, some at a time. Some may be expired."""
        found: set[int] = set()
        last = -1
        while ids := self._storage.producers(self._log, last, PRODUCERS_A_LOOK):
            found.update(ids)
            yield ids
            last = ids[-1]
        yield sorted(({*self._kept_producers()} | {*self._known}) - found)

    def state(self, producer_id: int, now: int) -> ProducerState | None:
        """None for a producer that is unknown or expired. One that has not written since the start has the age of its
        newest record, as in Kafka."""
        producer = self._known.get(producer_id)
        if producer is not None:
            seen_ms = producer.last_seen_ms
        else:
            producer = self._stored(producer_id, NONE)
            if producer is None:
                return None
            seen_ms = max(producer.last_seen_ms, producer.last_timestamp)
        open_since = self.transactions.open.get(producer_id, NONE)
        if open_since == NONE and now - seen_ms >= self.expiration_ms:
            return None
        return ProducerState(
            producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            open_since,
        )

    def _producer(self, producer_id: int, now: int) -> Producer | None:
        producer = self._known.get(producer_id)
        if producer is None:
            # After a restart the time of its last batch is unknown (records may have any timestamps). It counts as
            # now, so that the producer is remembered for too long rather than too short a time.
            producer = self._stored(producer_id, now)
            if producer is None or self._is_remnant(producer_id, producer, now):
                return None
            self._known[producer_id] = producer
        return None if self._is_expired(producer_id, producer, now) else producer

    def _is_remnant(self, producer_id: int, producer: Producer, now: int) -> bool:
        """True if only an old marker is left: compaction has dropped the records of an expired producer, and the next
        sequence number is unknown."""
        expired = now - producer.last_timestamp >= self.expiration_ms
        return expired and not producer.batches and producer_id not in self.transactions.open

    def _is_expired(self, producer_id: int, producer: Producer, now: int) -> bool:
        return now - producer.last_seen_ms >= self.expiration_ms and producer_id not in self.transactions.open

    def _stored(self, producer_id: int, seen_ms: int) -> Producer | None:
        """`seen_ms`: when a producer counts as seen that has batches."""
        kept = self._kept_producers().get(producer_id)
        last = self._storage.last_of_producer(self._log, producer_id)
        if last is None:
            return None if kept is None else _copy(kept.producer)
        batches = self._storage.producer_batches(self._log, producer_id, REMEMBERED_BATCHES)
        producer = _producer_of(last, batches, seen_ms)
        if kept is not None and kept.producer.epoch == producer.epoch:
            end = producer.batches[0].base_offset if producer.batches else last.last_offset
            producer.batches[:0] = [written for written in kept.producer.batches if written.base_offset < end]
        producer.batches = _last_of_sequence(producer.batches)
        return producer

    def _stored_transactions(self) -> Transactions:
        aborted = [
            (batch.producer_id, batch.transaction_start, batch.base_offset)
            for batch in self._storage.aborted_transactions(self._log)
        ]
        return Transactions.resumed(self._stored_open(), aborted)

    def _stored_open(self) -> dict[int, int]:
        """By producer: where its open transaction begins. Raises StorageError if storage has lost one."""
        info = self._storage.log_info(self._log)
        if info is None or not info.open_transactions:
            return {}
        begun = {batch.producer_id: batch.transaction_start for batch in self._storage.open_transactions(self._log)}
        for kept in self._kept_producers().values():
            if kept.open_since >= 0 and self._storage.last_of_producer(self._log, kept.producer_id) is None:
                begun[kept.producer_id] = kept.open_since
        if len(begun) != info.open_transactions:
            raise StorageError(
                f"the stored data is damaged: log {self._log.topic_id.hex()}-{self._log.partition} has "
                f"{info.open_transactions} open transactions, and {len(begun)} are found. Restore the data directory "
                "from a backup, or rebuild the indexes of kohort.db with SQLite's REINDEX"
            )
        return begun

    def _kept_producers(self) -> dict[int, _Kept]:
        if self._kept is None:
            data = self._storage.kept_producers(self._log)
            kept = msgspec.msgpack.decode(data, type=list[_Kept]) if data else ()
            self._kept = {entry.producer_id: entry for entry in kept}
        return self._kept


def _copy(producer: Producer) -> Producer:
    return msgspec.structs.replace(producer, batches=list(producer.batches))


def _producer_of(last: ProducerBatch, batches: Sequence[ProducerBatch], seen_ms: int) -> Producer:
    epoch = last.producer_epoch
    return Producer(
        epoch,
        seen_ms,
        last.max_timestamp,
        last.last_offset,
        last.coordinator_epoch,
        [
            _written(batch.base_sequence, batch.last_offset - batch.base_offset, batch.base_offset, batch.max_timestamp)
            for batch in batches
            if batch.producer_epoch == epoch and batch.base_sequence >= 0
        ],
    )


def _last_of_sequence(batches: list[Written]) -> list[Written]:
    """The last batches whose sequence numbers have no gap: a gap is where an expired producer has begun again."""
    first = len(batches) - 1
    while first > 0 and batches[first].first_sequence == sequence_after(batches[first - 1].last_sequence, 1):
        first -= 1
    return batches[max(first, 0) :][-REMEMBERED_BATCHES:]


def _written(first_sequence: int, last_offset_delta: int, base_offset: int, timestamp: int) -> Written:
    # Not the record count: compaction leaves fewer records, and keeps the last offset.
    return Written(first_sequence, sequence_after(first_sequence, last_offset_delta), base_offset, timestamp)
