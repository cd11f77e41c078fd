"""Produces with each client, as its users do: defaults, waiting for every acknowledgement."""

from __future__ import annotations

import asyncio
from typing import Any


def create_topic(bootstrap: str, topic: str, partitions: int, **config: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(10)


def produce(client: str, bootstrap: str, topic: str, values: list[str], partitions: int, **options: Any) -> None:
    """Spread the values over the partitions, round robin. Raises if any is not acknowledged."""
    match client:
        case "confluent":
            _confluent(bootstrap, topic, values, partitions, options)
        case "kafka-python":
            _kafka_python(bootstrap, topic, values, partitions, options)
        case "aiokafka":
            asyncio.run(_aiokafka(bootstrap, topic, values, partitions, options))


def _confluent(bootstrap: str, topic: str, values: list[str], partitions: int, options: dict[str, Any]) -> None:
    from confluent_kafka import Producer

    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **options})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value.encode(),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(20) == 0
    assert not failures, failures[:3]


def _kafka_python(bootstrap: str, topic: str, values: list[str], partitions: int, options: dict[str, Any]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **options)
    futures = [producer.send(topic, value.encode(), partition=n % partitions) for n, value in enumerate(values)]
    for future in futures:
        future.get(20)
    producer.close()


async def _aiokafka(bootstrap: str, topic: str, values: list[str], partitions: int, options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **options)
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value.encode(), partition=n % partitions) for n, value in enumerate(values)
        ]
        await asyncio.gather(*futures)
    finally:
        await producer.stop()
