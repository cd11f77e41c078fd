"""One Spark session for all tests of the source: starting one takes longer than most of them.

It has Spark's own Kafka connector when tests that need it (marker java) are among those that run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka_connector
import pytest

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    from kohort.spark.runtime.session import spark_session

    settings = {"spark.sql.shuffle.partitions": "2"}
    if any(item.get_closest_marker("java") for item in request.session.items):
        settings["spark.jars"] = ",".join(map(str, kafka_connector.jars()))
    session = spark_session("kohort tests", config=settings)
    yield session
    session.stop()


@pytest.fixture
def kept_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session of all tests. A command finds it running, and cannot stop it."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    return spark


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[KohortServer]:
    # Each partition of __consumer_offsets is a task of Spark's.
    with KohortServer(offsets_topic_num_partitions=2, **getattr(request.module, "SERVER", {})) as running:
        yield running


@pytest.fixture
def cluster(server: KohortServer) -> Iterator[Cluster]:
    with Cluster(server.bootstrap_servers) as client:
        yield client
