"""Members of our own and librdkafka's share a group by the standard assignors, with each of them leading in turn."""

from __future__ import annotations

import pytest
from assigned_reader import lead_in_turn
from shared_readers import Librdkafka

from kohort.testing import KohortServer


@pytest.fixture
def server(kohort_server: KohortServer) -> KohortServer:
    return kohort_server


@pytest.mark.client
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", ["ours", "librdkafka"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shared_with_librdkafka(servers: str, assignor: str, first: str) -> None:
    settings = {"partition.assignment.strategy": assignor}
    lead_in_turn(servers, assignor, first, lambda group, topic: Librdkafka(servers, group, topic, **settings))
