"""Kafka's Java libraries, and a server to run them against."""

from __future__ import annotations

from collections.abc import Iterator

import java_libraries
import pytest

from kohort.testing import KohortServer


@pytest.fixture(scope="session")
def classpath() -> str:
    return java_libraries.clients()


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(group_initial_rebalance_delay_ms=500) as running:
        yield running
