"""librdkafka's programs for `make bench`, each in a process of its own.

    python -m bench._librdkafka produce ADDRESS TOPIC RECORDS SIZE COMPRESSION ACKS
    python -m bench._librdkafka consume ADDRESS TOPIC RECORDS
    python -m bench._librdkafka transact ADDRESS TOPIC TRANSACTIONS
    python -m bench._librdkafka stream ADDRESS TOPIC PARTITIONS PERIOD_S     until stdin ends
    python -m bench._librdkafka members ADDRESS TOPIC     commands on stdin, until it ends
    python -m bench._librdkafka mock     a cluster of one broker; prints its address; until stdin ends

`produce` and `consume` print their times as JSON. The time counts from the first record on: by then the client has
metadata and connections, and a consumer its partitions. A consumer takes 10,000 records at a time and does not look at
them.

`transact` commits a transaction of one record every 20 ms, and prints the median and the 99th percentile of the times
of commit_transaction(), and of those from produce() until the record comes out of a consumer with read_committed.

`members` are consumers with KIP-848, each in a thread; java/RebalanceMembers.java is the same for Java's. Reports go to
stdout, a line each, with times in nanoseconds of the machine's monotonic clock, written together every 20 ms:

    join GROUP NAME  →  NAME TIME        taken just before subscribe()
                        NAME TIME 1,2    a record of each of these partitions came out of poll()
    leave NAME
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import threading
import time
from collections import deque
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_S = 120.0
TRANSACTION_S = 0.02
UNCOUNTED = 20
"""The first transactions, which connect and warm up."""
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


def transact(address: str, topic: str, transactions: int) -> dict[str, float]:
    """Both clients are in this process; the consumer, in a thread, reads from the topic's end on."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "log_level": 4,
            "transactional.id": f"latency-{time.monotonic_ns()}",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "log_level": 4,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, end)])
    reads: list[int] = []

    def read() -> None:
        deadline = time.monotonic() + WAIT_S
        while len(reads) < transactions + UNCOUNTED and time.monotonic() < deadline:
            if (message := consumer.poll(0.1)) is not None and not message.error():
                reads.append(time.monotonic_ns() - int(message.value()))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    commits: list[int] = []
    due = time.monotonic()
    for number in range(transactions + UNCOUNTED):
        if number == UNCOUNTED:
            cpu = time.process_time()
        time.sleep(max(0.0, due - time.monotonic()))
        due = max(due + TRANSACTION_S, time.monotonic())
        producer.begin_transaction()
        producer.produce(topic, str(time.monotonic_ns()).encode(), partition=0)
        began = time.monotonic_ns()
        producer.commit_transaction(WAIT_S)
        commits.append(time.monotonic_ns() - began)
    reader.join()
    assert len(reads) == len(commits), f"{len(reads)} of {len(commits)} records were read"
    made = {"own_cpu": time.process_time() - cpu}
    consumer.close()
    for name, found in (("commit", commits), ("read", reads)):
        percentiles = statistics.quantiles(found[UNCOUNTED:], n=100)
        made |= {f"{name}_p50_us": percentiles[49] / 1e3, f"{name}_p99_us": percentiles[98] / 1e3}
    return made


def stream(address: str, topic: str, partitions: int, period_s: float) -> None:
    """A record to each partition every `period_s` seconds."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    producer = Producer({"bootstrap.servers": address})
    due = time.monotonic()
    while not ended.is_set():
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition)
        producer.poll(0)
        due = max(due + period_s, time.monotonic() - 1)
        ended.wait(max(0, due - time.monotonic()))
    producer.flush(5)


def members(address: str, topic: str) -> None:
    said: deque[str] = deque()
    joined: dict[str, threading.Event] = {}

    def consume(group: str, name: str, left: threading.Event) -> None:
        consumer = Consumer({"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer"})
        said.append(f"{name} {time.monotonic_ns()}\n")
        consumer.subscribe([topic])
        while not left.is_set():
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                said.append(f"{name} {time.monotonic_ns()} {message.partition()}\n")
        consumer.close()

    def tell_all() -> None:
        while True:
            time.sleep(0.02)
            os.write(1, "".join(said.popleft() for _ in range(len(said))).encode())

    threading.Thread(target=tell_all, daemon=True).start()
    for line in sys.stdin:
        match line.split():
            case ["join", group, name]:
                joined[name] = threading.Event()
                threading.Thread(target=consume, args=(group, name, joined[name]), daemon=True).start()
            case ["leave", name]:
                joined[name].set()
    os._exit(0)


def mock() -> None:
    """The mock keeps topics and groups in memory; it serves no consumer groups of KIP-848 and few connections."""
    producer = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


def main(words: list[str]) -> None:
    cpu = time.process_time()
    done: dict[str, float]
    match words:
        case ["mock"]:
            return mock()
        case ["stream", address, topic, partitions, period_s]:
            return stream(address, topic, int(partitions), float(period_s))
        case ["members", address, topic]:
            return members(address, topic)
        case ["transact", address, topic, transactions]:
            done = transact(address, topic, int(transactions))
        case ["produce", address, topic, records, size, compression, acks]:
            done = {"seconds": produce(address, topic, int(records), int(size), compression, acks)}
        case ["consume", address, topic, records, *_]:
            done = {"seconds": consume(address, topic, int(records))}
        case _:
            sys.exit(__doc__)
    print(json.dumps({"own_cpu": time.process_time() - cpu, **done}))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
