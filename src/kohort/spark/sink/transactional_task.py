"""A task of a sink with `delivery=exactly-once`: its rows and its entry of the ledger are one transaction.

The task prepares the transaction and does not end it: that is the driver's part (`batch_commit.py`), once all tasks of
the batch are prepared. A second attempt of the task uses the same transactional id, so it aborts what the first one has
sent and fences it. A task without rows has no transaction.

Rows wait until a partition has a full record batch. Then all partitions that have at least half of one are written, one
request to each leading broker.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kohort.client.admin.groups import Committed
from kohort.client.admin.topics import topics
from kohort.client.errors import KafkaError, Misuse, check
from kohort.client.metadata import TopicPartition
from kohort.client.security.security import Security
from kohort.client.transactions import Prepared, ProducerFailed, TransactionalWriter
from kohort.client.wire.routing import Router, Timing
from kohort.spark.options.exactly_once import ExactlyOnce
from kohort.spark.options.sink import SinkOptions
from kohort.spark.runtime.failures import warn
from kohort.spark.sink.failures import DeliveryFailed
from kohort.spark.sink.key_hashes import key_hashes
from kohort.spark.sink.ledger import marker, transactional_id
from kohort.spark.sink.rows import Columns, Record, parts, records_of
from kohort.wire.batches import NewRecord, encode_batch

if TYPE_CHECKING:
    import pyarrow as pa

BUFFER_BYTES = 16 * 1024 * 1024
"""The rows that wait for others, in all partitions together."""
RECORD_BYTES = 16
"""Of a record besides its key, value and headers: about."""


@dataclass(frozen=True)
class InTransaction(WriterCommitMessage):
    """A task's report to the driver."""

    application: str
    task: int
    rows: int
    prepared: Prepared | None
    """None: the task had no rows."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a task writes: application, number of the batch, number of the task."""

    application: str
    batch: int
    task: int


def write(options: SinkOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> InTransaction:
    """Write a task's rows in a transaction. Raises DeliveryFailed, KafkaError, or RowError for an invalid row."""
    exactly_once = options.exactly_once
    assert exactly_once is not None
    identity = identity_of(exactly_once)
    sender: _Sender | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                sender = sender or _Sender(exactly_once, options.security, identity)
                for part in parts(batch):
                    hashed = "key" in columns and not exactly_once.ignores_keys
                    hashes = key_hashes(part.column("key")) if hashed else repeat(0)
                    sender.send(records_of(columns, options.topic, part), hashes)
        prepared = None if sender is None else sender.finish()
    except BaseException:
        if sender is not None:
            sender.abort()
        close_router()
        raise
    return InTransaction(identity.application, identity.task, 0 if sender is None else sender.rows, prepared)


def identity_of(options: ExactlyOnce) -> Identity:
    """From the options of a batch write, or from what Spark says of the query to its tasks."""
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    application = options.application or context.getLocalProperty("sql.streaming.queryId")
    batch = options.version
    if batch is None:
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
    if application is None or batch < 0:
        raise RuntimeError("Spark does not say which streaming query and batch this task belongs to")
    return Identity(application, batch, context.partitionId())


class _Sender:
    """The transaction of one task, and the rows that wait."""

    def __init__(self, options: ExactlyOnce, security: Security, identity: Identity) -> None:
        self._options = options
        self._identity = identity
        self._router = router_of(options, security)
        self.rows = 0
        self._waiting: dict[TopicPartition, list[NewRecord]] = {}
        self._sizes: dict[TopicPartition, int] = {}
        self._size = 0
        self._counts: dict[str, int] = {}
        """The number of partitions of each topic."""
        self._keyless: dict[str, int] = {}
        """Where a topic's rows without a key go until the next record batch."""
        name = transactional_id(identity.application, identity.task)
        self._writer = TransactionalWriter(self._router, name, timeout_ms=options.timeout_ms)
        self._writer.init()
        self._writer.begin()

    def send(self, part: Iterator[Record], hashes: Iterable[int]) -> None:
        """Add rows, with the hashes of their keys; write what is full. Raises DeliveryFailed, KafkaError."""
        now = time.time_ns() // 1_000_000
        full, waiting, sizes = self._options.batch_bytes, self._waiting, self._sizes
        for record, hashed in zip(part, hashes, strict=False):
            key, value = record["key"], record["value"]
            place = record["topic"], self._partition(record, key, hashed)
            headers = record.get("headers")
            new = NewRecord(key, value, record.get("timestamp", now), tuple(headers) if headers else ())
            size = RECORD_BYTES + len(key or b"") + len(value or b"")
            if headers:
                size += sum(len(name) + len(content or b"") for name, content in headers)
            if place not in waiting:
                waiting[place], sizes[place] = [], 0
            waiting[place].append(new)
            sizes[place] += size
            self._size += size
            self.rows += 1
            if sizes[place] >= full:
                self._write(full // 2)
            elif self._size >= BUFFER_BYTES:
                self._write(0)

    def _partition(self, record: Record, key: bytes | None, hashed: int) -> int:
        topic = record["topic"]
        count = self._counts.get(topic) or self._count(topic)
        partition: int | None = record.get("partition")
        if partition is not None:
            if partition >= count:
                raise DeliveryFailed(topic, partition, f"{topic} has {count} partitions")
            return partition
        if key is not None and not self._options.ignores_keys:
            return hashed % count
        if topic not in self._keyless:
            self._keyless[topic] = random.randrange(count)
        return self._keyless[topic]

    def _count(self, topic: str) -> int:
        found = topics(self._router, [topic], internal=True, create=True)[topic]
        check(found.error, f"topic {topic}")
        self._counts[topic] = len(found.partitions)
        return self._counts[topic]

    def _write(self, least: int) -> None:
        """Write the rows of partitions with at least so many bytes."""
        chosen = [place for place, size in self._sizes.items() if size >= least]
        codec = self._options.compression
        self._writer.produce({place: encode_batch(self._waiting.pop(place), compression=codec) for place in chosen})
        for place in chosen:
            self._size -= self._sizes.pop(place)
            if self._keyless.get(place[0]) == place[1]:
                del self._keyless[place[0]]

    def finish(self) -> Prepared:
        """Write the rest and the entry of the ledger. The transaction is complete, and still open."""
        if self._waiting:
            self._write(0)
        application, batch, task = self._identity.application, self._identity.batch, self._identity.task
        group, place = marker(self._options.ledger_topic, application, task)
        self._writer.send_offsets(group, {place: Committed(batch)})
        return self._writer.prepared()

    def abort(self) -> None:
        """Abort, so that readers need not wait for the transaction's timeout. Never fails."""
        try:
            self._writer.abort()
        except (ProducerFailed, Misuse):
            pass  # it has ended
        except KafkaError as error:
            warn(f"the transaction of task {self._identity.task} stays open until its timeout: {error}")


_kept: tuple[ExactlyOnce, Security, Router] | None = None
"""The connections of this process, for its next task or batch with the same options."""


def router_of(options: ExactlyOnce, security: Security) -> Router:
    global _kept
    if _kept is None or _kept[:2] != (options, security):
        close_router()
        timing = Timing(request=options.request_timeout_ms, api=options.delivery_timeout_ms)
        _kept = options, security, Router(options.bootstrap_servers, options.client_id, timing, security)
    return _kept[2]


def close_router() -> None:
    global _kept
    if _kept is not None:
        _kept[2].close()
        _kept = None
