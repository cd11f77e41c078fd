"""A zombie reads nothing more: fetches as a member of a consumer group, from a running server of two brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.client.records.partition_leaders import FetchedPartition, GroupMember
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)


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


class Member:
    """A member that heartbeats only when the test says so."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        self.cluster, self.group, self.name, self.topic = cluster, topic, name, topic
        self.epoch = 0
        self.partitions: tuple[int, ...] = ()
        self.owned: tuple[HeartbeatTopicPartitions, ...] = ()

    def beat(self, **fields: Any) -> None:
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": (self.topic,)}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=self.epoch, topic_partitions=self.owned, **fields
        )
        coordinator = self.cluster.describe_groups([self.group])[self.group].coordinator
        answer = self.cluster.connection(coordinator).request(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self.owned = tuple(
                HeartbeatTopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in topics
            )
            self.partitions = tuple(index for one in topics for index in one.partitions)

    def beat_until(self, *partitions: int) -> None:
        deadline = time.monotonic() + 20
        while self.partitions != partitions:
            assert time.monotonic() < deadline, self.partitions
            self.beat()

    def fetch(self, partition: int, offset: int = 0, max_wait_ms: int = 0) -> FetchedPartition:
        as_member = GroupMember(self.group, self.name, self.epoch)
        [fetched] = self.cluster.fetch({(self.topic, partition): offset}, max_wait_ms=max_wait_ms, as_member=as_member)
        assert fetched.fenced
        return fetched

    def reads(self, partition: int) -> list[bytes | None]:
        fetched = self.fetch(partition)
        assert fetched.error == 0
        return [record.value for record in records(fetched, 0)]


def produced(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, 2)
    for partition in (0, 1):
        cluster.produce(topic, partition, [NewRecord(None, f"{partition}".encode(), 0)])


def test_a_partition_that_was_moved_is_read_by_its_new_owner_alone(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    a, b = Member(cluster, unique, "a"), Member(cluster, unique, "b")
    a.beat_until(0, 1)
    assert [a.reads(0), a.reads(1)] == [[b"0"], [b"1"]]
    zombie = Member(cluster, unique, "a")
    zombie.epoch = a.epoch
    b.beat()
    a.beat_until(0)
    assert a.reads(1) == [b"1"], "it may read on until it has acknowledged"
    a.beat()
    b.beat_until(1)
    assert [a.reads(0), b.reads(1)] == [[b"0"], [b"1"]]
    refused = zombie.fetch(1)
    assert (refused.error, refused.records) == (ErrorCode.FENCED_MEMBER_EPOCH, b"")
    assert zombie.reads(0) == [b"0"]


def test_a_member_whose_session_has_ended_reads_nothing_more(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    a, b = Member(cluster, unique, "a"), Member(cluster, unique, "b")
    a.beat_until(0, 1)
    assert a.reads(1) == [b"1"]
    b.beat_until(0, 1)  # `a` is silent from here on
    assert b.reads(1) == [b"1"]
    for partition in (0, 1):
        refused = a.fetch(partition, max_wait_ms=5_000)
        assert (refused.error, refused.records) == (ErrorCode.UNKNOWN_MEMBER_ID, b"")


def test_who_names_no_member_is_not_fenced(cluster: Cluster, unique: str) -> None:
    produced(cluster, unique)
    [fetched] = cluster.fetch({(unique, 0): 0}, max_wait_ms=0)
    assert (fetched.error, fetched.fenced) == (0, False)
    assert [record.value for record in records(fetched, 0)] == [b"0"]
