"""The protocol of storage engines: logs of record batches, changed by one durable commit a turn.

A log is the content of one partition. Its entries are Kafka record batches (magic 2), opaque to the engine, keyed by
their base offset. The engine has no topics: the broker keeps its metadata in a log of its own.

The broker hands over all operations of a turn in one `commit`. When `commit` returns, everything in it survives kill -9
and power loss. If it raises, the broker assumes nothing of it and the process stops (fail-stop).

One writer: `acquire` gives a lease. A commit with a lease that another writer has taken over raises `Fenced` and does
nothing. SQLite locks its data, so a running server never loses its lease. On PostgreSQL another process may take over
(`is_ours`).

Threads: one call at a time, from any thread. `commit` may run in a writer thread, and reads may run off the event loop,
between two commits. `log_info` costs no read and is called from the loop. A `LogReader` reads beside all of this, also
during a commit, in one thread of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NewType, Protocol

import msgspec

Lease = NewType("Lease", int)
"""The right to write. Each `acquire` gives a larger number."""


class LogKey(NamedTuple):
    """Identifies a log: the topic's id (16 raw bytes, never reused) and the partition's index."""

    topic_id: bytes
    partition: int


PLAIN, TRANSACTIONAL, COMMIT_MARKER, ABORT_MARKER = range(4)
"""The kinds of batches: records of no transaction, records of a transaction, and the control batches that end it."""


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """One record batch with the values that the engine indexes. `data` carries its final base offset and leader
    epoch."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    """Milliseconds since the epoch; the batch header's maxTimestamp."""
    data: bytes
    producer_id: int = -1
    leader_epoch: int = 0
    kind: int = PLAIN
    transaction_start: int = -1
    """The offset of the first record of the transaction that the batch belongs to or ends; -1 for none. The batch that
    begins a transaction has its own base offset here."""
    coordinator_epoch: int = -1
    """The newest coordinator epoch of the producer up to this batch; -1 before its first marker."""


def opened(batch: StoredBatch | BatchInfo) -> int:
    """By how much an appended batch changes the number of open transactions: 1, 0 or -1."""
    if batch.kind == TRANSACTIONAL:
        return int(batch.transaction_start == batch.base_offset)
    return -int(batch.kind > TRANSACTIONAL and batch.transaction_start >= 0)


class BatchInfo(msgspec.Struct, frozen=True, gc=False):
    """A stored batch without its data."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int
    producer_id: int
    leader_epoch: int
    kind: int = PLAIN
    transaction_start: int = -1
    coordinator_epoch: int = -1


def info_of(batch: StoredBatch) -> BatchInfo:
    return BatchInfo(
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        len(batch.data),
        batch.producer_id,
        batch.leader_epoch,
        batch.kind,
        batch.transaction_start,
        batch.coordinator_epoch,
    )


_OF_PRODUCER = struct.Struct(">hi")
_OF_PRODUCER_AT = 51
"""Where a batch's header has the producer's epoch and the sequence number of the first record."""


class ProducerBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch of a producer id without its data: what decides which sequence number comes next."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    coordinator_epoch: int
    producer_epoch: int
    base_sequence: int
    """-1 for a marker, and for the broker's own records."""


def of_producer(batch: StoredBatch) -> ProducerBatch:
    epoch, sequence = _OF_PRODUCER.unpack_from(batch.data, _OF_PRODUCER_AT)
    return ProducerBatch(
        batch.base_offset, batch.last_offset, batch.max_timestamp, batch.coordinator_epoch, epoch, sequence
    )


class LogInfo(msgspec.Struct, frozen=True, gc=False):
    """A log without its batches. An empty log has `end_offset == start_offset`."""

    key: LogKey
    start_offset: int
    """The first offset that may be read (Kafka's logStartOffset)."""
    end_offset: int
    """The offset that the next record gets (Kafka's logEndOffset)."""
    size: int
    """Bytes of all batches."""
    open_transactions: int = 0
    """How many transactions have begun and have no marker, also those whose batches are all trimmed."""


class CreateLog(msgspec.Struct, frozen=True, gc=False):
    log: LogKey
    start_offset: int = 0
    open_transactions: int = 0
    """For a copy of a log: how many transactions the removed batches of the original began, less those that they
    ended."""


class DeleteLog(msgspec.Struct, frozen=True, gc=False):
    log: LogKey


class Append(msgspec.Struct, frozen=True, gc=False):
    """Batches in offset order, the first at or after the log's end offset."""

    log: LogKey
    batches: tuple[StoredBatch, ...]
    joinable: bool = False
    """The broker's own records, uncompressed and of no producer: the engine may join their batches."""


class Trim(msgspec.Struct, frozen=True, gc=False):
    """Raise the log's start offset; batches whose last offset lies below it are deleted. The end offset stays."""

    log: LogKey
    start_offset: int


class Replace(msgspec.Struct, frozen=True, gc=False):
    """Compaction: the batches with base offsets in [first, last] become `batches` (fewer, offsets within the range)."""

    log: LogKey
    first: int
    last: int
    batches: tuple[StoredBatch, ...]


class KeepProducers(msgspec.Struct, frozen=True, gc=False):
    """Keep `data` beside the log, in place of what was kept before: the state of producers whose batches a trim
    removes. The engine does not read it."""

    log: LogKey
    data: bytes


class TakeSlots(msgspec.Struct, frozen=True, gc=False):
    """This node serves these slots from now on (slots.py). The commit fails unless it owns them."""

    log: LogKey
    """The metadata log; no log is changed."""
    slots: tuple[int, ...]


class GiveSlots(msgspec.Struct, frozen=True, gc=False):
    """These slots go to other nodes, each as (slot, node), with the next epoch. What the same commit writes to their
    logs is the last that this node writes there."""

    log: LogKey
    slots: tuple[tuple[int, int], ...]


Operation = CreateLog | DeleteLog | Append | Trim | Replace | KeepProducers | TakeSlots | GiveSlots
"""The last two are of nodes that serve at once (postgres); other engines never get them."""


class StorageError(Exception):
    """The data cannot be used (locked, damaged, of a newer format), or a write failed. The text says what to do."""


class WrongDirectory(StorageError):
    """The data directory is a file, or holds the files of something else: a wrong setting. Nothing was written."""


class DamagedFile(StorageError):
    """What is stored is not what was written, in a place that all reads depend on."""


class Fenced(StorageError):
    """Another writer has acquired the lease. Nothing of the commit was done, and the engine must stop."""

    def __init__(self) -> None:
        super().__init__("another process has taken over the data; this one stops, and acknowledges nothing more")


class Unavailable(StorageError):
    """The data cannot be reached now; a later start may succeed."""


class DamagedBatch(StorageError):
    """One stored batch does not match its checksum and is never handed out. Other batches can be read."""


class Log(Protocol):
    """Where an engine's own thread reports what happens between two calls. A server gives its log."""

    def info(self, name: str, **values: Any) -> None: ...
    def warning(self, name: str, **values: Any) -> None: ...


class NoLog:
    def info(self, name: str, **values: Any) -> None: ...
    def warning(self, name: str, **values: Any) -> None: ...


NO_END = 1 << 62


class LogReader(Protocol):
    """Reads logs beside a running engine. One thread makes all calls."""

    # Each call sees a commit as a whole or nothing of it, and all commits that were durable when it began. Raises
    # StorageError; after any but DamagedFile the next call may succeed.

    def read(self, log: LogKey, offset: int, max_bytes: int, end_offset: int = NO_END) -> list[StoredBatch]:
        """As `Storage.read`, without the batches from `end_offset` on."""

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        """As `Storage.batches`. Consume or close it before the next call."""

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        """As `Storage.first_at_or_after`."""

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        """As `Storage.max_timestamp`."""

    def close(self) -> None:
        """Idempotent."""


class Storage(Protocol):
    """An engine: SQLite, memory, PostgreSQL. All pass tests/storage/test_contract.py."""

    is_ours: Callable[[], bool] | None
    """False as soon as another process may have taken the data over: then nothing of it may be told. Called from any
    thread. None for an engine whose data nobody can take over."""

    def acquire(self) -> Lease:
        """Become the writer. The former holder of the lease is fenced from now on. Raises StorageError."""

    def commit(self, operations: Sequence[Operation], lease: Lease) -> None:
        """Apply the operations in order, all or none, durably. Raises Fenced, StorageError."""

    def logs(self) -> list[LogInfo]:
        """All logs, ordered by key."""

    def log_info(self, log: LogKey) -> LogInfo | None:
        """One log; None if it does not exist. Costs no read."""

    def read(self, log: LogKey, offset: int, max_bytes: int) -> list[StoredBatch]:
        """Batches in order, from the batch with `offset` (or the next one after it) on.

        Stops before `max_bytes` would be passed, but always returns the first batch. Empty at the end of the log or
        for an unknown log. The first batch may begin below `offset`: a client skips those records itself."""

    def batches(self, log: LogKey, offset: int = 0) -> Iterator[BatchInfo]:
        """Descriptions of the batches in order, from the batch with `offset` on, without reading their data.

        Consume it before the next `commit`."""

    def first_at_or_after(self, log: LogKey, timestamp: int) -> StoredBatch | None:
        """The first batch, by offset, whose max_timestamp is at or after `timestamp` (milliseconds)."""

    def max_timestamp(self, log: LogKey) -> BatchInfo | None:
        """The batch with the largest max_timestamp (the first of equals); None for an empty log."""

    def producer_batches(self, log: LogKey, producer_id: int, limit: int) -> list[ProducerBatch]:
        """The last `limit` batches of records written by a producer id, oldest first. Markers are left out."""

    def last_of_producer(self, log: LogKey, producer_id: int) -> ProducerBatch | None:
        """The last batch of a producer id, which may be a marker."""

    def producers_ending_before(self, log: LogKey, offset: int) -> list[BatchInfo]:
        """The last batches, by producer id, of the producers with a batch below `offset` and without a batch of records
        that reaches it. A last batch may be a marker, also one behind `offset`."""

    def open_transactions(self, log: LogKey) -> list[BatchInfo]:
        """The last batches, by producer id, of the producers whose last batch has no marker yet. Compare their number
        with `LogInfo.open_transactions`."""

    def aborted_transactions(self, log: LogKey) -> list[BatchInfo]:
        """The markers that aborted a transaction with records, in order."""

    def kept_producers(self, log: LogKey) -> bytes:
        """What `KeepProducers` kept; empty if nothing was."""

    def producers(self, log: LogKey, after: int = -1, limit: int = 1 << 31) -> list[int]:
        """The first `limit` producer ids above `after` with at least one batch in the log, ascending."""

    def reader(self) -> LogReader:
        """A reader for another thread. Close it before the engine."""

    def abandon(self) -> None:
        """Do not wait any longer for another machine: a commit that does fails with StorageError, and its outcome stays
        unknown. Called from any thread, before `close`. An engine that waits for none does nothing."""

    def close(self) -> None:
        """Release files and locks. Idempotent."""
