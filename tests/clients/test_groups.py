"""Groups of real consumers. The matrix (docs/clients.md) repeats some of these tests with other clients."""

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


@pytest.mark.parametrize("client", CLIENTS)
def test_a_killed_member_is_removed_and_a_new_one_gets_its_share(client: str, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    produce(client, bootstrap, unique, numbered(0, 300), PARTITIONS)
    with Group(client, bootstrap, unique, unique) as group:
        a, b, c = group.share([2, 2, 2], "a", "b", "c")
        group.wait(lambda: len(set(group.values())) == 300, "300 values")
        b.kill()
        group.wait_assigned([3, 3], a, c)
        d = group.start("d")
        group.wait_assigned([2, 2, 2], a, c, d)
        produce(client, bootstrap, unique, numbered(300, 60), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 360, "every value, old and new")
        group.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_comes_back_to_its_partitions(client: str, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    with Group(client, bootstrap, unique, unique) as group:
        a, b = (group.start(name, instance=f"instance-{name}") for name in ("a", "b"))
        group.wait_assigned([3, 3], a, b)
        before, of_a = list(b.assigned), list(a.assigned)
        b.kill()
        b2 = group.start("b2", instance="instance-b")
        group.wait(lambda: b2.assigned == before, "the same partitions again")
        assert a.assigned == of_a, "no other member is disturbed"
        produce(client, bootstrap, unique, numbered(0, 60), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 60, "60 values")


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_cooperative_sticky_moves_only_what_it_must(client: str, bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    produce(client, bootstrap, unique, numbered(0, 120), PARTITIONS)
    with Group(client, bootstrap, unique, unique, cooperative=True) as group:
        [a] = group.share([6], "a")
        b = group.start("b")
        group.wait_assigned([3, 3], a, b)
        kept = set(a.assigned)
        c = group.start("c")
        group.wait_assigned([2, 2, 2], a, b, c)
        assert set(a.assigned) <= kept, "a cooperative member keeps what it had"
        group.wait(lambda: len(set(group.values())) == 120, "120 values")
        group.close()


def test_different_clients_share_one_group(bootstrap: str, unique: str) -> None:
    create_topic(bootstrap, unique, PARTITIONS)
    produce("confluent", bootstrap, unique, numbered(0, 120), PARTITIONS)
    with Group("confluent", bootstrap, unique, unique) as group:
        a = group.start("a")
        b = group.start("b", client="kafka-python")
        group.wait_assigned([3, 3], a, b)
        produce("aiokafka", bootstrap, unique, numbered(120, 60), PARTITIONS)
        group.wait(lambda: len(set(group.values())) == 180, "every value, through either client")
