"""Groups of real consumers. The matrix (docs/clients.md) has killed, static and cooperative members of every client."""

from __future__ import annotations

import pytest
from group import CLIENTS, Group, until
from produce import create_topic, produce

from kohort.client.cluster import Cluster

PARTITIONS = 6
pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]


def numbered(first: int, count: int) -> list[str]:
    return [f"v{number}" for number in range(first, first + count)]


def committed(bootstrap: str, group: str) -> int:
    with Cluster(bootstrap) as cluster:
        return sum(entry.offset for entry in cluster.committed(group).values())


@pytest.mark.parametrize("client", CLIENTS)
def test_one_consumer_reads_what_was_produced(client: str, bootstrap: str, unique: str) -> None:
    produce(client, bootstrap, unique, numbered(0, 100), 1)  # the topic is created by the producer's metadata request
    with Group(client, bootstrap, unique, unique) as group:
        only = group.start("only")
        group.wait(lambda: len(only.records) >= 100, "100 records")
        group.close()
    assert sorted(group.values()) == sorted(numbered(0, 100))
    assert [offset for _, offset, _ in only.records] == list(range(100))


@pytest.mark.parametrize("client", CLIENTS)
def test_three_members_share_six_partitions_and_restart_where_they_committed(
    client: str, bootstrap: str, unique: str
) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    with Group(client, bootstrap, unique, unique) as group:
        group.share([2, 2, 2], "a", "b", "c")
        produce(client, bootstrap, unique, numbered(0, 600), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 600, "600 values")
        # A commit amid the rebalances of closing would be refused.
        until(lambda: committed(bootstrap, unique) == 600, "600 committed")
        group.close()
    assert not group.errors()
    produce(client, bootstrap, unique, numbered(600, 60), PARTITIONS)
    with Group(client, bootstrap, unique, unique) as again:
        again.start("a2")
        again.wait(lambda: len(again.values()) >= 60, "the new values")
        again.close()
    assert sorted(again.values()) == sorted(numbered(600, 60)), "restart from the committed offset: only what is new"


def test_different_clients_share_one_group(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    produce("confluent", bootstrap, unique, numbered(0, 120), PARTITIONS)
    with Group("confluent", bootstrap, unique, unique) as group:
        a = group.start("a")
        b = group.start("b", client="kafka-python")
        group.wait_assigned([3, 3], a, b)
        produce("aiokafka", bootstrap, unique, numbered(120, 60), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 180, "every value, through either client")
