"""What KohortServer does as a client of itself: topics, records, lag, waiting for groups, brokers that fail over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort.client import BlockingGroupConsumer
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import ServerError
from kohort.testing import KohortServer, ManualClock


@pytest.fixture
def server(kohort_server: KohortServer) -> KohortServer:
    return kohort_server


@pytest.fixture
def cluster(server: KohortServer) -> Iterator[Cluster]:
    with Cluster(server.bootstrap_servers) as cluster:
        yield cluster


def test_topics(server: KohortServer, cluster: Cluster) -> None:
    server.create_topic("orders", 3, configs={"cleanup.policy": "compact"})
    server.create_topic("plain")
    found = cluster.topics()
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"orders": 3, "plain": 1}
    assert {e.name: e.value for e in cluster.describe_configs(["orders"])["orders"]}["cleanup.policy"] == "compact"
    with pytest.raises(ServerError, match="TOPIC_ALREADY_EXISTS"):
        server.create_topic("orders")


def test_records_go_to_a_partition_to_that_of_their_key_or_to_all_in_turn(server: KohortServer) -> None:
    server.create_topic("orders", 3)
    assert server.produce("orders", "a", b"b", None, "d") == [(0, 0), (1, 0), (2, 0), (0, 1)]
    assert server.produce("orders", "e", partition=1) == [(1, 1)]
    first, second = server.produce("orders", "f", "g", key="k1")
    assert first[0] == second[0]
    assert second[1] == first[1] + 1
    assert server.produce("orders") == []
    with pytest.raises(ValueError, match="no partition 3; it has 3"):
        server.produce("orders", "h", partition=3)


def test_records_create_their_topic_where_the_server_does() -> None:
    with KohortServer(num_partitions=2) as server:
        assert server.produce("new", "a", "b", "c") == [(0, 0), (1, 0), (0, 1)]
    with KohortServer(auto_create_topics_enable=False) as server, pytest.raises(ValueError, match="topic new: UNKNOWN"):
        server.produce("new", "a")


def test_records_have_the_time_of_the_servers_clock() -> None:
    clock = ManualClock()
    with KohortServer(clock=clock) as server, Cluster(server.bootstrap_servers) as cluster:
        clock.advance(3_600_000)
        server.produce("t", "a")
        assert cluster.offsets([("t", 0)], clock.now())[("t", 0)] == 0
        assert server.now_ms() == clock.now()


def test_lag(server: KohortServer, cluster: Cluster) -> None:
    server.create_topic("orders", 2)
    server.produce("orders", *"abcd")
    with pytest.raises(ValueError, match="group billing has no committed offsets and no subscribed topics"):
        server.lag("billing")
    assert server.lag("billing", "orders") == 4
    with pytest.raises(ValueError, match="topic absent: UNKNOWN_TOPIC_OR_PARTITION"):
        server.lag("billing", "absent")
    cluster.commit("billing", {("orders", 0): Committed(1)})
    assert server.lag("billing") == 1, "the group has to do with this partition only"
    assert server.lag("billing", "orders") == 3
    cluster.commit("billing", {("orders", 0): Committed(2), ("orders", 1): Committed(2)})
    assert server.lag("billing") == server.lag("billing", "orders") == 0


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_waiting_for_a_group(server: KohortServer, group_protocol: str) -> None:
    server.create_topic("orders", 2)
    server.produce("orders", *"abcd")
    settings: Any = {"group_protocol": group_protocol, "heartbeat_interval_ms": 100}

    @contextmanager
    def member() -> Iterator[None]:
        with BlockingGroupConsumer(server.bootstrap_servers, "billing", **settings) as consumer:
            consumer.subscribe(["orders"])
            yield

    with member():
        group = server.wait_stable("billing", members=1)
        assert [m.assigned for m in group.members] == [{"orders": (0, 1)}]
        assert server.lag("billing") == 4, "nothing is committed in the subscribed topic"
        with member():
            group = server.wait_stable("billing", members=2)
            assert sorted(m.assigned["orders"] for m in group.members) == [(0,), (1,)]
            with pytest.raises(TimeoutError, match=r"group billing is Stable with 2 of 3 members after 0\.05 s"):
                server.wait_stable("billing", members=3, timeout_s=0.05)
        server.wait_stable("billing", members=1)


def test_what_a_group_waits_for_is_named(server: KohortServer) -> None:
    polled: list[float] = []
    with pytest.raises(TimeoutError, match="group absent does not exist"):
        server.wait_stable("absent", timeout_s=0.05, poll=lambda: polled.append(time.monotonic()))
    assert len(polled) > 1


def leaders(server: KohortServer, topic: str) -> set[int]:
    with Cluster(server.bootstrap_servers) as cluster:
        return {partition.leader for partition in cluster.topics([topic])[topic].partitions}


def test_others_take_over_from_a_broker() -> None:
    with KohortServer(brokers=3, num_partitions=6) as server:
        server.create_topic("orders")
        places = server.produce("orders", *"abcdef")
        groups = [f"g{number}" for number in range(20)]
        with Cluster(server.bootstrap_servers) as cluster:
            for group in groups:
                cluster.commit(group, {("orders", 0): Committed(1)})
        server.stop_broker(1, failover=True)
        with Cluster(server.bootstrap_servers.split(",")[1]) as cluster:
            assert sorted(cluster.nodes()) == [2, 3]
            assert cluster.controller_id() == 2
            # Each call fails at its deadline if a leader or coordinator is the broker that is gone.
            assert sum(cluster.offsets([("orders", index) for index, _ in places]).values()) == 6
            assert {cluster.describe_groups([group])[group].coordinator for group in groups} <= {2, 3}
            assert all(cluster.committed(group) == {("orders", 0): Committed(1)} for group in groups)
        assert leaders(server, "orders") == {2, 3}
        server.create_topic("later")
        assert leaders(server, "later") == {2, 3}
        with pytest.raises(ValueError, match="there is no broker 9"):
            server.stop_broker(9, failover=True)
        server.stop_broker(3, failover=True)
        with pytest.raises(ValueError, match="no other broker can take over from broker 2"):
            server.stop_broker(2, failover=True)
        assert leaders(server, "later") == {2}
        server.start_broker(1)
        server.start_broker(3)
        with Cluster(server.bootstrap_servers) as cluster:
            assert sorted(cluster.nodes()) == [1, 2, 3]
        assert leaders(server, "orders") == {2}, "leadership stays"
        server.create_topic("last")
        assert leaders(server, "last") == {1, 2, 3}


def test_without_a_failover_the_broker_stays_the_leader() -> None:
    with KohortServer(brokers=2) as server:
        server.create_topic("orders", 2)
        server.stop_broker(2)
        assert leaders(server, "orders") == {1, 2}


def test_a_value_of_another_type_is_named(server: KohortServer) -> None:
    with pytest.raises(TypeError, match="keys and values of bytes or str, or None; 5 is int"):
        server.produce("orders", 5)  # type: ignore[arg-type]
