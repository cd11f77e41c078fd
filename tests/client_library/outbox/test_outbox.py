"""The outbox with every driver, against kohort and Apache Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from committed_records import committed, settle
from outbox_stores import Store, agree, once_before, opened, write

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records import records


def test_both_are_committed(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            for number in range(3):
                await write(outbox, store, connection, topic, f"a{number}", f"b{number}")
            assert not outbox.unfinished

    asyncio.run(program())
    agree(store, cluster, topic, "a0", "b0", "a1", "b1", "a2", "b2")
    assert store.rows() == [(name, 1, None)]


def test_an_exception_rolls_both_back(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            await write(outbox, store, connection, topic, "kept")

            async def fail() -> None:
                async with outbox.transaction(connection) as kafka:
                    await store.insert(connection, "lost")
                    kafka.send(topic, "lost")
                    raise ArithmeticError

            with pytest.raises(ArithmeticError):
                await fail()
            await write(outbox, store, connection, topic, "next")

    asyncio.run(program())
    agree(store, cluster, topic, "kept", "next")


def test_kafka_refuses_and_the_database_rolls_back(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):

            async def fail(bad: str) -> None:
                async with outbox.transaction(connection) as kafka:
                    await store.insert(connection, "lost")
                    kafka.send(topic, "lost")
                    kafka.send(bad, b"x" * 2_000_000)

            for bad, why in (("missing", "topic missing: UNKNOWN_TOPIC"), (topic, "MESSAGE_TOO_LARGE")):
                with pytest.raises(KafkaError, match=why):
                    await fail(bad)
                assert not outbox.unfinished
            await write(outbox, store, connection, topic, "kept")

    asyncio.run(program())
    agree(store, cluster, topic, "kept")


def test_the_database_refuses_and_kafka_aborts(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    """The statement that notes the transaction fails, after the records are prepared."""

    def fail() -> None:
        raise ArithmeticError

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection):
            once_before(outbox, "note", fail)
            with pytest.raises(ArithmeticError):
                await write(outbox, store, connection, topic, "lost")
            await write(outbox, store, connection, topic, "kept")

    asyncio.run(program())
    agree(store, cluster, topic, "kept")


def test_a_transaction_without_records(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection), outbox.transaction(connection):
            await store.insert(connection, "row")

    asyncio.run(program())
    assert store.values() == ["row"]
    assert committed(cluster, topic) == []


def test_keys_headers_and_partitions(store: Store, cluster: Cluster, servers: str, name: str, topic: str) -> None:
    other = f"{topic}.6"
    cluster.create_topic(other, 6)

    async def program() -> None:
        async with opened(store, name, servers) as (outbox, connection), outbox.transaction(connection) as kafka:
            kafka.send(other, None, key="k", headers={"h": b"1"}, timestamp_ms=7)
            kafka.send(other, b"\xff", partition=5)
            for _ in range(20):
                kafka.send(other, "keyless")

    asyncio.run(program())
    found: dict[int, list[Any]] = {}
    for partition in range(6):
        settle(cluster, other, partition)
        end = cluster.offsets([(other, partition)])[other, partition]
        fetched = cluster.fetch({(other, partition): 0}) if end else []
        found[partition] = [record for answer in fetched for record in records(answer, 0)]
    keyed = [record for in_partition in found.values() for record in in_partition if record.key is not None]
    assert [(record.key, record.value, record.timestamp, record.headers) for record in keyed] == [
        (b"k", None, 7, (("h", b"1"),))
    ]
    assert b"\xff" in [record.value for record in found[5]]
    keyless = [[r for r in rows if r.value == b"keyless"] for rows in found.values()]
    assert sorted(map(len, keyless)) == [0, 0, 0, 0, 0, 20]


def test_large_transactions_are_many_batches(
    store: Store, cluster: Cluster, servers: str, name: str, topic: str
) -> None:
    values = [f"{number:04}" + "x" * 10_000 for number in range(150)]

    async def program() -> None:
        async with opened(store, name, servers, max_bytes=2_000_000) as (outbox, connection):

            async def send(values: list[str]) -> None:
                async with outbox.transaction(connection) as kafka:
                    for value in values:
                        kafka.send(topic, value)

            await send(values)
            with pytest.raises(ValueError, match="larger than 2000000 bytes"):
                await send(values + values)

    asyncio.run(program())
    assert committed(cluster, topic) == values
