"""Running servers for the tests of the client library: kohort, one a module, and Apache Kafka, one in all.

A test that takes `servers`, or `own_server` to stop and start, runs against both: the library promises the same
everywhere. Kafka's turn has the marker `peers`. A test that takes `servers_of_kohort` or `server` is about what kohort
alone promises or lets a test do, one with `servers_of_kafka` about what is different there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bench import _kafka

from kohort.client.cluster import Cluster

_counter = iter(range(1_000_000))

EVERYWHERE = ("kohort", pytest.param("kafka", marks=(pytest.mark.peers, pytest.mark.timeout(300))))

LIKE_KOHORT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Kafka's settings: what the tests' kohort has by default or is given."""


@pytest.fixture(scope="session")
def servers_of_kafka(class_path: str) -> Iterator[str]:
    """Apache Kafka, from Maven's jars."""
    with _kafka.kafka(class_path, LIKE_KOHORT) as (_, (host, port)):
        yield f"{host}:{port}"


@pytest.fixture
def servers_of_kohort(request: pytest.FixtureRequest) -> str:
    """The module's `server`."""
    servers: str = request.getfixturevalue("server").bootstrap_servers
    return servers


@pytest.fixture(params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> str:
    """Of kohort, and of Apache Kafka."""
    found: str = request.getfixturevalue(f"servers_of_{request.param}")
    return found


@pytest.fixture(params=EVERYWHERE)
def own_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this test's own, running; it has `bootstrap_servers`, `start`, `stop`, `kill`, `restart`."""
    if request.param == "kafka":
        node = _kafka.Node(request.getfixturevalue("class_path"), LIKE_KOHORT)
        node.start()
        yield node
        node.remove()
    else:
        from kohort.testing import KohortServer

        with KohortServer(group_min_session_timeout_ms=100) as running:
            yield running


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[object]:
    from kohort.testing import KohortServer

    with KohortServer(brokers=3, group_initial_rebalance_delay_ms=0, num_partitions=6) as running:
        yield running


@pytest.fixture
def cluster(three_brokers: object) -> Iterator[Cluster]:
    servers: str = three_brokers.bootstrap_servers  # type: ignore[attr-defined]
    with Cluster(servers, api_timeout_ms=15_000) as client:
        yield client


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return f"lib{next(_counter)}"
