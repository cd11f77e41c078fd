"""A transactional producer of each client library, with the same blocking calls; and readers of committed records."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

_T = TypeVar("_T")
CALL_S = 30.0
Offsets = Mapping[tuple[str, int], int]


class TransactionalProducer(Protocol):
    def begin(self) -> None: ...
    def send(self, topic: str, value: str, partition: int = 0) -> None:
        """Returns when the record is acknowledged."""

    def send_offsets(self, offsets: Offsets, group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None:
        """Without ending the transaction, as far as the library can."""


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 30_000),
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                # When all brokers are away, librdkafka 2.16 forgets them and begins anew. Its cache of the groups'
                # coordinators keeps a broker that it has forgotten, and send_offsets_to_transaction waits for ever.
                "metadata.recovery.strategy": "none",
            }
        )
        self._groups: dict[str, Consumer] = {}
        self._bootstrap = bootstrap
        self._producer.init_transactions(CALL_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        failures: list[KafkaError] = []
        self._producer.produce(
            topic,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        assert self._producer.flush(CALL_S) == 0
        if failures:
            raise KafkaException(failures[0])

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        if group not in self._groups:
            self._groups[group] = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._again(self._producer.send_offsets_to_transaction, places, self._groups[group].consumer_group_metadata())

    def commit(self) -> None:
        self._again(self._producer.commit_transaction)

    def abort(self) -> None:
        self._again(self._producer.abort_transaction)

    def _again(self, call: Any, *arguments: Any) -> None:
        """What fails in passing is called again, as the library's documentation says."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                call(*arguments, CALL_S)
                return
            except KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._producer.purge()
        for consumer in self._groups.values():
            consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=200,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._producer.send(topic, value.encode(), partition=partition).get(CALL_S)

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        from kafka import TopicPartition as Place
        from kafka.structs import OffsetAndMetadata

        places = {Place(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self._producer.send_offsets_to_transaction(places, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class Aiokafka:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._producer = self._run(self._started(bootstrap, transactional_id, timeout_ms))

    async def _started(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def send_offsets(self, offsets: Offsets, group: str) -> None:
        from aiokafka import TopicPartition as Place

        places = {Place(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def closed() -> None:
            await self._producer.client.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self._run(closed())
        self._loop.call_soon_threadsafe(self._loop.stop)


KINDS: dict[str, Any] = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}


class Transactional:
    """Makes transactional producers, and closes them all at its end."""

    def __init__(self) -> None:
        self._made: list[TransactionalProducer] = []

    def __call__(self, client: str, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Any:
        """A producer, initialised: open transactions of its predecessors are aborted."""
        self._made.append(KINDS[client](bootstrap, transactional_id, timeout_ms))
        return self._made[-1]

    def close(self) -> None:
        while self._made:
            self._made.pop().close()


def read(client: str, bootstrap: str, topic: str, partitions: int = 1, *, committed: bool = True) -> list[list[str]]:
    """The values of each partition, up to where a reader of (un)committed records finds its end."""
    return (_read_aiokafka if client == "aiokafka" else _read_confluent)(bootstrap, topic, partitions, committed)


def _level(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"


def _read_confluent(bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.partition.eof": True,
            "isolation.level": _level(committed),
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[list[str]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + CALL_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"no end of {topic}"
        for message in consumer.consume(1_000, timeout=0.2):
            if (error := message.error()) is None:
                values[message.partition()].append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return values


def _read_aiokafka(bootstrap: str, topic: str, partitions: int, committed: bool) -> list[list[str]]:
    async def found() -> list[list[str]]:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Place

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=_level(committed))
        await consumer.start()
        try:
            places = [Place(topic, partition) for partition in range(partitions)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(places)
            values: list[list[str]] = [[] for _ in range(partitions)]
            while True:
                positions = [await consumer.position(place) for place in places]
                if all(position >= ends[place] for place, position in zip(places, positions, strict=True)):
                    return values
                for place, records in (await consumer.getmany(timeout_ms=200)).items():
                    values[place.partition].extend(record.value.decode() for record in records)
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(found(), CALL_S))


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """-1001 if there is none; waits while a transaction with one is open."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"})
    [found] = consumer.committed([TopicPartition(topic, partition)], CALL_S)
    consumer.close()
    return int(found.offset)
