"""Records through real clients: compression, headers, acknowledgements, timestamps, idempotence, broker restarts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from group import CLIENTS
from produce import create_topic, produce

from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]


def read_all(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    """Every value of a topic up to its end, without a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 20
    while len(ended) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(str(error))
    consumer.close()
    assert len(ended) == partitions, "the end was not reached"
    return values


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("client", CLIENTS)
def test_compressed_batches_come_back_as_they_were(client: str, compression: str, bootstrap: str, unique: str) -> None:
    values = [f"{number} " + "abc" * 50 for number in range(500)]
    option = "compression.type" if client == "confluent" else "compression_type"
    produce(client, bootstrap, unique, values, 1, **{option: compression})
    assert [value.decode() for value in read_all(bootstrap, unique)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement(acks: str, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 1)
    produce("confluent", bootstrap, unique, [str(n) for n in range(200)], 1, acks=acks)
    deadline = time.monotonic() + 10
    while len(read_all(bootstrap, unique)) < 200:
        assert time.monotonic() < deadline, "acks=0 records arrive, if a little later"
    assert len(read_all(bootstrap, unique)) == 200


def test_an_idempotent_producer_is_remembered_over_a_restart(tmp_path: Path, unique: str) -> None:
    with KohortServer(data_dir=str(tmp_path)) as server:
        bootstrap = server.bootstrap_servers
        create_topic(bootstrap, unique, 1)
        failures: list[str] = []
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        for number in range(100):
            producer.produce(unique, str(number).encode(), on_delivery=delivered)
        assert producer.flush(20) == 0
        server.restart()
        for number in range(100, 200):
            producer.produce(unique, str(number).encode(), on_delivery=delivered)
        assert producer.flush(30) == 0
        assert not failures
        assert read_all(bootstrap, unique) == [str(n).encode() for n in range(200)]


def test_headers_keys_nulls_and_timestamps_round_trip(bootstrap: str, unique: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    create_topic(bootstrap, unique, 1)
    producer.produce(unique, b"v", b"k", headers=[("a", b"1"), ("a", None), ("é", b"")], timestamp=1_700_000_000_123)
    producer.produce(unique, None, b"tombstone", timestamp=1_700_000_001_000)
    producer.produce(unique, b"", None, timestamp=1_700_000_002_000)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(unique, 0, 0)])
    messages = []
    while len(messages) < 3:
        messages += consumer.consume(3, timeout=5)
    first, second, third = messages
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", 1_700_000_000_123)
    assert first.headers() == [("a", b"1"), ("a", None), ("é", b"")]
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value()) == (None, b"")
    [found] = consumer.offsets_for_times([TopicPartition(unique, 0, 1_700_000_000_500)], timeout=5)
    assert found.offset == 1
    assert consumer.get_watermark_offsets(TopicPartition(unique, 0), timeout=5) == (0, 3)
    consumer.close()


def test_a_record_above_the_limit_is_refused_and_nothing_else_is_lost(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, 1, **{"max.message.bytes": "2000"})
    outcomes: list[str | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 1_000_000})
    for value in (b"small", b"x" * 5_000, b"small too"):
        producer.produce(unique, value, on_delivery=lambda error, _: outcomes.append(error and error.name()))
        producer.flush(10)
    assert outcomes == [None, "MSG_SIZE_TOO_LARGE", None]
    assert read_all(bootstrap, unique) == [b"small", b"small too"]


def test_a_large_value_crosses_in_one_piece(bootstrap: str, unique: str) -> None:
    value = bytes(range(256)) * 3_600
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(unique, value)
    assert producer.flush(10) == 0
    assert read_all(bootstrap, unique) == [value]


def test_three_brokers_in_one_process(unique: str) -> None:
    with KohortServer(brokers=3) as server:
        bootstrap = server.bootstrap_servers
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(unique, 6, 3)])[unique].result(10)
        leaders = [p.leader for p in admin.list_topics(unique, timeout=10).topics[unique].partitions.values()]
        assert len(set(leaders)) == 3, "leaders are spread"
        produce("confluent", bootstrap, unique, [str(n) for n in range(120)], 6)
        server.move_partition(unique, 0, leaders[1])
        produce("confluent", bootstrap, unique, [str(n) for n in range(120, 240)], 6)
        assert sorted(int(v) for v in read_all(bootstrap, unique, 6)) == list(range(240))
