"""One partition's log: gives appended batches their offsets, and reads.

A partition keeps its state in memory and never writes. An append returns the operation that the turn has to commit, and
moves `end_offset` at once, so that the next append of the turn follows it and a repeated batch within the turn is
noticed. `high_watermark` follows when the turn is durable (`committed`); reads end there.

Transactions. Readers of committed records end at `last_stable_offset`, before the first record of the oldest open
transaction. It moves when the turn is durable, too. What is open or aborted is read from storage on first use.

Reads. With a `tail` (tails.py), `read` never waits for storage: what is not in the tail is `found` by an earlier turn's
read (waits/reads.py). Without one, storage is read at once: it is in memory.

Epochs. Each batch carries the leader epoch in which it was written. Where an epoch begins is found by bisecting the
log, on first use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from kohort.broker.logs.producers import Producers, ProducerState, Written
from kohort.broker.logs.tails import Tail, within
from kohort.broker.logs.time_search import MAX_STORED_BYTES, Located, Search, first_record
from kohort.broker.logs.transactions import Aborted
from kohort.broker.logs.validation import InvalidAppend, Room, validate
from kohort.broker.topics.topic_configs import TopicSettings
from kohort.storage.protocol import (
    ABORT_MARKER,
    COMMIT_MARKER,
    PLAIN,
    TRANSACTIONAL,
    Append,
    KeepProducers,
    LogInfo,
    LogKey,
    Replace,
    Storage,
    StoredBatch,
    Trim,
)
from kohort.wire.batches import (
    NewRecord,
    batch_around,
    encode_batch,
    patch,
    recompress,
    set_log_append_time,
    with_body,
)
from kohort.wire.errors import ErrorCode
from kohort.wire.markers import Marker, marker_batch

UNKNOWN = -1
_NOT_READ = -2


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an append. A refused or repeated batch has no operations."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    refused_records: tuple[int, ...] = ()
    """Indexes in the batch of the records that caused the refusal of the whole batch."""
    base_offset: int = UNKNOWN
    log_append_time_ms: int = UNKNOWN
    """-1 unless the topic has LogAppendTime."""
    operations: tuple[Append, ...] = ()
    size: int = 0
    """Bytes appended."""


class KeyedRecord(Protocol):
    """A record of the broker's own logs; a value of None is a tombstone."""

    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes | None: ...


class Partition:
    """`info` is the log in storage; None if this turn creates the log."""

    def __init__(
        self,
        log: LogKey,
        settings: TopicSettings,
        leader_epoch: int,
        storage: Storage,
        info: LogInfo | None = None,
        tail: Tail | None = None,
    ) -> None:
        self.log = log
        self.tail = tail
        self.start_offset = 0 if info is None else info.start_offset
        self.end_offset = 0 if info is None else info.end_offset
        """The offset that the next record gets."""
        self.high_watermark = self.end_offset
        self.fetched_bytes = 0
        """Of the answers to fetches, since the start."""
        self.settings = settings
        self.leader_epoch = leader_epoch
        self._storage = storage
        self._pending_bytes = 0
        self._producers = Producers(log, storage, settings.producer_id_expiration_ms)
        self._unstable_from = _NOT_READ
        """Where the oldest open transaction began when the last turn was durable; -1 if none was open."""
        self._epochs: list[tuple[int, int]] | None = None
        """Each epoch and the offset where it begins, ascending; the last is the current one. None until first used."""

    def follow(self, end_offset: int, start_offset: int = 0) -> None:
        """The log is another cluster's or another node's, and ends here."""
        self.end_offset = self.high_watermark = end_offset
        self.start_offset = start_offset

    def configure(self, settings: TopicSettings, leader_epoch: int) -> None:
        """Take changed settings, or a new leader epoch, which begins at the end offset."""
        self.settings = settings
        self._producers.expiration_ms = settings.producer_id_expiration_ms
        if leader_epoch != self.leader_epoch:
            epochs = [entry for entry in self._known_epochs() if entry[1] < self.end_offset]
            self._epochs = [*epochs, (leader_epoch, self.end_offset)]
            self.leader_epoch = leader_epoch

    @property
    def size(self) -> int:
        """Bytes of all batches, including those of this turn."""
        info = self._storage.log_info(self.log)
        return (0 if info is None else info.size) + self._pending_bytes

    @property
    def has_pending(self) -> bool:
        """True if this turn appended something."""
        return self.end_offset > self.high_watermark

    # -- appending

    def append(self, data: bytes, now: int, room: Room | None = None, *, new_epochs: bool = False) -> Appended:
        """Validate a client's batch, check its sequence and number it. `room` is the unused part of its request's
        limits.

        A batch of a transaction is accepted: the caller has asked the coordinator (or `has_open`). `new_epochs`: the
        producer gets a new epoch with each transaction (Produce 12 and later)."""
        try:
            header = validate(data, self.settings, now, room)
        except InvalidAppend as refused:
            return Appended(refused.error, refused.message, refused_records=refused.records)
        if header.producer_id >= 0:
            verdict = self._producers.check(header, now, new_epochs=new_epochs)
            if isinstance(verdict, Written):
                time = verdict.timestamp if self.settings.log_append_time else UNKNOWN
                return Appended(base_offset=verdict.base_offset, log_append_time_ms=time)
            if verdict is not ErrorCode.NONE:
                return Appended(verdict, _refusal(verdict, header.producer_id))
        if self.settings.codec is not None and self.settings.codec != header.compression:
            body = None if room is None else room.compressed.pop((id(data), self.settings.codec), None)
            if body is not None:
                data = with_body(data, header, self.settings.codec, body)
            else:
                data = recompress(data, header, self.settings.codec, max_bytes=MAX_STORED_BYTES)
        base_offset = self.end_offset
        timestamp = header.max_timestamp
        batch = patch(data, base_offset, self.leader_epoch)
        if self.settings.log_append_time:
            timestamp = now
            batch = set_log_append_time(batch, now)
        time = timestamp if self.settings.log_append_time else UNKNOWN
        count = header.record_count
        if header.producer_id < 0:
            return self._append(batch, count, timestamp, append_time=time)
        coordinator_epoch = self._producers.remember(header, base_offset, timestamp, now)
        kind, begun = PLAIN, UNKNOWN
        if header.is_transactional:
            kind, begun = TRANSACTIONAL, self._producers.transactions.appended(header.producer_id, base_offset)
        stored = self._stored(batch, count, timestamp, header.producer_id, kind, begun, coordinator_epoch)
        return self._appended(stored, append_time=time)

    def append_records(
        self, records: Sequence[KeyedRecord], now: int, *, producer: tuple[int, int] | None = None
    ) -> Appended:
        """The broker's own records, as one batch. With a `producer` (id and epoch) the batch belongs to its
        transaction, and an older epoch is refused."""
        if producer is not None:
            return self._append_to_transaction(records, now, *producer)
        batch = encode_batch(
            [NewRecord(record.key, record.value, now) for record in records],
            base_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
        )
        return self._append(batch, len(records), now, own=True)

    def _append_to_transaction(
        self, records: Sequence[KeyedRecord], now: int, producer_id: int, epoch: int
    ) -> Appended:
        error = self._producers.check_epoch(producer_id, epoch, now)
        if error:
            return Appended(error, _refusal(error, producer_id))
        base_offset, count = self.end_offset, len(records)
        batch = encode_batch(
            [NewRecord(record.key, record.value, now) for record in records],
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            leader_epoch=self.leader_epoch,
            is_transactional=True,
        )
        begun = self._producers.transactions.appended(producer_id, base_offset)
        coordinator_epoch = self._producers.remember_other(producer_id, epoch, base_offset + count - 1, now)
        return self._appended(self._stored(batch, count, now, producer_id, TRANSACTIONAL, begun, coordinator_epoch))

    def append_marker(self, marker: Marker, now: int, *, version: int = 0) -> Appended:
        """End the producer's transaction, if one is open here. `version` is the transaction version: from 2 on, the
        marker of an open transaction has a higher epoch than its records."""
        error = self._producers.check_marker(marker, version, now)
        if error:
            return Appended(error, _refusal(error, marker.producer_id))
        if self._unstable_from == _NOT_READ:
            self._note_unstable()
        offset = self.end_offset
        batch = marker_batch(marker, now, base_offset=offset, leader_epoch=self.leader_epoch)
        begun = self._producers.transactions.ended(marker.producer_id, committed=marker.committed, marker_offset=offset)
        coordinator_epoch = self._producers.remember_other(
            marker.producer_id, marker.epoch, offset, now, marker.coordinator_epoch
        )
        kind = COMMIT_MARKER if marker.committed else ABORT_MARKER
        return self._appended(self._stored(batch, 1, now, marker.producer_id, kind, begun, coordinator_epoch))

    def append_encoded(self, records: bytes, count: int, now: int) -> Appended:
        """The broker's own records, encoded as in a batch, with the timestamp `now`."""
        batch = batch_around(records, count, now, base_offset=self.end_offset, leader_epoch=self.leader_epoch)
        return self._append(batch, count, now, own=True)

    def _append(
        self, batch: bytes, count: int, max_timestamp: int, *, append_time: int = UNKNOWN, own: bool = False
    ) -> Appended:
        """A batch of no producer."""
        # As `_appended`, without the call: most appends of a busy server pass here.
        offset, size = self.end_offset, len(batch)
        stored = StoredBatch(offset, offset + count - 1, max_timestamp, batch, UNKNOWN, self.leader_epoch)
        self.end_offset = offset + count
        self._pending_bytes += size
        if self.tail is not None:
            self.tail.append(stored)
        return Appended(
            base_offset=offset,
            log_append_time_ms=append_time,
            operations=(Append(self.log, (stored,), own),),
            size=size,
        )

    def _stored(
        self, batch: bytes, count: int, timestamp: int, producer_id: int, kind: int, begun: int, coordinator_epoch: int
    ) -> StoredBatch:
        offset, epoch = self.end_offset, self.leader_epoch
        return StoredBatch(
            offset, offset + count - 1, timestamp, batch, producer_id, epoch, kind, begun, coordinator_epoch
        )

    def _appended(self, stored: StoredBatch, *, append_time: int = UNKNOWN) -> Appended:
        size = len(stored.data)
        self.end_offset = stored.last_offset + 1
        self._pending_bytes += size
        if self.tail is not None:
            self.tail.append(stored)
        return Appended(
            base_offset=stored.base_offset,
            log_append_time_ms=append_time,
            operations=(Append(self.log, (stored,)),),
            size=size,
        )

    def committed(self) -> None:
        """Everything appended so far is durable."""
        self.high_watermark = self.end_offset
        self._pending_bytes = 0
        self._producers.forget_some()
        if self._unstable_from != _NOT_READ:
            self._note_unstable()

    # -- transactions

    def check_epoch(self, producer_id: int, epoch: int, now: int) -> ErrorCode:
        """Whether records of a producer may be appended in its transaction (`append_records`)."""
        return self._producers.check_epoch(producer_id, epoch, now)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has an open transaction here in this epoch, also one that began in this turn."""
        return self._producers.is_open(producer_id, epoch)

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records end, of what is durable."""
        unstable_from = self._unstable_from
        if unstable_from == UNKNOWN:
            return self.high_watermark
        if unstable_from == _NOT_READ:
            self._note_unstable()
            return self.last_stable_offset
        return max(min(unstable_from, self.high_watermark), self.start_offset)

    @property
    def stable_end(self) -> int:
        """The last stable offset once this turn is durable."""
        return self._producers.transactions.stable_offset(self.end_offset, self.start_offset)

    def first_open(self) -> tuple[int, int] | None:
        """The producer id and the first offset of the transaction that holds the last stable offset."""
        return self._producers.transactions.first_open()

    @property
    def holds_readers(self) -> bool:
        """True if readers of committed records wait for a marker, also one of a transaction of this turn. False while
        no reader has needed to know."""
        return self._producers.has_open

    @property
    def has_aborted(self) -> bool:
        """True if the log has a transaction that was aborted."""
        return bool(self._producers.transactions.aborted)

    def aborted_in(self, first: int, end: int) -> list[Aborted]:
        """See `Transactions.aborted_in`."""
        return self._producers.transactions.aborted_in(first, end)

    def compacted(self, replaced: Sequence[Replace], markers: AbstractSet[int]) -> None:
        """Compaction replaces batches, and drops the markers of aborts at these offsets, which have no records left;
        what was read before may have some."""
        if markers:
            self._producers.transactions.forget(markers)
        if self.tail is not None and replaced:
            self.tail.drop_up_to(replaced[-1].last)

    def producer_ids(self) -> Iterator[list[int]]:
        """Of all producers that may have a state here, some at a time. The state may change in between."""
        return self._producers.producer_ids()

    def producer_state(self, producer_id: int, now: int) -> ProducerState | None:
        """None if the producer is unknown or expired."""
        return self._producers.state(producer_id, now)

    def producer_states(self, now: int) -> list[ProducerState]:
        """Of all producers that have not expired, by id."""
        states = (self.producer_state(producer_id, now) for ids in self.producer_ids() for producer_id in ids)
        return sorted((state for state in states if state is not None), key=lambda state: state.producer_id)

    def _note_unstable(self) -> None:
        oldest = self._producers.transactions.first_open()
        self._unstable_from = UNKNOWN if oldest is None else oldest[1]

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        committed: bool = False,
        found: Sequence[StoredBatch] | None = None,
    ) -> tuple[bytes, ...] | None:
        """Whole batches from the one that holds `offset` on, up to the high watermark, or, with `committed`, to the
        last stable offset. None if these have to be read first; `found` is what such a read has found.

        The first one even when it is larger than `max_bytes` (KIP-74), unless `whole_first` is False."""
        end = self.last_stable_offset if committed else self.high_watermark
        if not self.start_offset <= offset < end:
            return ()
        if self.tail is None:
            batches = self._storage.read(self.log, offset, max_bytes)
        elif offset >= self.tail.start:
            batches = self.tail.read(offset, max_bytes)
        elif found is not None:
            batches = within(found, max_bytes)
        else:
            return None
        if end < self.end_offset:
            batches = [batch for batch in batches if batch.base_offset < end]
        if not whole_first and batches and len(batches[0].data) > max_bytes:
            return ()
        return tuple([batch.data for batch in batches])

    def first_record(self, timestamp: int | None, search: Search) -> Located | None:
        """See `time_search.first_record`. Reads storage at once."""
        return first_record(self._storage, self.log, timestamp, self.start_offset, search)

    # -- trimming

    def trim(self, offset: int, now: int) -> tuple[KeepProducers | Trim, ...]:
        """Drop the records below `offset`, which must not lie above the high watermark. Returns no operations if those
        records are already deleted."""
        assert offset <= self.high_watermark, "a trim beyond what is durable"
        if offset <= self.start_offset:
            return ()
        kept = self._producers.kept_by_trim(offset, now)
        self._producers.transactions.trimmed(offset)
        self.start_offset = offset
        if self.tail is not None:
            self.tail.trim(offset)
        if self._epochs is not None:
            first = bisect_right(self._epochs, offset, key=lambda entry: entry[1])
            self._epochs = [(epoch, max(start, offset)) for epoch, start in self._epochs[max(first - 1, 0) :]]
        trim = Trim(self.log, offset)
        return (trim,) if kept is None else (kept, trim)

    # -- epochs

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`."""
        epochs = self._known_epochs()
        index = bisect_right(epochs, offset, key=lambda entry: entry[1]) - 1
        return epochs[max(index, 0)][0]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and the offset after its last record; (-1, -1) for a future epoch.

        For an epoch older than all in the log: that epoch, and where the oldest begins
        (LeaderEpochFileCache.endOffsetFor)."""
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        if epoch < 0 or epoch > self.leader_epoch:
            return UNKNOWN, UNKNOWN
        epochs = self._known_epochs()
        index = bisect_right(epochs, epoch, key=lambda entry: entry[0])
        found = epoch if index == 0 else epochs[index - 1][0]
        return found, epochs[index][1]

    def _known_epochs(self) -> list[tuple[int, int]]:
        if self._epochs is None:
            epochs = list(self._find_epochs())
            if not epochs or epochs[-1][0] != self.leader_epoch:
                # The current epoch has no batch in storage yet: it begins at the end of the log.
                epochs.append((self.leader_epoch, max(self.high_watermark, self.start_offset)))
            self._epochs = epochs
        return self._epochs

    def _find_epochs(self) -> Iterator[tuple[int, int]]:
        """Epochs never fall along a log, so the end of each is found by bisection."""
        offset = self.start_offset
        while (batch := next(self._storage.batches(self.log, offset), None)) is not None:
            yield batch.leader_epoch, max(batch.base_offset, self.start_offset)
            if batch.leader_epoch == self.leader_epoch:
                return
            low, high = batch.last_offset + 1, self.high_watermark
            while low < high:
                middle = (low + high) // 2
                other = next(self._storage.batches(self.log, middle), None)
                if other is not None and other.leader_epoch == batch.leader_epoch:
                    low = other.last_offset + 1
                else:
                    high = middle
            offset = low


def _refusal(error: ErrorCode, producer_id: int) -> str:
    match error:
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"producer {producer_id} has a newer epoch"
        case ErrorCode.INVALID_TXN_STATE:
            return f"producer {producer_id} has an open transaction, to which the batch does not belong"
        case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return f"producer {producer_id} has a marker of a newer coordinator"
        case _:
            return f"the sequence number of producer {producer_id} does not follow its last one"
