"""Real clients through a gateway. `make peers-gateway` runs the tests of tests/clients before Apache Kafka."""

from __future__ import annotations

import pytest
import test_explain
import test_groups
from group import CLIENTS

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]


@pytest.mark.parametrize("client", CLIENTS)
def test_members_share_partitions_and_restart_where_they_committed(
    client: str, bootstrap: str, upstream: KohortServer, unique: str
) -> None:
    test_groups.test_three_members_share_six_partitions_and_restart_where_they_committed(client, bootstrap, unique)
    with Cluster(upstream.bootstrap_servers) as cluster, Cluster(bootstrap) as through:
        assert unique not in {group.group_id for group in cluster.list_groups()}, "groups are the gateway's"
        assert sum(cluster.offsets([(unique, index) for index in range(6)]).values()) == 660, "records are not"
        assert [group.group_id for group in through.list_groups()].count(unique) == 1
        assert len({node.port for node in through.nodes().values()} & {n.port for n in cluster.nodes().values()}) == 0


def test_the_journal_is_the_gateways(bootstrap: str, unique: str) -> None:
    test_explain.test_a_killed_consumer_is_named("confluent", bootstrap, unique)
