"""Java's clients against a server. Runs under `make test-java` (Maven, Java 17)."""

from __future__ import annotations

import subprocess

import pytest
from run_java import java

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


def test_topics_settings_and_offsets(classpath: str, server: KohortServer) -> None:
    """What else Java's clients do is in the cells of docs/clients.md."""
    out = java(classpath, "ClientCheck", server.bootstrap_servers, timeout=300)
    assert len([line for line in out.splitlines() if line.startswith("ok ")]) == 5, out


def test_groups_of_the_consumer_protocol(classpath: str, server: KohortServer) -> None:
    out = java(classpath, "ConsumerGroups", server.bootstrap_servers, timeout=180)
    assert out.count("ok ") == 5, out


def test_held_heartbeats(classpath: str) -> None:
    """A rebalance is pushed, nothing waits behind a held answer, and the clients find nothing to warn of."""
    with KohortServer(group_heartbeat_hold_max_ms=20_000) as holding:
        done = subprocess.run(
            ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]
            + ["HeldHeartbeats", holding.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 3, done.stdout
    assert "WARN" not in done.stderr, done.stderr
    assert "ERROR" not in done.stderr, done.stderr


def test_commits_fenced_by_ownership(classpath: str) -> None:
    settings = {"group_consumer_ownership_fencing_enable": True, "group_consumer_assignment_interval_ms": 0}
    with KohortServer(**settings) as fencing:
        out = java(classpath, "FencedCommits", fencing.bootstrap_servers, timeout=120)
    assert out.count("ok ") == 2, out


@pytest.mark.conformance("Q3")
def test_throttling_is_visible_in_the_clients_metrics(classpath: str, server: KohortServer) -> None:
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("throttled", 1)
        for _ in range(4):
            cluster.produce("throttled", 0, [NewRecord(None, b"x" * 6_000, 0)])
        cluster.alter_client_quotas({"client-id": "greedy"}, {"producer_byte_rate": 1_000, "consumer_byte_rate": 1_000})
    out = java(classpath, "Throttled", server.bootstrap_servers, "greedy", "throttled")
    throttled_ms = {name: float(value) for name, value in map(str.split, out.splitlines())}
    assert 100 < throttled_ms["fetch"] < 10_000
    assert 20_000 < throttled_ms["max"] < 45_000, "40 kB are 40 s of the quota, and ten may come at once"
    assert throttled_ms["avg"] > 1_000, "over the answers to all of its requests"
