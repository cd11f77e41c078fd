"""Fetches that name their member: partitions that the member does not own are refused (docs/wire-extensions.md).

In a `Group`, `a` has both partitions of `t` at epoch 1; `move` lets `b` join, to which partition 1 goes at epoch 2.
"""

from __future__ import annotations

from typing import Any

import pytest
from group_driver import consumer_beat, consumer_join, stable
from wire_driver import Wire, fetch_request, values_of

from kohort.broker.messages import changed
from kohort.broker.turn import MoveGroup, MovePartition, Shutdown
from kohort.wire.schemas.consumer_group_heartbeat import HeartbeatTopicPartitions
from kohort.wire.schemas.fetch import FetchingMember, FetchPartition, FetchRequest, FetchResponse, FetchTopic

UNKNOWN_MEMBER, NO_GROUP, FENCED, STALE = 25, 69, 110, 113
CONFIG = {
    "group_coordinator_rebalance_protocols": "classic,consumer",
    "group_heartbeat_hold_enable": False,
    "group_consumer_assignment_interval_ms": 0,
}
SESSION_MS = 45_000


def reads(member: str, epoch: int, partition: int = 1, group: str = "g", **options: Any) -> FetchRequest:
    member_of = FetchingMember(group_id=group, member_id=member, member_epoch=epoch)
    return fetch_request("t", partition=partition, as_member=member_of, **options)


def errors(response: FetchResponse) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


class Group:
    def __init__(self, **config: Any) -> None:
        self.wire = Wire(**CONFIG, **config)
        self.client = self.wire.connect()
        self.topic_id = self.client.create_topic("t", 2)
        for partition in (0, 1):
            self.wire.step(MovePartition("t", partition, 1), MoveGroup("g", 1))
            self.client.produce("t", f"value {partition}", partition=partition)
        assert self.beat(consumer_join(member="a")) == 1

    def beat(self, request: Any) -> int:
        answer = self.client.ask(request, 1)
        assert answer.error_code == 0, answer
        epoch: int = answer.member_epoch
        return epoch

    def owned(self, *partitions: int) -> Any:
        return (HeartbeatTopicPartitions(topic_id=self.topic_id, partitions=partitions),)

    def acknowledge(self) -> None:
        """`a` gives partition 1 up, and `b` takes it."""
        assert self.beat(consumer_beat("a", 1, self.owned(0))) == 2
        assert self.beat(consumer_beat("b", 2)) == 2

    def move(self) -> None:
        self.beat(consumer_join(member="b"))
        assert self.beat(consumer_beat("a", 1)) == 1
        self.acknowledge()

    def error(self, member: str, epoch: int, partition: int = 1, **options: Any) -> int:
        response = self.client.ask(reads(member, epoch, partition, **options), 12)
        assert response.fenced
        [error] = errors(response)
        assert bool(values_of(response)) == (error == 0)
        return error


@pytest.fixture
def group() -> Group:
    return Group()


def test_only_the_owner_reads_a_partition(group: Group) -> None:
    assert [group.error("a", 1, partition) for partition in (0, 1)] == [0, 0]
    assert group.error("b", 1) == UNKNOWN_MEMBER
    group.move()
    for _ in ("live", "restarted"):
        assert [group.error("a", 2, partition) for partition in (0, 1)] == [0, FENCED]
        assert [group.error("b", 2, partition) for partition in (0, 1)] == [FENCED, 0]
        group.wire = group.wire.restarted(**CONFIG)
        group.client = group.wire.connect()


def test_each_partition_of_a_request_is_checked_separately(group: Group) -> None:
    group.move()
    asked = tuple(FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in (0, 1))
    topics = (FetchTopic(topic_id=group.topic_id, partitions=asked),)
    request = changed(reads("a", 2, max_wait_ms=60_000, min_bytes=1_000), topics=topics)
    response = group.client.ask(request, 16)
    assert errors(response) == [0, FENCED]
    assert values_of(response) == [b"value 0"]


@pytest.mark.parametrize("version", range(12, 19))
def test_the_field_is_there_in_every_flexible_version(group: Group, version: int) -> None:
    for member, error in (("a", 0), ("x", UNKNOWN_MEMBER)):
        request = reads(member, 1)
        request = changed(request, topics=(changed(request.topics[0], topic_id=group.topic_id),))
        response = group.client.ask(request, version)
        assert (errors(response), response.fenced) == ([error], True)


def test_without_the_field_everybody_reads_everything(group: Group) -> None:
    for version in (11, 12):
        response = group.client.ask(fetch_request("t", partition=1), version)
        assert (values_of(response), response.fenced) == ([b"value 1"], False)
    response = group.client.ask(reads("x", 1), 11)
    assert (errors(response), response.fenced) == ([0], False), "version 11 has no tagged fields"


def test_a_member_reads_on_until_it_has_acknowledged(group: Group) -> None:
    """Also if it never said so: an old heartbeat of it, from before it had the partition, may come a second time."""
    group.beat(consumer_join(member="b"))
    assert group.beat(consumer_beat("a", 1)) == 1
    assert group.error("a", 1) == 0
    assert group.error("b", 1) == FENCED
    group.acknowledge()
    assert group.error("a", 1) == FENCED
    assert group.error("b", 2) == 0


def test_an_old_epoch_is_valid_for_partitions_owned_since_then(group: Group) -> None:
    group.move()
    assert group.error("a", 1, partition=0) == 0
    assert group.error("b", 1) == STALE, "it has the partition since epoch 2"
    assert group.error("b", 3) == STALE, "it was never told such an epoch"
    assert group.error("b", -1) == STALE


def test_a_partition_that_returns_starts_a_new_ownership(group: Group) -> None:
    group.move()
    group.beat(consumer_beat("b", -1))
    assert group.beat(consumer_beat("a", 2)) == 3
    assert group.error("a", 2) == STALE
    assert group.error("a", 3) == 0


def test_a_waiting_fetch_is_checked_when_it_is_answered(group: Group) -> None:
    zombie = group.wire.connect()
    zombie.send(reads("a", 1, offset=1, max_wait_ms=60_000), 12)
    group.move()
    assert zombie.responses == []
    group.client.produce("t", "for b", partition=1)
    response = zombie.take()
    assert (errors(response), values_of(response)) == ([FENCED], [])
    assert values_of(group.client.ask(reads("b", 2, offset=1), 12)) == [b"for b"]


def test_a_fetch_without_data_reports_the_lost_partitions(group: Group) -> None:
    zombie = group.wire.connect()
    zombie.send(reads("a", 1, offset=1, max_wait_ms=1_000), 12)
    group.move()
    group.wire.advance(1_000)
    assert errors(zombie.take()) == [FENCED]


def test_a_zombie_whose_session_has_ended_reads_nothing_more(group: Group) -> None:
    zombie = group.wire.connect()
    zombie.send(reads("a", 1, offset=1, max_wait_ms=SESSION_MS + 60_000), 12)
    group.wire.advance(SESSION_MS)
    assert group.beat(consumer_join(member="b")) == 3
    group.client.produce("t", "for b", partition=1)
    response = zombie.take()
    assert (errors(response), values_of(response)) == ([UNKNOWN_MEMBER], [])
    assert values_of(group.client.ask(reads("b", 3, offset=1), 12)) == [b"for b"]


def test_a_group_that_is_no_consumer_group_has_no_owners(group: Group) -> None:
    assert group.error("a", 1, group="none") == NO_GROUP
    assert group.error("a", 1, group="") == NO_GROUP
    assert group.error("a", 1, group="g" * 3_000_000) == NO_GROUP
    member = stable(group.wire.connect(), "classic")
    assert group.error(member.member_id, member.generation_id, group="classic") == NO_GROUP


def test_a_static_member_that_is_away_reads_nothing_and_its_successor_does(group: Group) -> None:
    group.beat(consumer_beat("a", -1))
    epoch = group.beat(consumer_join(member="s1", instance_id="s"))
    assert group.error("s1", epoch) == 0
    group.beat(changed(consumer_beat("s1", -2), instance_id="s"))
    assert group.error("s1", epoch) == FENCED
    epoch = group.beat(consumer_join(member="s2", instance_id="s"))
    assert [group.error("s1", epoch), group.error("s2", epoch)] == [UNKNOWN_MEMBER, 0]


def test_the_leader_of_a_partition_need_not_coordinate_the_group() -> None:
    group = Group(brokers=2)
    assert errors(group.wire.connect(2).ask(reads("x", 1), 12)) == [6], "the wrong broker names the leader first"
    group.move()
    connections = {broker: group.wire.connect(broker) for broker in (1, 2)}
    for coordinator in (1, 2):
        group.wire.step(MoveGroup("g", coordinator))
        for leader in (1, 2):
            group.wire.step(MovePartition("t", 1, leader))
            group.client = connections[leader]
            assert [group.error("a", 2), group.error("b", 2)] == [FENCED, 0]


def test_a_stop_answers_that_the_coordinator_is_gone(group: Group) -> None:
    group.client.send(reads("a", 1, offset=1, max_wait_ms=60_000), 12)
    group.wire.step(Shutdown())
    assert errors(group.client.take()) == [16]
