"""A zombie reads nothing more: fetches as a member of a consumer group, from a running server of two brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from consumer_member import ConsumerMember

from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(
        brokers=2,
        group_coordinator_rebalance_protocols="classic,consumer",
        group_heartbeat_hold_enable=False,
        group_consumer_session_timeout_ms=1_000,
        group_consumer_min_session_timeout_ms=1_000,
        group_consumer_heartbeat_interval_ms=500,
        group_consumer_min_heartbeat_interval_ms=500,
        group_consumer_assignment_interval_ms=0,
    ) as running:
        yield running


@pytest.fixture
def cluster(server: KohortServer) -> Iterator[Cluster]:
    with Cluster(server.bootstrap_servers, api_timeout_ms=15_000) as client:
        yield client


class Member(ConsumerMember):
    """A member that heartbeats only when the test says so, and fetches."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        super().__init__(cluster.nodes()[1].address, topic, name, topic)
        self.cluster = cluster

    @property
    def identity(self) -> GroupMember:
        return GroupMember(self.group_id, self.member_id, self.epoch)

    def beat_until(self, *partitions: int) -> None:
        deadline = time.monotonic() + 20
        while [*self.owned.values()] != [partitions]:
            assert time.monotonic() < deadline, self.owned
            self.heartbeat()

    def reads(self, partition: int) -> list[bytes | None]:
        fetched = fetch(self.cluster, self.identity, partition)
        assert fetched.error == 0
        return [record.value for record in records(fetched, 0)]


def fetch(cluster: Cluster, as_member: GroupMember, partition: int, max_wait_ms: int = 0) -> FetchedPartition:
    [fetched] = cluster.fetch({(as_member.group_id, partition): 0}, max_wait_ms=max_wait_ms, as_member=as_member)
    assert fetched.fenced
    return fetched


def produced(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, 2)
    for partition in (0, 1):
        cluster.produce(topic, partition, [NewRecord(None, f"{partition}".encode(), 0)])


def test_a_partition_that_was_moved_is_read_by_its_new_owner_alone(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    a = Member(cluster, unique, "a")
    a.beat_until(0, 1)
    assert [a.reads(0), a.reads(1)] == [[b"0"], [b"1"]]
    zombie = a.identity
    b = Member(cluster, unique, "b")
    a.beat_until(0)
    assert a.reads(1) == [b"1"], "it may read on until it has acknowledged"
    a.heartbeat()
    b.beat_until(1)
    assert [a.reads(0), b.reads(1)] == [[b"0"], [b"1"]]
    refused = fetch(cluster, zombie, 1)
    assert (refused.error, refused.records) == (ErrorCode.FENCED_MEMBER_EPOCH, b"")
    [still] = records(fetch(cluster, zombie, 0), 0)
    assert still.value == b"0"


def test_a_member_whose_session_has_ended_reads_nothing_more(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    a = Member(cluster, unique, "a")
    a.beat_until(0, 1)
    assert a.reads(1) == [b"1"]
    b = Member(cluster, unique, "b")  # `a` is silent from here on
    b.beat_until(0, 1)
    assert b.reads(1) == [b"1"]
    for partition in (0, 1):
        refused = fetch(cluster, a.identity, partition, max_wait_ms=5_000)
        assert (refused.error, refused.records) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")


def test_a_fetch_without_a_member_is_not_fenced(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    [fetched] = cluster.fetch({(unique, 0): 0}, max_wait_ms=0)
    assert (fetched.error, fetched.fenced) == (0, False)
    assert [record.value for record in records(fetched, 0)] == [b"0"]
