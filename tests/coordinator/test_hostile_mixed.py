"""Hostile members of both protocols in one group: whatever they subscribe to, report or assign, the shard's responses
can be encoded, its invariants hold, and the replay of its log is its state. See test_hostile_requests.py."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kohort.config import Config
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import Client, DeadlineReached, GroupRequested, Loaded, Record, RequestId, TopicsChanged
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import topics_of
from kohort.wire.codec import decode, encode
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeResponse
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kohort.wire.schemas.describe_groups import DescribeGroupsResponse
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NOW = 1_790_000_000_000
TOPICS = topics_of([TopicSpec(b"t" * 16, "t", 3), TopicSpec(b"u" * 16, "u", 1)])
NAMES = ("t", "t", "t", "t", "u", "gone", "", "x" * 32_767)
INDEXES = (0, 0, 1, 1, 2, 3, -1, 2**31 - 1, -(2**31))
INSTANCES = (*[None] * 6, "i", "i", "j", "")


class Hostile:
    """Makes random requests; most of them fit the present state of the group."""

    def __init__(self, shard: Shard, seed: int) -> None:
        self.shard = shard
        self.random = Random(seed)
        self.any = self.random.choice

    def some(self, make: Any, most: int) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.random.randrange(most + 1)))

    def often(self, usual: Any, *others: Any) -> Any:
        return usual if self.random.random() < 0.8 else self.any(others)

    # -- groups and members

    def members(self) -> list[str]:
        groups = (self.shard.consumers.groups.get("g"), self.shard.running.groups.get("g"))
        return [member_id for group in groups if group is not None for member_id in sorted(group.members)]

    def member(self) -> str:
        return self.any(self.members() or [""]) if self.random.random() < 0.9 else self.any(["", "y", "x" * 9_000])

    def number(self, member_id: str) -> int:
        off = self.often(0, -1, 1, 2**20)
        consumers, classic = self.shard.consumers.groups.get("g"), self.shard.running.groups.get("g")
        if consumers is not None:
            return consumers.state_of(member_id).member_epoch + off
        return classic.generation_id + off if classic is not None else off

    # -- fields

    def subscription(self) -> bytes:
        version = self.random.randrange(4)
        message = ConsumerProtocolSubscription(
            topics=self.some(lambda: self.any(NAMES), 3),
            user_data=self.any([None, b"", b"x"]),
            owned_partitions=self.some(lambda: TopicPartition(topic=self.any(NAMES), partitions=self.indexes()), 3),
            generation_id=self.any([-1, 0, 1, 2**31 - 1, -(2**31)]),
            rack_id=self.any([None, "", "r", "é" * 16_000]),
        )
        claimed = version + self.any([0] * 20 + [1, 9, -4])
        return self.often(claimed.to_bytes(2, "big", signed=True) + encode(message, version), b"", b"\0", bytes(9))

    def assignment(self) -> bytes:
        message = ConsumerProtocolAssignment(
            assigned_partitions=self.some(
                lambda: ConsumerProtocolAssignmentResponseTopicPartition(
                    topic=self.any(NAMES), partitions=self.indexes()
                ),
                3,
            ),
            user_data=self.any([*[None] * 9, b"", b"x"]),
        )
        version = self.random.randrange(4)
        return self.often(version.to_bytes(2, "big") + encode(message, version), b"", b"\0", b"\xff\xff", bytes(40))

    def indexes(self) -> tuple[int, ...]:
        return self.some(lambda: self.any(INDEXES), 4)

    # -- requests

    def request(self) -> tuple[Any, int]:
        return self.any([self.join, self.join, self.join, self.sync, self.sync, self.beat, self.leave, self.consume])()

    def join(self) -> tuple[Any, int]:
        instance = self.any(INSTANCES)
        names = self.often(("p", "q"), ("p",), ("q",), (), ("r",))
        body = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6000,
            rebalance_timeout_ms=self.often(4000, 0, -1, 2**31 - 1),
            member_id=self.any(["", self.member()]),
            group_instance_id=instance,
            protocol_type=self.often("consumer", "consumer", "consumer", "connect"),
            protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=self.subscription()) for name in names),
        )
        return body, 9 if instance is not None else self.any([3, 9])

    def sync(self) -> tuple[Any, int]:
        member_id = self.member()
        body = SyncGroupRequest(
            group_id="g",
            generation_id=self.number(member_id),
            member_id=member_id,
            group_instance_id=self.often(None, "i", "j"),
            protocol_type="consumer",
            protocol_name=self.often("p", "q"),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=known, assignment=self.assignment()) for known in self.members()
            ),
        )
        return body, 5

    def beat(self) -> tuple[Any, int]:
        member_id = self.member()
        body = HeartbeatRequest(
            group_id="g",
            generation_id=self.number(member_id),
            member_id=member_id,
            group_instance_id=self.often(None, "i", "j"),
        )
        return body, 4

    def leave(self) -> tuple[Any, int]:
        identity = MemberIdentity(member_id=self.member(), group_instance_id=self.often(None, "i", "j"))
        return LeaveGroupRequest(group_id="g", members=(identity,)), 5

    def consume(self) -> tuple[Any, int]:
        instance = self.any(INSTANCES)
        member_id = self.any(["y", "z", self.member()]) or "y"
        epoch = self.number(member_id) if member_id in self.members() else 0
        body = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.often(epoch, 0, -1, -1, -2, 7),
            instance_id=instance,
            rebalance_timeout_ms=4000,
            subscribed_topic_names=self.some(lambda: self.any(NAMES), 2),
            topic_partitions=(),
        )
        return body, 1


@pytest.mark.parametrize("seed", range(30))
def test_all_responses_can_be_encoded_and_the_log_replays(seed: int) -> None:
    shard = Shard(0, Config(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=500))
    hostile = Hostile(shard, seed)
    now = NOW
    log: list[Record] = []
    versions: dict[RequestId, int] = {}

    def take(event: Any) -> None:
        effects = shard.step(event, now)
        for record in effects.records:
            shard.apply(record, now)
            log.append(Record(record.key, record.value))
        shard.validate()
        for reply in effects.replies:
            encode(reply.body, versions[reply.request_id])

    take(TopicsChanged(TOPICS))
    take(Loaded())
    for number in range(150):
        body, version = hostile.request()
        arrived = decode(type(body), version, encode(body, version))
        versions[RequestId(number)] = version
        take(GroupRequested(RequestId(number), version, Client("a", "/h"), arrived, str(number), 1000))
        now += hostile.any([0, 0, 0, 0, 500, 2000])
        take(DeadlineReached())
    encode(DescribeGroupsResponse(groups=(shard.describe("g", 6),)), 6)
    encode(ConsumerGroupDescribeResponse(groups=(shard.describe_consumer_group("g"),)), 1)
    replayed = HardState()
    for record in log:
        replayed.apply(record)
    assert replayed == shard.hard
    for _ in range(4):  # members that wait for others are removed first
        now += 2**32
        take(DeadlineReached())
    groups = [*shard.consumers.groups.values(), *shard.running.groups.values()]
    assert not any(group.members for group in groups), "a member stays for ever"
