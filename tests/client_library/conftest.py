"""A running server for the tests of the client library; one a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.client.cluster import Cluster

_counter = iter(range(1_000_000))


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
