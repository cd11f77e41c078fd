"""Compaction: keeps only the newest record of each key (cleanup.policy with `compact`). After Kafka's LogCleaner.

A pass has two halves. Both are done in bounded steps, one a turn, so that no client waits long. The first half reads
the dirty part of the log (what was appended since the last pass) and notes the offset of the newest record of each key.
The second half reads the log from its start and replaces each batch that has a record older than the newest of its key.
Offsets, order, codec, and the offsets and sequence numbers that a batch covers stay the same.

Which part of a log a pass compacts is decided in dirty_part.py. How far a log is clean is not stored: after a restart
the first pass treats the whole log as dirty, which costs one read of it.

A tombstone stays for delete.retention.ms after the older values are gone, so that every reader of an older value sees
it. The pass that meets a tombstone for the first time writes into its batch the instant when it may be dropped, as
Kafka does (attribute bit 6; the base timestamp is then that instant, KIP-534). A pass goes upwards, so the older values
of the key are durably gone by then. A later pass drops the tombstone, even if nothing was appended since.

A batch that loses all its records is deleted, unless it is the last one of a producer that may return: then it stays
without records, so that a restart still knows the producer's sequence number.

Where storage answers later, a step asks for its batches, and the turn in which they are there takes it
(waits/reads.py). Nobody else replaces batches, and a trim meanwhile moves the offset that is asked for.

Transactions. A pass ends before the last stable offset, so all transactions that it sees are decided. Records of an
aborted one are dropped and replace nothing. A marker stays while a batch of its transaction is in the log. The pass
that finds none writes the horizon into the marker, and a later pass drops the marker when the horizon has come. The
last marker of a producer that may return stays, for its epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from struct import pack_into

import msgspec
from google_crc32c import value as crc32c

from kohort.broker.logs.partition import Partition
from kohort.broker.logs.time_search import readable_records
from kohort.broker.logs.transactions import Aborted
from kohort.broker.logs.validation import NO_TIMESTAMP
from kohort.broker.messages import changed
from kohort.broker.waits.reads import FailedRead, Read, Reads
from kohort.config import LONG_MAX
from kohort.storage.protocol import (
    ABORT_MARKER,
    COMMIT_MARKER,
    TRANSACTIONAL,
    DamagedBatch,
    LogKey,
    Replace,
    Storage,
    StoredBatch,
)
from kohort.wire.batches import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    Record,
    read_header,
)
from kohort.wire.compression import compress
from kohort.wire.records import NewRecord, encode_record

DELETE_HORIZON = 0b100_0000
STEP_BYTES = 4 * 1024 * 1024
"""Bytes of batches that a step reads; at the rate of decoding, some tens of milliseconds."""
MAX_KEY_BYTES = 64 * 1024 * 1024
"""Memory for the keys of a pass. When it is full, the pass ends there and the next pass continues."""
_KEY_OVERHEAD = 120


class Decided:
    """The transactions of the compacted part of a log, all of which are decided."""

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        """By producer: the first offset and the marker's offset of each aborted transaction, ascending."""
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append((one.first_offset, one.marker_offset))
        self._with_data: set[int] = set()
        """The producers with a batch after their last marker."""

    def is_aborted(self, batch: StoredBatch) -> bool:
        if batch.kind != TRANSACTIONAL or batch.producer_id not in self._aborted:
            return False
        spans = self._aborted[batch.producer_id]
        index = bisect_right(spans, batch.base_offset, key=lambda span: span[0]) - 1
        return index >= 0 and batch.base_offset < spans[index][1]

    def note_data(self, batch: StoredBatch) -> None:
        self._with_data.add(batch.producer_id)

    def had_data(self, marker: StoredBatch) -> bool:
        """True if the log has a batch of the transaction that the marker ends."""
        had = marker.producer_id in self._with_data
        self._with_data.discard(marker.producer_id)
        return had


class Rules(msgspec.Struct, frozen=True):
    """The inputs of the decision besides the keys. The batches of a log are decided in order."""

    now: int
    delete_retention_ms: int
    is_last_of_producer: Callable[[StoredBatch], bool]
    """True if a batch must stay even without records, because it is the last batch of a producer that may return."""
    decided: Decided

    @property
    def horizon(self) -> int:
        """When what is found useless now may be dropped."""
        return min(self.now + self.delete_retention_ms, LONG_MAX)


class Compaction:
    """One pass over a partition's log. `step` until `done`; then `clean_to` is the next pass's `first_dirty`."""

    def __init__(
        self, partition: Partition, storage: Storage, first_dirty: int, end: int, reads: Reads | None = None
    ) -> None:
        """`reads` is None if storage is in memory."""
        self._partition = partition
        self._storage = storage
        self._reads = reads
        self._read: Read | None = None
        """What storage is asked for."""
        self._newest: dict[bytes, int] = {}
        self._key_bytes = 0
        self._reading = max(first_dirty, partition.start_offset)
        self._replacing = partition.start_offset
        self.clean_to = end
        self._decided = Decided(partition.aborted_in(0, end))
        self.done = False
        self.tombstones_go_ms: int | None = None
        """When all tombstones that the pass leaves may be dropped; None if it leaves none."""

    @property
    def waits(self) -> bool:
        """True while a step has nothing to do, because a read is not done."""
        return self._read is not None and self._read.done is None

    def end(self) -> None:
        """The pass is given up."""
        if self._reads is not None and self._read is not None:
            self._reads.drop(self._read)

    def step(self, now: int, producer_expiration_ms: int, max_bytes: int = STEP_BYTES) -> tuple[Replace, ...]:
        """The next piece of work. Commit what it returns before the next step. Raises StorageError, FailedRead."""
        info = self._storage.log_info(self._partition.log)
        if info is None or info.start_offset != self._partition.start_offset:
            return ()  # This turn trims the log: the batches to replace may be gone afterwards.
        if self._reading < self.clean_to:
            self._read_keys(max_bytes)
            return ()
        batches = self._next(max(self._replacing, info.start_offset), max_bytes)
        if batches is None:
            return ()
        if not batches:
            self.done = True
            return ()
        self._replacing = batches[-1].last_offset + 1
        rules = Rules(
            now,
            self._partition.settings.delete_retention_ms,
            self._last_of_live_producer(now - producer_expiration_ms),
            self._decided,
        )
        replaced = replacements(self._partition.log, batches, self._newest, rules)
        self._note_tombstones(batches, now)
        for replace in replaced:
            self._note_tombstones(replace.batches, now)
        self._partition.compacted(replaced, _dropped_aborts(batches, replaced))
        return replaced

    def _note_tombstones(self, batches: Sequence[StoredBatch], now: int) -> None:
        for batch in batches:
            header = read_header(batch.data)
            if header.attributes & DELETE_HORIZON and header.base_timestamp > now:
                self.tombstones_go_ms = max(self.tombstones_go_ms or 0, header.base_timestamp)

    def _next(self, offset: int, max_bytes: int) -> list[StoredBatch] | None:
        """None if these are not there yet."""
        found: Sequence[StoredBatch] | None
        if self._reads is None:
            found = self._storage.read(self._partition.log, offset, max_bytes)
        else:
            found = self._asked(self._reads, offset, max_bytes)
            if found is None:
                return None
        return list(takewhile(lambda batch: batch.last_offset < self.clean_to, found))

    def _asked(self, reads: Reads, offset: int, max_bytes: int) -> Sequence[StoredBatch] | None:
        read, self._read = self._read, None
        if read is not None and read.asked.offset == offset:
            if read.done is None:
                self._read = read
                return None
            if read.done.damage:
                raise DamagedBatch(read.done.damage)
            if read.done.failure:
                raise FailedRead(read.done.failure)
            if read.found:
                self._ask(reads, read.found[-1].last_offset + 1, max_bytes)
            return read.found
        if read is not None:
            reads.drop(read)
        return None if self._ask(reads, offset, max_bytes) else ()

    def _ask(self, reads: Reads, offset: int, max_bytes: int) -> bool:
        if offset < self.clean_to:
            self._read = reads.ask(self._partition.log, offset, max_bytes, self.clean_to)
        return offset < self.clean_to

    def _read_keys(self, max_bytes: int) -> None:
        batches = self._next(max(self._reading, self._partition.start_offset), max_bytes)
        if batches is None:
            return
        if not batches:
            self._reading = self.clean_to
        for batch in batches:
            if self._key_bytes > MAX_KEY_BYTES:
                self.clean_to = self._reading
                return
            self._reading = batch.last_offset + 1
            if not read_header(batch.data).is_control and not self._decided.is_aborted(batch):
                for record in readable_records(batch) or ():
                    self._note(record)

    def _note(self, record: Record) -> None:
        if record.key is not None:
            if record.key not in self._newest:
                self._key_bytes += len(record.key) + _KEY_OVERHEAD
            self._newest[record.key] = record.offset

    def _last_of_live_producer(self, oldest: int) -> Callable[[StoredBatch], bool]:
        log, storage = self._partition.log, self._storage
        lasts: dict[int, tuple[int, ...]] = {}
        """By producer: the offsets of its last batch of records and of its last batch; none if it is expired."""

        def is_last(batch: StoredBatch) -> bool:
            producer_id = batch.producer_id
            if producer_id < 0:
                return False
            if producer_id not in lasts:
                last = storage.last_of_producer(log, producer_id)
                assert last is not None, "the batch is in the log"
                found = [*storage.producer_batches(log, producer_id, 1), last]
                live = last.max_timestamp >= oldest
                lasts[producer_id] = tuple(each.base_offset for each in found) if live else ()
            return batch.base_offset in lasts[producer_id]

        return is_last


def replacements(
    log: LogKey, batches: Sequence[StoredBatch], newest: Mapping[bytes, int], rules: Rules
) -> tuple[Replace, ...]:
    """A Replace for each run of batches that change. `newest` has the offset of the newest record of each dirty key."""
    found: list[Replace] = []
    run: list[StoredBatch] = []
    kept: list[StoredBatch] = []

    def end_run() -> None:
        if run:
            found.append(Replace(log, run[0].base_offset, run[-1].base_offset, tuple(kept)))
            run.clear()
            kept.clear()

    for batch in batches:
        if batch.kind == TRANSACTIONAL:
            rules.decided.note_data(batch)
        compacted = compact_batch(batch, newest, rules)
        if compacted is batch:
            end_run()
        else:
            run.append(batch)
            if compacted is not None:
                kept.append(compacted)
    end_run()
    return tuple(found)


def compact_batch(batch: StoredBatch, newest: Mapping[bytes, int], rules: Rules) -> StoredBatch | None:
    """The batch itself if nothing changes, a smaller one, or None if it is deleted."""
    header = read_header(batch.data)
    if batch.kind >= COMMIT_MARKER:
        return _compact_marker(batch, header, rules)
    records = None if header.is_control else readable_records(batch)
    if records is None:
        return batch
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    tombstones_go = horizon is not None and rules.now >= horizon
    is_aborted = rules.decided.is_aborted(batch)
    kept = [
        record
        for record in records
        if not is_aborted
        # A record without a key comes from before the topic was compacted; Kafka drops it as well.
        and record.key is not None
        and record.offset >= newest.get(record.key, 0)
        and not (tombstones_go and record.value is None)
    ]
    if not kept:
        if not rules.is_last_of_producer(batch):
            return None
        return batch if not records else _rebuilt(batch, header, kept, horizon)
    # The records' times become distances to the horizon. A time before the epoch may be too far away.
    if horizon is None and any(r.value is None for r in kept) and all(r.timestamp >= NO_TIMESTAMP for r in kept):
        return _rebuilt(batch, header, kept, rules.horizon)
    return batch if len(kept) == len(records) else _rebuilt(batch, header, kept, horizon)


def _compact_marker(batch: StoredBatch, header: BatchHeader, rules: Rules) -> StoredBatch | None:
    records = readable_records(batch)
    if rules.decided.had_data(batch) or records is None:
        return batch
    if not header.attributes & DELETE_HORIZON:
        return _rebuilt(batch, header, records, rules.horizon)
    if rules.now < header.base_timestamp or rules.is_last_of_producer(batch):
        return batch
    return None


def _dropped_aborts(batches: Sequence[StoredBatch], replaced: Sequence[Replace]) -> set[int]:
    """The offsets of the markers of aborts that are not in the log any more."""
    kept = {batch.base_offset for replace in replaced for batch in replace.batches}
    markers = {batch.base_offset for batch in batches if batch.kind == ABORT_MARKER} - kept
    return {offset for offset in markers if any(replace.first <= offset <= replace.last for replace in replaced)}


def _rebuilt(batch: StoredBatch, header: BatchHeader, records: Sequence[Record], horizon: int | None) -> StoredBatch:
    """The batch with only these records. An empty batch keeps its max timestamp: the time at which its producer
    wrote."""
    base_timestamp = header.base_timestamp if horizon is None else horizon
    max_timestamp = header.max_timestamp
    if records and not header.timestamp_type:
        # A producer may have written records that are newer than its header says; a batch never grows newer.
        max_timestamp = min(max_timestamp, max(record.timestamp for record in records))
    body = b"".join(
        encode_record(
            NewRecord(record.key, record.value, record.timestamp, record.headers),
            record.timestamp - base_timestamp,
            record.offset - header.base_offset,
        )
        for record in records
    )
    data = bytearray(batch.data[:HEADER_SIZE])
    data += compress(header.compression, body) if records else b""
    pack_into(">i", data, 8, len(data) - LENGTH_END)
    attributes = header.attributes | (0 if horizon is None else DELETE_HORIZON)
    if not records:
        attributes &= ~COMPRESSION_MASK  # no bytes at all are no valid frame of any codec
    pack_into(">h", data, 21, attributes)
    pack_into(">qq", data, 27, base_timestamp, max_timestamp)
    pack_into(">i", data, 57, len(records))
    pack_into(">I", data, 17, crc32c(bytes(data[CRC_START:])))
    return changed(batch, max_timestamp=max_timestamp, data=bytes(data))
