"""A broker for Dramatiq (https://dramatiq.io) on work queues: `KohortBroker`.

    import dramatiq
    from kohort.client.dramatiq import KohortBroker

    dramatiq.set_broker(KohortBroker("localhost:9092"))

    @dramatiq.actor(max_retries=3, time_limit=60_000)
    def send(address): ...

Each queue of Dramatiq is a topic, read by a share group. Retries, time limits and priorities of actors are Dramatiq's
own. A message that is delayed waits in the queue's delay topic, which a worker of the group empties
(kohort.client.queue), instead of in the memory of the worker that received it. A message that fails for good goes to a
dead-letter topic.

Needs the package dramatiq: `pip install 'kohort[dramatiq]'`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from dramatiq import Broker, Message, MessageProxy, Middleware
from dramatiq.broker import Consumer
from dramatiq.errors import ConnectionFailed, DecodeError, QueueJoinTimeout, QueueNotFound
from dramatiq.logging import get_logger

from kohort.client.cluster import Cluster
from kohort.client.errors import Closed, KafkaError, LockLost
from kohort.client.queue.blocking import BlockingJob, BlockingWorkQueue
from kohort.client.queue.options import QueueOptions
from kohort.client.queue.remaining import is_empty, waiting_keys
from kohort.wire.batches import NewRecord

DELAYED, DEAD = "DQ", "XQ"
"""Dramatiq's endings of the names of queues for delayed and for dead messages."""
POLL_S = 0.05


class KohortBroker(Broker):
    """A Dramatiq broker. Queue `Q` is the topic `NAMESPACE.Q`, delayed messages are in `NAMESPACE.Q.DQ`, dead ones in
    `NAMESPACE.Q.XQ`; the share group is `NAMESPACE.Q`, too. Missing topics are created.

    `options` are those of `WorkQueue`; `max_deliveries` counts workers that died, because Dramatiq retries with new
    messages. Raises ValueError, TypeError.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        namespace: str = "dramatiq",
        middleware: list[Middleware] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        super().__init__(middleware)
        self._bootstrap = bootstrap_servers
        self._namespace = namespace
        self._options = options
        self._gate = threading.Lock()
        self._producers: dict[tuple[int, str], BlockingWorkQueue] = {}
        """By process, because a child of fork needs its own, and queue."""
        self._make("checked").close()

    def __repr__(self) -> str:
        return f"<KohortBroker {self._namespace!r}, {len(self.queues)} queues>"

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; its topics are created on first use."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put a message into its queue, after so many milliseconds. Durable when this returns. Raises QueueNotFound;
        dramatiq's ConnectionFailed if the cluster does not accept it."""
        queue = self._producer(message.queue_name)
        self.emit_before("enqueue", message, delay)
        try:
            queue.put(message.encode(), delay=(delay or 0) / 1000)
        except KafkaError as error:
            raise ConnectionFailed(str(error)) from error
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        """A consumer, which holds at most `prefetch` messages. Raises QueueNotFound, dramatiq's ConnectionFailed."""
        self._check(queue_name)
        queue = self._make(queue_name)
        try:
            queue.begin(prefetch)
        except KafkaError as error:
            queue.close()
            raise ConnectionFailed(str(error)) from error
        return _KohortConsumer(queue, timeout)

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue."""
        self._check(queue_name)
        topic = self._topic(queue_name)
        with self._cluster() as cluster:
            partitions = cluster.topics([topic])[topic].partitions
            cluster.delete_records({(topic, partition.index): -1 for partition in partitions})
            delayed = f"{topic}.{DELAYED}"
            now = time.time_ns() // 1_000_000
            tombstones = [NewRecord(key, None, now) for key in waiting_keys(cluster, delayed)]
            if tombstones:
                cluster.produce(delayed, 0, tombstones)

    def flush_all(self) -> None:
        """Drop all messages of all queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until all messages of a queue have been processed, delayed ones too; for tests. `timeout` in
        milliseconds. Raises QueueJoinTimeout, QueueNotFound."""
        self._check(queue_name)
        topic = self._topic(queue_name)
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        with self._cluster() as cluster:
            while not is_empty(cluster, topic, topic, f"{topic}.{DELAYED}"):
                if deadline is not None and time.monotonic() >= deadline:
                    raise QueueJoinTimeout(queue_name)
                time.sleep(POLL_S)

    def close(self) -> None:
        """Close the connections with which messages are put."""
        with self._gate:
            producers, self._producers = self._producers, {}
        for (process, _), queue in producers.items():
            if process == os.getpid():
                queue.close()

    # -- inside

    def _topic(self, queue_name: str) -> str:
        return f"{self._namespace}.{queue_name}"

    def _check(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)

    def _make(self, queue_name: str) -> BlockingWorkQueue:
        topic = self._topic(queue_name)
        options: QueueOptions = {"dead_letter": f"{topic}.{DEAD}", "delay_topic": f"{topic}.{DELAYED}", **self._options}
        return BlockingWorkQueue(self._bootstrap, topic, group=topic, **options)

    def _producer(self, queue_name: str) -> BlockingWorkQueue:
        self._check(queue_name)
        key = os.getpid(), queue_name
        with self._gate:
            if key not in self._producers:
                self._producers[key] = self._make(queue_name)
            return self._producers[key]

    def _cluster(self) -> Cluster:
        return Cluster(self._bootstrap, security=self._options.get("security"))


class _KohortMessage(MessageProxy):
    def __init__(self, message: Message[Any], job: BlockingJob) -> None:
        super().__init__(message)
        self.job = job


class _KohortConsumer(Consumer):
    def __init__(self, queue: BlockingWorkQueue, timeout_ms: int) -> None:
        self._queue = queue
        self._timeout_s = timeout_ms / 1000
        self._logger = get_logger(__name__, type(self))

    def __next__(self) -> MessageProxy | None:
        try:
            job = self._queue.next(self._timeout_s)
        except KafkaError as error:
            raise ConnectionFailed(str(error)) from error
        if job is None:
            return None
        try:
            return _KohortMessage(Message.decode(job.value or b""), job)
        except DecodeError as error:
            self._logger.error("%r cannot be decoded; it becomes a dead letter", job, exc_info=True)
            self._ended("reject", job, str(error))
            return None

    def ack(self, message: MessageProxy) -> None:
        assert isinstance(message, _KohortMessage)
        self._ended("ack", message.job)

    def nack(self, message: MessageProxy) -> None:
        assert isinstance(message, _KohortMessage)
        why = message._exception
        self._ended("reject", message.job, "" if why is None else f"{type(why).__name__}: {why}")

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            assert isinstance(message, _KohortMessage)
            self._ended("release", message.job)

    def close(self) -> None:
        self._queue.close()

    def _ended(self, call: str, job: BlockingJob, *arguments: str) -> None:
        """An outcome that is not stored is no error of the worker: the message comes again."""
        try:
            getattr(job, call)(*arguments)
        except (KafkaError, LockLost, Closed) as error:
            self._logger.warning("%s of %r: %s", call, job, error)
