"""A server with share groups, and a world of the test's own on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from share_peers import SETTINGS, World, make_ready

from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(group_share_enable=True, offsets_topic_num_partitions=4, **SETTINGS) as running:
        yield running


@pytest.fixture
def world(servers: str, unique: str, request: pytest.FixtureRequest) -> Iterator[World]:
    make_ready(servers)
    found = World(servers, unique, kafka=request.node.callspec.params["servers"] == "kafka")
    yield found
    found.close()
