"""A server of two brokers, and a console of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_pages import Pages

from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(
        brokers=2, group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0
    ) as running:
        yield running


@pytest.fixture(scope="module")
def pages(server: KohortServer) -> Iterator[Pages]:
    with Pages(server.bootstrap_servers) as made:
        yield made
