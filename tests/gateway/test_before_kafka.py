"""A gateway before three brokers of Apache Kafka: brokers and the gateway are killed, groups move over and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench._kafka import free_ports
from confluent_kafka import Consumer, Producer
from gateway_server import GatewayServer, wait_for
from group import Group
from kafka_cluster import Cluster as Kafka
from kafka_cluster import cluster as three_brokers
from process import Serve
from produce import produce
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]
COMMAND = [sys.executable, "-c", "from kohort.cli.main import main; main()", "gateway"]
PARTITIONS = 6


@pytest.fixture(scope="module")
def kafka(class_path: str) -> Iterator[Kafka]:
    with three_brokers(class_path, {"offsets.topic.replication.factor": "3"}) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(kafka: Kafka) -> Iterator[GatewayServer]:
    with GatewayServer(kafka.bootstrap_servers, group_min_session_timeout_ms=1_000) as server:
        yield server.wait_for_upstream()


def numbered(first: int, count: int) -> list[str]:
    return [f"v{number}" for number in range(first, first + count)]


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_a_broker_is_killed_and_comes_back(client: str, kafka: Kafka, gateway: GatewayServer, unique: str) -> None:
    """The last one: the first one is the controller."""
    bootstrap = gateway.bootstrap_servers
    with Cluster(kafka.bootstrap_servers) as direct:
        direct.create_topic(unique, PARTITIONS, 3)
    with Group(client, bootstrap, unique, unique) as group:
        a, b = group.share([3, 3], "a", "b")
        produce(client, bootstrap, unique, numbered(0, 300), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 300, "300 values")
        before = [list(a.assigned), list(b.assigned)]
        kafka.nodes[-1].kill()
        try:
            produce(client, bootstrap, unique, numbered(300, 300), PARTITIONS)
            group.wait(lambda: len(set(group.values())) == 600, "600 values")
        finally:
            kafka.nodes[-1].start()
        produce(client, bootstrap, unique, numbered(600, 60), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 660, "660 values")
        assert [list(a.assigned), list(b.assigned)] == before, "no partition has moved"
        group.close()
    with Cluster(bootstrap) as through:
        assert sum(entry.offset for entry in through.committed(unique).values()) == 660


def test_kill_9_of_the_gateway(kafka: Kafka, tmp_path: Path, unique: str) -> None:
    """Members go on; what was committed is there."""
    first, *others = free_ports(4)
    where = ("--listen", f"127.0.0.1:{first}", "--broker-ports", ",".join(map(str, others)))
    words = ("--upstream", kafka.bootstrap_servers, "--data-dir", str(tmp_path / "gateway"), *where)
    words += ("--set", "group.min.session.timeout.ms=1000", "--set", "group.initial.rebalance.delay.ms=200")
    bootstrap = f"127.0.0.1:{first}"
    with Cluster(kafka.bootstrap_servers) as direct:
        direct.create_topic(unique, PARTITIONS, 3)
    with Serve(*words, command=COMMAND) as gateway, Group("confluent", bootstrap, unique, unique) as group:
        a, b = group.share([3, 3], "a", "b")
        produce("confluent", bootstrap, unique, numbered(0, 300), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 300, "300 values")
        gateway.process.kill()
        with Serve(*words, command=COMMAND):
            produce("confluent", bootstrap, unique, numbered(300, 300), PARTITIONS)
            group.wait(lambda: len(set(group.values())) == 600, "600 values")
            group.wait_assigned([3, 3], a, b)
            group.close()
            with Cluster(bootstrap) as through:
                assert sum(entry.offset for entry in through.committed(unique).values()) == 600


def test_a_transaction_without_offsets_passes(kafka: Kafka, gateway: GatewayServer, unique: str) -> None:
    with Cluster(kafka.bootstrap_servers) as direct:
        direct.create_topic(unique, 2, 3)
    producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "transactional.id": unique})
    producer.init_transactions(30)
    for word, commits in (("kept", True), ("dropped", False), ("kept too", True)):
        producer.begin_transaction()
        producer.produce(unique, word, partition=0)
        producer.flush(10)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    consumer = Consumer(gateway.client_config(unique) | {"isolation.level": "read_committed"})
    try:
        consumer.subscribe([unique])
        found: list[bytes | None] = []

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
            return found == [b"kept", b"kept too"]

        wait_for(read, f"the committed records, not {found}", 30)
    finally:
        consumer.close()


def test_a_group_moves_over_and_back(kafka: Kafka, gateway: GatewayServer, unique: str) -> None:
    there, here = kafka.bootstrap_servers, gateway.bootstrap_servers
    with Cluster(there) as direct:
        direct.create_topic(unique, PARTITIONS, 3)
    produced = 0
    for at, command, then in ((there, "import-offsets", here), (here, "export-offsets", there), (there, "", "")):
        produce("confluent", there, unique, numbered(produced, 60), PARTITIONS)
        with Group("confluent", at, unique, unique) as group:
            group.start("a")
            group.wait(lambda group=group: len(group.values()) >= 60, "what is new")
            group.close()
            assert sorted(group.values()) == sorted(numbered(produced, 60)), "nothing is read twice"
        produced += 60
        if command:
            words = ("gateway", command, unique, "--upstream", there, "--gateway", here, "--execute", "--yes")
            ran = CliRunner().invoke(app, words)
            assert ran.exit_code == 0, ran.stdout + ran.stderr
            with Cluster(then) as cluster:
                assert sum(entry.offset for entry in cluster.committed(unique).values()) == produced
