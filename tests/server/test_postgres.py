"""A server whose data is in PostgreSQL."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import Consumer, Producer
from postgres_server import PostgresServer
from process import ANYWHERE, Serve

import kohort.server.server
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


def write_transaction(address: str, *, commits: bool, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t", "linger.ms": 0, **settings})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"committed" if commits else b"aborted", partition=0)
    producer.flush(20)
    (producer.commit_transaction if commits else producer.abort_transaction)(20)


def read(address: str) -> list[bytes]:
    """What a member of a group reads that commits; it returns when it is at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["orders"])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value())
    assert message is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_records_offsets_and_transactions_survive_a_kill(postgres_url: str) -> None:
    flags = (*ANYWHERE, "--storage", postgres_url, "--set", "group.initial.rebalance.delay.ms=0")
    with Serve(*flags) as first:
        assert "storage=postgresql:///" in first.ready
        [address] = first.addresses
        with Cluster(address) as cluster:
            cluster.create_topic("orders", 1)
        write_transaction(address, commits=False)
        write_transaction(address, commits=True)
        assert read(address) == [b"committed"]
        first.process.kill()
        first.ended()
    with Serve(*flags) as second:
        [address] = second.addresses
        with Cluster(address) as cluster:
            assert cluster.committed("billing")[("orders", 0)].offset == 4
        write_transaction(address, commits=True)
        assert read(address) == [b"committed"]
        second.process.send_signal(signal.SIGTERM)
        assert second.ended() == 0


def test_a_stop_does_not_wait_for_a_database_that_is_gone(
    postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kohort.server.server, "STOP_S", 0.5)
    with KohortServer(storage=postgres_url) as server:
        server.create_topic("orders")
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
        postgres_server.stop()
        try:
            producer.produce("orders", b"lost")
            assert producer.flush(0.2) == 1, "not acknowledged"
            server.stop()
        finally:
            postgres_server.start()
    producer.purge()
