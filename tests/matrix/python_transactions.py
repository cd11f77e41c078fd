"""Transactions of the Python clients, for python_driver.py.

`transact` begins a transaction and returns when its records are in the log; `end` commits or aborts it. `copy` reads
records as the only member of a group and copies them in one transaction, which has the group's offsets. A producer has
a name, because two of them have one transactional id where one fences the other.
"""

from __future__ import annotations

from typing import Any

Record = tuple[int, bytes, bytes]
"""Partition, key and value."""
IN_LOG_S = 40
TIMEOUT_MS = 60_000


class ConfluentTransactions:
    def __init__(self, bootstrap: str) -> None:
        self._at = {"bootstrap.servers": bootstrap}
        self._producers: dict[str, Any] = {}

    def _producer(self, name: str, transactional_id: str) -> Any:
        from confluent_kafka import Producer

        if name not in self._producers:
            settings = {"transactional.id": transactional_id, "transaction.timeout.ms": TIMEOUT_MS}
            self._producers[name] = Producer({**self._at, **settings})
            self._producers[name].init_transactions(IN_LOG_S)
        return self._producers[name]

    def transact(self, name: str, id: str, topic: str, records: list[Record]) -> None:
        producer = self._producer(name, id)
        producer.begin_transaction()
        for partition, key, value in records:
            producer.produce(topic, value, key, partition)
        assert producer.flush(IN_LOG_S) == 0

    def end(self, name: str, commit: bool) -> None:
        producer = self._producers[name]
        (producer.commit_transaction if commit else producer.abort_transaction)(IN_LOG_S)

    def copy(self, name: str, id: str, group: str, source: str, topic: str, count: int, commit: bool) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer, producer = Consumer({**self._at, **settings}), self._producer(name, id)
        consumer.subscribe([source])
        read: list[Any] = []
        while len(read) < count:
            read += consumer.consume(count - len(read), 1)
        assert not any(message.error() for message in read)
        producer.begin_transaction()
        places: dict[int, int] = {}
        for message in read:
            producer.produce(topic, message.value(), message.key(), message.partition())
            places[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(source, partition, offset) for partition, offset in places.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), IN_LOG_S)
        self.end(name, commit)
        consumer.close()


class KafkaPythonTransactions:
    def __init__(self, bootstrap: str) -> None:
        self._at = bootstrap
        self._producers: dict[str, Any] = {}

    def _producer(self, name: str, transactional_id: str) -> Any:
        from kafka import KafkaProducer

        if name not in self._producers:
            self._producers[name] = KafkaProducer(
                bootstrap_servers=self._at, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
            )
            self._producers[name].init_transactions()
        return self._producers[name]

    def transact(self, name: str, id: str, topic: str, records: list[Record]) -> None:
        producer = self._producer(name, id)
        producer.begin_transaction()
        for each in [producer.send(topic, value, key, [], partition) for partition, key, value in records]:
            each.get(IN_LOG_S)

    def end(self, name: str, commit: bool) -> None:
        producer = self._producers[name]
        (producer.commit_transaction if commit else producer.abort_transaction)()

    def copy(self, name: str, id: str, group: str, source: str, topic: str, count: int, commit: bool) -> None:
        from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

        consumer = KafkaConsumer(
            source,
            bootstrap_servers=self._at,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=count,
        )
        read: list[Any] = []
        while len(read) < count:
            for batch in consumer.poll(1000, max_records=count - len(read)).values():
                read += batch
        producer = self._producer(name, id)
        producer.begin_transaction()
        for record in read:
            producer.send(topic, record.value, record.key, [], record.partition)
        offsets = {
            TopicPartition(source, record.partition): OffsetAndMetadata(record.offset + 1, "", -1) for record in read
        }
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        self.end(name, commit)
        consumer.close()


class AiokafkaTransactions:
    def __init__(self, bootstrap: str) -> None:
        self._at = bootstrap
        self._producers: dict[str, Any] = {}

    def _run(self, work: Any) -> Any:
        raise NotImplementedError

    async def _producer(self, name: str, transactional_id: str) -> Any:
        from aiokafka import AIOKafkaProducer

        if name not in self._producers:
            self._producers[name] = AIOKafkaProducer(
                bootstrap_servers=self._at, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
            )
            await self._producers[name].start()
        return self._producers[name]

    def transact(self, name: str, id: str, topic: str, records: list[Record]) -> None:
        async def run() -> None:
            producer = await self._producer(name, id)
            await producer.begin_transaction()
            for partition, key, value in records:
                await producer.send(topic, value, key, partition)
            await producer.flush()

        self._run(run())

    def end(self, name: str, commit: bool) -> None:
        async def run() -> None:
            producer = self._producers[name]
            await (producer.commit_transaction if commit else producer.abort_transaction)()

        self._run(run())

    def copy(self, name: str, id: str, group: str, source: str, topic: str, count: int, commit: bool) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> None:
            consumer = AIOKafkaConsumer(
                source,
                bootstrap_servers=self._at,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            await consumer.start()
            producer = await self._producer(name, id)
            read: list[Any] = []
            while len(read) < count:
                for batch in (await consumer.getmany(timeout_ms=1000, max_records=count - len(read))).values():
                    read += batch
            await producer.begin_transaction()
            for record in read:
                await producer.send(topic, record.value, record.key, record.partition)
            offsets = {TopicPartition(source, record.partition): record.offset + 1 for record in read}
            await producer.send_offsets_to_transaction(offsets, group)
            await (producer.commit_transaction if commit else producer.abort_transaction)()
            await consumer.stop()

        self._run(run())
