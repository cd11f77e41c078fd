"""`format("kohort")` for writing: librdkafka's producer in the executors' Python workers.

The columns are those of Spark's Kafka sink: `value` and optionally `key` (strings or binaries), `topic`, `partition`,
`headers`, `timestamp`; others are ignored. A key goes to the partition where Java's default partitioner sends it.

By default rows are written at least once. A task ends when every row is acknowledged, and fails with the first row that
is not. The idempotent producer stores a record once however often it sends it. But Spark repeats a failed task or an
unfinished batch from the beginning with another producer, and the rows delivered before are then stored twice. They
cannot be undone, so neither commit nor abort does anything. With `delivery=exactly-once` tasks write in transactions
instead (`transactional_task.py`), and the driver commits them (`batch_commit.py`).

A producer takes half a second to get its id, so the next task of the same worker uses it again; that of a failed task
is discarded with its queue. When the queue (`kafka.buffer.memory`) is full, rows wait until records are delivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kohort.spark.options.sink import SinkOptions
from kohort.spark.sink.failures import DeliveryFailed
from kohort.spark.sink.rows import Columns, Record, records

if TYPE_CHECKING:
    import pyarrow as pa

POLL_S = 0.1
LOG = logging.getLogger("kohort.spark.sink.data_sink")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's report to the driver."""

    rows: int


@dataclass(eq=False)
class _Writer:
    options: SinkOptions
    columns: Columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.options.exactly_once is not None:
            from kohort.spark.sink import transactional_task

            return transactional_task.write(self.options, self.columns, iterator)
        return write(self.options, self.columns, iterator)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        if self.options.exactly_once is not None and batch is not None:
            from kohort.spark.sink import batch_commit

            batch_commit.commit(self.options, messages, batch)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self.options.exactly_once is not None:
            from kohort.spark.sink import batch_commit

            batch_commit.abort(self.options, messages)


class KohortWriter(_Writer, DataSourceArrowWriter):
    """A batch write."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        exactly_once = self.options.exactly_once
        self._commit(messages, None if exactly_once is None else exactly_once.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class KohortStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming write. In complete mode each micro-batch appends the whole result again, as in Spark's sink."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def write(options: SinkOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write a task's rows and wait for all of them. Raises DeliveryFailed, or RowError for an invalid row."""
    sender = _Sender.take(options)
    try:
        rows = 0
        for batch in batches:
            for part in records(columns, options.topic, batch):
                rows += sender.send(part)
        sender.finish()
    except BaseException:
        sender.discard()
        raise
    _Sender.kept = sender
    return Written(rows)


class _Sender:
    """A producer and the fate of its records. Used by one task at a time."""

    kept: _Sender | None = None
    """The producer of this process's last task, for the next task with the same options."""

    def __init__(self, options: SinkOptions) -> None:
        from confluent_kafka import Producer

        self._options = options
        self._failed: DeliveryFailed | None = None
        self._broken = False
        """True after a fatal error of the producer, which may occur between tasks."""
        settings: dict[str, Any] = {
            **dict(options.producer),
            **options.security.librdkafka(),
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
            "error_cb": self._on_error,
            "logger": LOG,
        }
        self._producer: Any = Producer(settings)

    @classmethod
    def take(cls, options: SinkOptions) -> _Sender:
        kept, cls.kept = cls.kept, None
        if kept is not None and kept._options == options:
            kept._producer.poll(0)
            if not kept._broken:
                return kept
        return cls(options)

    def discard(self) -> None:
        """Discard the queue, so that the producer does not send rows of a task that will be repeated."""
        self._producer.purge()
        self._producer.flush(POLL_S)
        self._producer = None  # it refers to this object's methods, and would live until the next garbage collection

    def send(self, part: Iterator[Record]) -> int:
        """Give records to the producer. Returns their number. Raises DeliveryFailed."""
        produce = self._producer.produce
        count = 0
        for record in part:
            try:
                produce(**record)
            except BufferError:
                self._send_late(record)
            except Exception as error:
                raise _failure(record, error) from error
            count += 1
        self._producer.poll(0)
        self._check()
        return count

    def _send_late(self, record: Record) -> None:
        """Send a record once the queue has room again."""
        deadline = time.monotonic() + self._options.max_block_ms / 1000
        while True:
            self._producer.poll(POLL_S)
            self._check()
            try:
                self._producer.produce(**record)
                return
            except BufferError as error:
                if time.monotonic() > deadline:
                    waited = f"no room in the producer's queue for {self._options.max_block_ms} ms (kafka.max.block.ms)"
                    raise _failure(record, waited) from error
            except Exception as error:
                raise _failure(record, error) from error

    def finish(self) -> None:
        """Wait until every record is acknowledged or has failed, for at most `delivery.timeout.ms`."""
        while self._producer.flush(POLL_S) and self._failed is None:
            pass
        self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and self._failed is None:
            partition = message.partition()
            place = partition if partition is not None and partition >= 0 else None
            reason = f"{error.name()}: {error.str()}"
            if error.name() == "MSG_SIZE_TOO_LARGE":  # librdkafka had let it pass, so it is the broker's limit
                reason += "; the topic's max.message.bytes is the limit"
            self._failed = DeliveryFailed(message.topic(), place, reason)

    def _on_error(self, error: Any) -> None:
        self._broken |= error.fatal()
        LOG.warning("%s: %s", error.name(), error.str())


def _failure(record: Record, error: object) -> DeliveryFailed:
    from confluent_kafka import KafkaException

    if isinstance(error, KafkaException):
        name = error.args[0].name()
        error = f"{name}: {error.args[0].str()}"
        if name == "MSG_SIZE_TOO_LARGE":
            error += "; raise kafka.max.request.size (default: 1000000), and the topic's max.message.bytes if need be"
    return DeliveryFailed(record["topic"], record.get("partition"), str(error))
