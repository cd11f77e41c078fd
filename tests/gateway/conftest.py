"""A gateway before a server of three brokers, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_server import GatewayServer

from kohort.testing import KohortServer

SHORT_SESSIONS = {"group_min_session_timeout_ms": 1_000, "group_initial_rebalance_delay_ms": 200}


@pytest.fixture(scope="module")
def upstream() -> Iterator[KohortServer]:
    with KohortServer(brokers=3, broker_rack="a,b,c") as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: KohortServer) -> Iterator[GatewayServer]:
    with GatewayServer(upstream.bootstrap_servers, http_listener="127.0.0.1:0", **SHORT_SESSIONS) as server:
        yield server.wait_for_upstream()


@pytest.fixture
def bootstrap(gateway: GatewayServer) -> str:
    return gateway.bootstrap_servers
