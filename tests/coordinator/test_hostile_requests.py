"""Requests that no client sends but the wire can carry: the shard answers each of them in bytes.

An exception in a step stops the process, so each of these could take a server down. Names are as long as the version
allows; older versions must be able to answer, describe and list what newer ones created.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from history_world import HistoryWorld, histories
from hypothesis import given
from hypothesis import strategies as st
from shard_world import fetched_offsets, returned

from kohort.config import Config
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import ExpireOffsets, Reply, TopicsChanged
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import topics_of
from kohort.wire.codec import decode, encode
from kohort.wire.schema import schema_of
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
from kohort.wire.schemas.list_groups import ListGroupsResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NOW = 1_790_000_000_000


def on_the_wire(body: Any, version: int) -> Any:
    return decode(type(body), version, encode(body, version))


class HostileWorld(HistoryWorld):
    """Requests arrive as their version carries them, and every reply needs an encoding in that version."""

    now = NOW
    config = Config(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=500)

    def send(self, body: Any, version: int, client: str = "a", hold_ms: int = 0) -> None:
        self.ask(version, on_the_wire(body, version), version, hold_ms, client)

    def learn(self, client: int, reply: Reply) -> None:
        """`client` is the version of the request."""
        self.answer = decode(type(reply.body), client, encode(reply.body, client))


name = st.sampled_from(
    ["g", "g", "g", "i", "i-1", "a-1", "", "é" * 8000, "𝄞" * 8000, "x" * 32_767, "x" * 33_000, "ü" * 20_000]
)
client_id = st.sampled_from(["", "a", "x" * 32_767, "é" * 16_383])
int32 = st.sampled_from([0, 1, -1, 6000, 2**31 - 1, -(2**31)])
int64 = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
data = st.sampled_from([b"", b"\0", b"\0\0\0\0\0\1\0", b"\0\1" + b"\xff" * 20, bytes(1000)])
instance = st.none() | name


def some(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=2).map(tuple)


joins = st.builds(
    JoinGroupRequest,
    group_id=name,
    session_timeout_ms=st.sampled_from([6000, 6000, 6000, 10_000, -1]),
    rebalance_timeout_ms=int32,
    member_id=name,
    group_instance_id=instance,
    protocol_type=st.sampled_from(["consumer", "consumer", "consumer", "x" * 33_000]),
    protocols=some(st.builds(JoinGroupRequestProtocol, name=name, metadata=data)),
    reason=st.none() | name,
)
requests = st.one_of(
    *[joins] * 3,
    st.builds(
        SyncGroupRequest,
        group_id=name,
        generation_id=int32,
        member_id=name,
        group_instance_id=instance,
        protocol_type=st.none() | name,
        protocol_name=st.none() | name,
        assignments=some(st.builds(SyncGroupRequestAssignment, member_id=name, assignment=data)),
    ),
    st.builds(HeartbeatRequest, group_id=name, generation_id=int32, member_id=name, group_instance_id=instance),
    st.builds(
        LeaveGroupRequest,
        group_id=name,
        member_id=name,
        members=some(st.builds(MemberIdentity, member_id=name, group_instance_id=instance)),
    ),
    st.builds(
        OffsetCommitRequest,
        group_id=name,
        generation_id_or_member_epoch=int32,
        member_id=name,
        group_instance_id=instance,
        retention_time_ms=int64,
        topics=st.builds(
            OffsetCommitRequestTopic,
            name=st.just("t"),
            partitions=st.builds(
                OffsetCommitRequestPartition,
                partition_index=int32,
                committed_offset=int64,
                committed_leader_epoch=int32,
                committed_metadata=st.none() | st.sampled_from(["", "é" * 4096, "𝄞" * 2048, "x" * 4097]),
            ).map(lambda partition: (partition,)),
        ).map(lambda topic: (topic,)),
    ),
)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("client", ["x" * 32_767, "é" * 16_383])
def test_the_longest_client_id(version: int, client: str) -> None:
    """A member id is made of it, and must fit into the strings of old versions itself."""
    world = HostileWorld()
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    world.send(body, version, client)
    world.late(0)
    world.end_turn()
    described = DescribeGroupsResponse(groups=(returned(world.shard.describe("g", 0)),))
    assert decode(DescribeGroupsResponse, 0, encode(described, 0)).groups[0].group_id == "g"


@pytest.mark.parametrize("retention", [2**63 - 1, 2**63 - NOW, -(2**63), -2])
def test_a_retention_beyond_all_time(retention: int) -> None:
    world = HostileWorld()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    body = OffsetCommitRequest(
        group_id="g",
        member_id="",
        retention_time_ms=retention,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    world.send(body, 4)
    world.end_turn()
    assert world.answer.topics[0].partitions[0].error_code == 0
    assert world.shard.step(ExpireOffsets(), NOW).records == () or retention < 0


@histories(500)
@given(st.lists(st.tuples(requests, client_id, st.integers(0, 9), st.sampled_from([0, 0, 3000, 10_000])), max_size=12))
def test_everything_is_answered_in_bytes(asked: list[tuple[Any, str, int, int]]) -> None:
    world = HostileWorld()
    for body, client, wanted, pause in asked:
        valid = schema_of(type(body)).versions
        version = max(valid.first, min(valid.last, wanted))
        try:
            on_the_wire(body, version)
        except ValueError:  # this version cannot carry it
            continue
        world.send(body, version, client)
        world.late(pause)
        world.end_turn()
    shard = world.shard
    listed = shard.list_groups((), ())
    for version in range(6):
        encode(ListGroupsResponse(error_code=0, groups=tuple(listed)), version)
    for group in listed:
        for version in range(7):
            encode(DescribeGroupsResponse(groups=(returned(shard.describe(group.group_id, version)),)), version)
        found = fetched_offsets(shard, OffsetFetchRequestGroup(group_id=group.group_id), 9)
        encode(OffsetFetchResponse(groups=(found,)), 9)
    world.sweep()


# -- hostile members of both protocols in one group, whatever they subscribe to, report or assign


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
    world = HostileWorld()
    world.step(TopicsChanged(TOPICS))
    hostile = Hostile(world.shard, seed)
    for _ in range(150):
        world.send(*hostile.request(), hold_ms=1000)
        world.late(hostile.any([0, 0, 0, 0, 500, 2000]))
        world.end_turn()
    shard = world.shard
    encode(DescribeGroupsResponse(groups=(returned(shard.describe("g", 6)),)), 6)
    encode(ConsumerGroupDescribeResponse(groups=(returned(shard.describe_consumer_group("g")),)), 1)
    for _ in range(4):  # members that wait for others are removed first
        world.late(2**32)
    groups = [*shard.consumers.groups.values(), *shard.running.groups.values()]
    assert not any(group.members for group in groups), "a member stays for ever"
