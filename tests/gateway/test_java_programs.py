"""Kafka Connect and Kafka Streams, at least once, through a gateway before three brokers of Apache Kafka: their groups
are at the gateway, their records and internal topics in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import java_libraries
import pytest
from gateway_server import GatewayServer
from kafka_cluster import Cluster as Kafka
from kafka_cluster import cluster as three_brokers
from run_java import running
from test_connect import CONNECTORS, GROUP, TOPIC, configured, members, running_tasks, until, worker
from test_exactly_once import COUNTS, ROUNDS, WORDS, WORDS_A_ROUND, committed, say

from kohort.client.cluster import Cluster

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]
SINK = "sink"


@pytest.fixture(scope="module")
def classpath() -> str:
    return java_libraries.clients()


@pytest.fixture(scope="module")
def kafka(class_path: str) -> Iterator[Kafka]:
    with three_brokers(class_path) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(kafka: Kafka) -> Iterator[GatewayServer]:
    with GatewayServer(kafka.bootstrap_servers, group_min_session_timeout_ms=1_000) as server:
        yield server.wait_for_upstream()


def test_connect_from_files_to_a_file(classpath: str, kafka: Kafka, gateway: GatewayServer, tmp_path: Path) -> None:
    """Sources copy files into a topic, and a sink copies the topic into a file. The worker of the sink is killed."""
    files = {name: tmp_path / f"{name}.txt" for name in CONNECTORS}
    out = tmp_path / "out.txt"

    def copied() -> set[str]:
        return set(out.read_text().splitlines()) if out.exists() else set()

    with (
        Cluster(gateway.bootstrap_servers) as cluster,
        worker(classpath, gateway, tmp_path / "first") as first,
        worker(classpath, gateway, tmp_path / "second") as second,
    ):
        until(lambda: members(cluster) == 2)
        for name, path in files.items():
            path.write_text(f"{name} before\n")
            configured(first, name, path)
        configured(first, SINK, out, kind="Sink")
        until(lambda: SINK in running_tasks(first) and copied() == {f"{name} before" for name in CONNECTORS})
        names = {group.group_id for group in cluster.list_groups()}
        assert {GROUP, f"connect-{SINK}"} <= names
        with Cluster(kafka.bootstrap_servers) as direct:
            assert [group for group in direct.list_groups() if group.group_id in names] == []
            assert TOPIC in direct.topics()

        killed, left = (first, second) if running_tasks(first)[SINK] == first.name else (second, first)
        killed.process.kill()
        killed.process.wait()
        for name, path in files.items():
            with path.open("a") as file:
                file.write(f"{name} after\n")
        until(lambda: running_tasks(left) == dict.fromkeys((*CONNECTORS, SINK), left.name))
        until(lambda: copied() == {f"{name} {when}" for name in CONNECTORS for when in ("before", "after")})
        assert members(cluster) == 1


def test_streams_one_instance_killed(classpath: str, gateway: GatewayServer, tmp_path: Path) -> None:
    """Two instances count words; one is killed. No word is lost; words since the last commit may count twice."""
    with Cluster(gateway.bootstrap_servers) as cluster:
        for topic in (WORDS, COUNTS):
            cluster.create_topic(topic, 2, 1)

        def instance(name: str) -> tuple[str, ...]:
            return ("StreamsCount", gateway.bootstrap_servers, str(tmp_path / name), "at_least_once")

        with running(classpath, tmp_path / "first.log", *instance("first")) as first:
            say(cluster)
            until(lambda: len(committed(cluster, COUNTS)) == 2 * WORDS_A_ROUND)
            with running(classpath, tmp_path / "second.log", *instance("second")):
                until(lambda: len(cluster.describe_groups(["counting"])["counting"].members) == 2)
                for number in range(1, ROUNDS):
                    say(cluster)
                    if number == ROUNDS // 2:
                        first.kill()
                until(lambda: min(_last_counts(cluster).values()) >= 2 * ROUNDS)
        assert len(_last_counts(cluster)) == WORDS_A_ROUND


def _last_counts(cluster: Cluster) -> dict[str, int]:
    return {word: int(count) for word, count in committed(cluster, COUNTS)}
