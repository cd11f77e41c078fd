"""A server for the clients' tests: one a module, with the module's SERVER settings. By default sessions are short, so
that the server removes a killed member quickly."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from gateway_server import UPSTREAM, before_upstream
from group import until

from kohort.testing import KohortServer

NOT_QUICK = {
    "group_consumer_heartbeat_interval_ms": 5_000,
    "group_consumer_min_heartbeat_interval_ms": 5_000,
    "group_consumer_assignment_interval_ms": 1_000,
    "group_consumer_min_assignment_interval_ms": 0,
}
"""A server's intervals instead of the quick ones of `KohortServer`. A partition that moves again within half a second
makes librdkafka 2.16 read it twice: its query of the first offset outlives the pause, and sets the position back."""
SHORT_SESSIONS = {"group_min_session_timeout_ms": 1_000, "group_initial_rebalance_delay_ms": 200}


@pytest.fixture(scope="module", autouse=True)
def no_client_is_left() -> Iterator[None]:
    """One that is not closed looks for its server for the rest of the run."""
    yield
    until(lambda: not [t.name for t in threading.enumerate() if "kafka" in t.name], "kafka-python's threads end")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[KohortServer]:
    settings = NOT_QUICK | getattr(request.module, "SERVER", SHORT_SESSIONS)
    with before_upstream(settings) if UPSTREAM else KohortServer(**settings) as running:
        yield running


@pytest.fixture
def bootstrap(server: KohortServer) -> str:
    return server.bootstrap_servers
