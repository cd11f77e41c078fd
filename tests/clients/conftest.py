"""A server for the clients' tests: one a module, with the module's SERVER settings. By default sessions are short, so
that the server removes a killed member quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.testing import KohortServer

SHORT_SESSIONS = {"group_min_session_timeout_ms": 1_000, "group_initial_rebalance_delay_ms": 200}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[KohortServer]:
    with KohortServer(**getattr(request.module, "SERVER", SHORT_SESSIONS)) as running:
        yield running


@pytest.fixture
def bootstrap(server: KohortServer) -> str:
    return server.bootstrap_servers
