"""One partition's log: gives appended batches their offsets, and reads.

A partition keeps its state in memory and never writes. An append returns the operation that the turn has to commit, and
moves `end_offset` at once, so that the next append of the turn follows it and a repeated batch within the turn is
noticed. `high_watermark` follows when the turn is durable (`committed`); reads end there.

Epochs. Each batch carries the leader epoch in which it was written. Where an epoch begins is found by bisecting the
log, on first use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from kohort.broker.logs.idempotence import Producers, Written
from kohort.broker.logs.validation import InvalidAppend, Room, validate
from kohort.broker.topics.topic_configs import TopicSettings
from kohort.storage.protocol import Append, LogInfo, LogKey, Storage, StoredBatch, Trim
from kohort.wire.batches import (
    HEADER_SIZE,
    NewRecord,
    Record,
    batch_around,
    decode_records,
    encode_batch,
    patch,
    read_header,
    recompress,
    set_log_append_time,
)
from kohort.wire.compression import decompress
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.records import find_time

UNKNOWN = -1
SEARCHED = 50_000
"""Records that one request for offsets by time reads, up to the end of a batch: ten or twenty milliseconds."""
BYTES_LIKE_A_RECORD = 200
"""Decompressing this many bytes takes as long as reading a record."""
MAX_STORED_BYTES = 128 * 1024 * 1024
"""Largest size of a stored batch when it is decompressed. Larger than any setting, so that every batch that was ever
accepted can be read."""


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


@dataclass(frozen=True, slots=True)
class Located:
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


class Partition:
    """`info` is the log in storage; None if this turn creates the log."""

    def __init__(
        self,
        log: LogKey,
        settings: TopicSettings,
        leader_epoch: int,
        storage: Storage,
        info: LogInfo | None = None,
    ) -> None:
        self.log = log
        self.start_offset = 0 if info is None else info.start_offset
        self.end_offset = 0 if info is None else info.end_offset
        """The offset that the next record gets."""
        self.high_watermark = self.end_offset
        self.settings = settings
        self.leader_epoch = leader_epoch
        self._storage = storage
        self._pending_bytes = 0
        self._producers = Producers(partial(storage.producer_batches, log), settings.producer_id_expiration_ms)
        self._epochs: list[tuple[int, int]] | None = None
        """Each epoch and the offset where it begins, ascending; the last is the current one. None until first used."""

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

    def append(self, data: bytes, now: int, room: Room | None = None) -> Appended:
        """Validate a client's batch, check its sequence and number it. `room` is the unused part of its request's
        limits."""
        try:
            header = validate(data, self.settings, now, room)
        except InvalidAppend as refused:
            return Appended(refused.error, refused.message, refused_records=refused.records)
        if header.producer_id >= 0:
            verdict = self._producers.check(header, now)
            if isinstance(verdict, Written):
                time = verdict.timestamp if self.settings.log_append_time else UNKNOWN
                return Appended(base_offset=verdict.base_offset, log_append_time_ms=time)
            if verdict is not ErrorCode.NONE:
                return Appended(verdict, self._sequence_message(verdict, header.producer_id))
        if self.settings.codec is not None and self.settings.codec != header.compression:
            data = recompress(data, header, self.settings.codec, max_bytes=MAX_STORED_BYTES)
        base_offset = self.end_offset
        timestamp = header.max_timestamp
        batch = patch(data, base_offset, self.leader_epoch)
        if self.settings.log_append_time:
            timestamp = now
            batch = set_log_append_time(batch, now)
        if header.producer_id >= 0:
            self._producers.remember(header, base_offset, timestamp, now)
        time = timestamp if self.settings.log_append_time else UNKNOWN
        return self._append(batch, header.record_count, timestamp, header.producer_id, time)

    def append_records(self, records: Sequence[KeyedRecord], now: int) -> Appended:
        """The broker's own records, as one batch."""
        batch = encode_batch(
            [NewRecord(record.key, record.value, now) for record in records],
            base_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
        )
        return self._append(batch, len(records), now, UNKNOWN, UNKNOWN, own=True)

    def append_encoded(self, records: bytes, count: int, now: int) -> Appended:
        """The broker's own records, encoded as in a batch, with the timestamp `now`."""
        batch = batch_around(records, count, now, base_offset=self.end_offset, leader_epoch=self.leader_epoch)
        return self._append(batch, count, now, UNKNOWN, UNKNOWN, own=True)

    def _append(
        self, batch: bytes, count: int, max_timestamp: int, producer_id: int, append_time: int, *, own: bool = False
    ) -> Appended:
        base_offset, last_offset = self.end_offset, self.end_offset + count - 1
        stored = StoredBatch(base_offset, last_offset, max_timestamp, batch, producer_id, self.leader_epoch)
        self.end_offset = last_offset + 1
        self._pending_bytes += len(batch)
        return Appended(
            base_offset=base_offset,
            log_append_time_ms=append_time,
            operations=(Append(self.log, (stored,), own),),
            size=len(batch),
        )

    def committed(self) -> None:
        """Everything appended so far is durable."""
        self.high_watermark = self.end_offset
        self._pending_bytes = 0
        self._producers.forget_some()

    def _sequence_message(self, error: ErrorCode, producer_id: int) -> str:
        if error is ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"producer {producer_id} has a newer epoch"
        return f"the sequence number of producer {producer_id} does not follow its last one"

    # -- reading

    def read(self, offset: int, max_bytes: int, *, whole_first: bool = True) -> tuple[bytes, ...]:
        """Whole batches from the one that holds `offset` on, up to the high watermark.

        The first one even when it is larger than `max_bytes` (KIP-74), unless `whole_first` is False."""
        if not self.start_offset <= offset < self.high_watermark:
            return ()
        batches = self._storage.read(self.log, offset, max_bytes)
        if not whole_first and batches and len(batches[0].data) > max_bytes:
            return ()
        return tuple([batch.data for batch in batches])

    def latest_record(self, search: Search | None = None) -> Located | None:
        """The first record with the largest timestamp (ListOffsets -3). Raises SearchedEnough."""
        search = search or Search()
        info = self._storage.max_timestamp(self.log)
        if info is None:
            return None
        if info.base_offset >= self.start_offset:
            [batch] = self._storage.read(self.log, info.base_offset, 0)
            best = search.found(batch, None, self.start_offset)
            if best is not None:
                return best
        # A trim has cut into the newest batch: take the rest of it, or the newest of the others.
        left = list(self._storage.batches(self.log, self.start_offset))
        newest = sorted(left[1:], key=lambda info: -info.max_timestamp)[:1]
        found: Located | None = None
        for info in (*left[:1], *newest):
            [batch] = self._storage.read(self.log, info.base_offset, 0)
            best = search.found(batch, None, self.start_offset)
            if best is not None and (found is None or best.timestamp > found.timestamp):
                found = best
        return found

    def first_record_at_or_after(self, timestamp: int, search: Search | None = None) -> Located | None:
        """The first record, by offset, whose timestamp is at or after `timestamp`. Raises SearchedEnough."""
        search = search or Search()
        first = self._storage.first_at_or_after(self.log, timestamp)
        if first is None:
            return None
        for batch in self._each_batch(first.base_offset):
            if batch.max_timestamp < timestamp:
                continue
            found = search.found(batch, timestamp, self.start_offset)
            if found is not None:
                return found
        return None

    def _each_batch(self, offset: int) -> Iterator[StoredBatch]:
        while batches := self._storage.read(self.log, offset, 1024 * 1024):
            yield from batches
            offset = batches[-1].last_offset + 1

    # -- trimming

    def trim(self, offset: int) -> Trim | None:
        """Drop the records below `offset`, which must not lie above the high watermark. None if those records are
        already deleted."""
        assert offset <= self.high_watermark, "a trim beyond what is durable"
        if offset <= self.start_offset:
            return None
        self.start_offset = offset
        if self._epochs is not None:
            kept = bisect_right(self._epochs, offset, key=lambda entry: entry[1])
            self._epochs = [(epoch, max(start, offset)) for epoch, start in self._epochs[max(kept - 1, 0) :]]
        return Trim(self.log, offset)

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


def readable_records(batch: StoredBatch) -> list[Record] | None:
    """The records of a stored batch; None when they cannot be read.

    Validation walks over most records without reading them, so a client can have stored bytes that are not records."""
    try:
        return decode_records(batch.data, max_bytes=MAX_STORED_BYTES)
    except ProtocolError:
        return None


class SearchedEnough(Exception):
    """A request has read as many records as it may."""


class Search:
    """Searches batches by time for one request, within limits of records and decompressed bytes."""

    def __init__(self) -> None:
        self._left = SEARCHED

    def found(self, batch: StoredBatch, timestamp: int | None, first_offset: int) -> Located | None:
        """The first record from `first_offset` on at or after `timestamp`; for None, the first of the newest.

        If the records cannot be read, the batch's last offset and newest time replace them. Raises SearchedEnough."""
        if self._left <= 0:
            raise SearchedEnough
        header = read_header(batch.data)
        self._left -= header.record_count
        try:
            records = decompress(header.compression, batch.data[HEADER_SIZE:], MAX_STORED_BYTES)
            self._left -= len(records) // BYTES_LIKE_A_RECORD
            best = find_time(header, records, timestamp, first_offset)
        except ProtocolError:
            best = batch.max_timestamp, batch.last_offset
        return None if best is None else Located(best[0], best[1], batch.leader_epoch)
