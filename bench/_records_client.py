"""librdkafka for `bench records`, in a process of its own: produces or reads, and prints the times as JSON.

    python -m bench._records_client produce ADDRESS TOPIC RECORDS SIZE COMPRESSION ACKS
    python -m bench._records_client consume ADDRESS TOPIC RECORDS SIZE COMPRESSION ACKS

The time counts from the first record on: by then the client has metadata and connections, and a consumer its
partitions. A consumer takes 10,000 records at a time and does not look at them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_S = 120.0
WORDS = [f"{word}-{n}" for word in ("click", "basket", "order", "return", "refund", "visit") for n in range(50)]


def values(size: int) -> list[bytes]:
    """Text that compresses to about a third, different from record to record."""
    chosen = random.Random(7)
    made = []
    for _ in range(1_000):
        text = ""
        while len(text) < size:
            text += f'{{"event":"{chosen.choice(WORDS)}","user":{chosen.randrange(10**6)},"at":{chosen.random():.6f}}}'
        made.append(text[:size].encode())
    return made


def produce(address: str, topic: str, records: int, size: int, compression: str, acks: str) -> float:
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "log_level": 4,
            "acks": acks,
            "compression.type": compression,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 512_000,
        },
        on_delivery=lambda error, _: failed.append(error) if error else None,
    )
    made = values(size)
    for partition in range(_partitions(producer, topic)):
        producer.produce(topic, made[0], partition=partition)
    assert producer.flush(WAIT_S) == 0
    began = time.perf_counter()
    for n in range(records):
        while True:
            try:
                producer.produce(topic, made[n % 1_000])
                break
            except BufferError:
                producer.poll(0.01)
        if n % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0, "not all was delivered"
    took = time.perf_counter() - began
    assert not failed, failed[0]
    return took


def _partitions(client: Any, topic: str) -> int:
    return len(client.list_topics(topic, timeout=30).topics[topic].partitions)


def consume(address: str, topic: str, records: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "log_level": 4,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_194_304,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 1,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(_partitions(consumer, topic))])
    seen = 0
    deadline = time.monotonic() + WAIT_S
    while not seen and time.monotonic() < deadline:
        seen += len(consumer.consume(1, 1.0))
    began = time.perf_counter()
    while seen < records:
        assert time.monotonic() < deadline, f"{seen} of {records} records were read"
        some = consumer.consume(min(10_000, records - seen), 1.0)
        assert not any(message.error() for message in some[:1])
        seen += len(some)
    took = time.perf_counter() - began
    consumer.close()
    return took


def main(words: list[str]) -> None:
    what, address, topic, records, size, compression, acks = words
    cpu = time.process_time()
    if what == "produce":
        took = produce(address, topic, int(records), int(size), compression, acks)
    else:
        took = consume(address, topic, int(records))
    print(json.dumps({"seconds": took, "own_cpu": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1:])
