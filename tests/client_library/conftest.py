"""Running servers for the tests of the client library: those of a module, and one of a test's own.

The library promises the same everywhere, so tests that take `servers` (of tests/conftest.py), or `own_server` to stop
and start it, run against kohort and against Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from bench import _kafka
from kafka_peer import EVERYWHERE, LIKE_KOHORT
from opened_connections import Blocking, Connect, OnLoop, Opened

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


@pytest.fixture(params=EVERYWHERE)
def own_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of this test's own, running; it has `bootstrap_servers`, `start`, `stop`, `kill`, `restart`."""
    if request.param == "kafka":
        node = _kafka.Node(request.getfixturevalue("class_path"), LIKE_KOHORT, java_options=_kafka.BRIEF)
        node.start()
        yield node
        node.remove()
    else:
        with KohortServer(group_min_session_timeout_ms=100) as running:
            yield running


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(
        brokers=2,
        group_min_session_timeout_ms=100,
        group_consumer_min_session_timeout_ms=100,
        group_consumer_session_timeout_ms=10_000,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[KohortServer]:
    with KohortServer(brokers=3, num_partitions=6) as running:
        yield running


@pytest.fixture
def cluster(three_brokers: KohortServer) -> Iterator[Cluster]:
    with Cluster(three_brokers.bootstrap_servers, api_timeout_ms=15_000) as client:
        yield client


@pytest.fixture(params=["blocking", "asyncio", "uvloop"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Opens connections to a broker; they are closed after the test."""
    with ExitStack() as stack:

        def open_one(address: Any, **options: Any) -> Opened:
            opened: Opened
            if request.param == "blocking":
                opened = Blocking(address, **options)
            elif request.param == "asyncio":
                opened = OnLoop(address, **options)
            else:
                opened = OnLoop(address, uvloop.new_event_loop, **options)
            stack.callback(opened.close)
            return opened

        yield open_one
