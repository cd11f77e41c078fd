"""A server for the clients' tests: one a module, with short sessions so that a killed member is missed quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(group_min_session_timeout_ms=1_000, group_initial_rebalance_delay_ms=200) as running:
        yield running


@pytest.fixture
def bootstrap(server: KohortServer) -> str:
    return server.bootstrap_servers
