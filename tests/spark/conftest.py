"""One Spark session for all tests of the source: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kohort.spark.session import spark_session

    session = spark_session("kohort tests", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer() as running:
        yield running


@pytest.fixture
def cluster(server: KohortServer) -> Iterator[Cluster]:
    with Cluster(server.bootstrap_servers) as client:
        yield client
