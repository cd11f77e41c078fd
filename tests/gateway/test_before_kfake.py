"""A gateway before franz-go's kfake: groups are kohort's, records are in kfake (needs Go)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import test_groups
from bench import _peers
from gateway_server import GatewayServer
from group import CLIENTS

from kohort.client.cluster import Cluster

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kfake() -> Iterator[str]:
    with _peers.started("kfake", {}) as server:
        yield server.bootstrap


@pytest.mark.parametrize("client", CLIENTS)
def test_members_share_partitions_and_restart_where_they_committed(client: str, kfake: str, unique: str) -> None:
    with GatewayServer(kfake, group_min_session_timeout_ms=1_000) as gateway:
        bootstrap = gateway.wait_for_upstream().bootstrap_servers
        test_groups.test_three_members_share_six_partitions_and_restart_where_they_committed(client, bootstrap, unique)
    with Cluster(kfake) as direct:
        assert unique not in {group.group_id for group in direct.list_groups()}, "groups are the gateway's"
        assert sum(direct.offsets([(unique, index) for index in range(6)]).values()) == 660, "records are not"
