"""A PostgreSQL server for all tests of the outbox, a cluster and databases for each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_stores import DRIVERS, Store
from postgres_server import PostgresServer

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres_address(postgres_server: PostgresServer) -> str:
    return postgres_server.url()


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer() as running:
        yield running


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name of the test's own, for the outbox, its table and its topic."""
    return f"o{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    cluster.create_topic(name, 1)
    return name


@pytest.fixture(params=DRIVERS)
def store(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Store:
    address = str(tmp_path / "book") if request.param == "sqlite3" else request.getfixturevalue("postgres_address")
    made = Store(request.param, address, name)
    made.create()
    return made
