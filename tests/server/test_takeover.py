"""Two nodes on one PostgreSQL, as processes: one serves, the other takes over."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from http_client import ask
from process import COMMAND, Serve

from kohort.client.cluster import Cluster

LEASE_MS = 3_000
NODES = [*COMMAND[:-1], "cluster", "nodes", "--storage"]
READY, STAND_BY = "kohort is ready", "waiting as a stand-by"
PAGES = "/livez", "/readyz"
Start = Callable[..., Serve]


@pytest.fixture
def addresses() -> list[str]:
    """Of the nodes 1 and 2, and of the pages of node 2."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@pytest.fixture
def start(postgres_url: str, addresses: list[str]) -> Iterator[Start]:
    with ExitStack() as nodes:

        def start(number: int, until: str = READY, *more: str) -> Serve:
            settings = {
                "broker.id": number,
                "broker.session.timeout.ms": LEASE_MS,
                "broker.heartbeat.interval.ms": 500,
                "group.initial.rebalance.delay.ms": 0,
            }
            flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            listeners = ("--listeners", addresses[number - 1])
            return nodes.enter_context(Serve(*listeners, "--storage", postgres_url, *flags, *more, until=until))

        yield start


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)


class Writing:
    """A producer that writes one record after the other, and a member of a group that reads and commits them."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self._servers = servers
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Writing:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "linger.ms": 0})
        number = 0
        while not self._ends.is_set():
            done: list[Any] = []
            producer.produce("orders", str(number), callback=lambda error, _, done=done: done.append(error))
            while not done and not self._ends.is_set():
                producer.poll(0.05)
            if done and done[0] is None:
                self.acknowledged.append(number)
            number += 1

    def _consume(self) -> None:
        settings = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._servers, **settings})
        consumer.subscribe(["orders"])
        while not self._ends.is_set():
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue
            self.read.append(int(message.value()))
        consumer.close()


def records(cluster: Cluster) -> list[int]:
    """What is in the log."""
    from kohort.wire.batches import decode_records, split_batches

    found: list[int] = []
    while True:
        [part] = cluster.fetch({("orders", 0): len(found)}, max_wait_ms=0)
        more = [
            int(record.value or b"")
            for _, batch in split_batches(part.records, strict=False)
            for record in decode_records(batch)
            if record.offset >= len(found)
        ]
        if not more:
            return found
        found += more


def listed(address: str) -> set[int]:
    with Cluster(address) as cluster:
        return set(cluster.nodes())


def test_clients_go_on_after_a_kill(start: Start, addresses: list[str], postgres_url: str) -> None:
    first = start(1)
    second = start(2, STAND_BY, "--set", f"http.listener={addresses[2]}")
    servers = ",".join(addresses[:2])
    assert [ask(addresses[2], page)[0] for page in PAGES] == [200, 503]
    with Cluster(addresses[0]) as cluster:
        cluster.create_topic("orders", 1)
    wait_for(lambda: listed(addresses[0]) == {1, 2})
    with Writing(servers) as writing:
        wait_for(lambda: len(writing.acknowledged) > 20 and len(writing.read) > 20)
        first.process.kill()
        written, read = len(writing.acknowledged), len(writing.read)
        began = time.monotonic()
        wait_for(lambda: len(writing.acknowledged) > written + 20)
        assert time.monotonic() - began < 12
        wait_for(lambda: len(writing.read) > read + 20)
    assert any("taking over" in line for line in second.lines)
    assert [ask(addresses[2], page)[0] for page in PAGES] == [200, 200]
    wait_for(lambda: listed(addresses[1]) == {2})
    with Cluster(addresses[1]) as cluster:
        found = records(cluster)
        assert found == sorted(set(found)), "exactly once, in order"
        assert set(writing.acknowledged) <= set(found)
        committed = cluster.committed("billing")[("orders", 0)].offset
        assert found[committed - 1] >= max(writing.read)
    start(1, STAND_BY)
    wait_for(lambda: listed(addresses[1]) == {1, 2})
    told = json.loads(subprocess.run([*NODES, postgres_url, "-o", "json"], check=True, capture_output=True).stdout)
    assert [(node["id"], node["slots"], node["lease_s"] > 0) for node in told["nodes"]] == [
        (1, 0, True),
        (2, 128, True),
    ]
    second.process.send_signal(signal.SIGTERM)
    assert second.ended() == 0
    wait_for(lambda: _is_up(addresses[0]), LEASE_MS / 1000)


def _is_up(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def test_an_owner_that_was_stopped_too_long_says_nothing_more(start: Start, addresses: list[str]) -> None:
    first = start(1)
    second = start(2, STAND_BY)
    with Cluster(addresses[0], api_timeout_ms=3_000) as cluster:
        cluster.create_topic("orders", 1)
        cluster.commit("billing", {("orders", 0): 1})
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: any(READY in line for line in second.lines))
        with Cluster(addresses[1]) as other:
            other.commit("billing", {("orders", 0): 2})
        asked = threading.Thread(target=_ask, args=(cluster, answers := []))
        asked.start()
        time.sleep(0.2)  # its request is in the socket, or would be
        first.process.send_signal(signal.SIGCONT)
        assert first.ended() == 75
        asked.join()
    assert answers == [], "an answer would be the offset that it last knew"
    assert "another process has taken over" in "".join(first.errors)


def _ask(cluster: Cluster, answers: list[int]) -> None:
    try:
        answers.append(cluster.committed("billing")[("orders", 0)].offset)
    except Exception:
        return
