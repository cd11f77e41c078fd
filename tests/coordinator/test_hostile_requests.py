"""Requests that no client sends but the wire can carry: the shard answers each of them in bytes.

An exception in a step stops the process, so each of these could take a server down. Names are as long as the version
allows; older versions must be able to answer, describe and list what newer ones created.
"""

from __future__ import annotations

from typing import Any

import pytest
from history_world import histories
from hypothesis import given
from hypothesis import strategies as st

from kohort.config import Config
from kohort.coordinator.events import Client, DeadlineReached, ExpireOffsets, GroupRequested, Loaded, RequestId
from kohort.coordinator.shard import Shard
from kohort.wire.codec import decode, encode
from kohort.wire.schema import schema_of
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

UUID = "01234567-89ab-cdef-0123-456789abcdef"
NOW = 1_790_000_000_000
name = st.sampled_from(
    ["g", "g", "g", "i", "i-1", "a-1", "", "é" * 8000, "𝄞" * 8000, "x" * 32_767, "x" * 33_000, "ü" * 20_000]
)
client_id = st.sampled_from(["", "a", "x" * 32_767, "é" * 16_383])
int32 = st.sampled_from([0, 1, -1, 6000, 2**31 - 1, -(2**31)])
int64 = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
data = st.sampled_from([b"", b"\0", b"\0\0\0\0\0\1\0", b"\0\1" + b"\xff" * 20, bytes(1000)])
joins = st.builds(
    JoinGroupRequest,
    group_id=name,
    session_timeout_ms=st.sampled_from([6000, 6000, 6000, 10_000, -1]),
    rebalance_timeout_ms=int32,
    member_id=name,
    group_instance_id=st.none() | name,
    protocol_type=st.sampled_from(["consumer", "consumer", "consumer", "x" * 33_000]),
    protocols=st.lists(st.builds(JoinGroupRequestProtocol, name=name, metadata=data), max_size=2).map(tuple),
    reason=st.none() | name,
)
requests = st.one_of(
    joins,
    joins,
    joins,
    st.builds(
        SyncGroupRequest,
        group_id=name,
        generation_id=int32,
        member_id=name,
        group_instance_id=st.none() | name,
        protocol_type=st.none() | name,
        protocol_name=st.none() | name,
        assignments=st.lists(st.builds(SyncGroupRequestAssignment, member_id=name, assignment=data), max_size=2).map(
            tuple
        ),
    ),
    st.builds(HeartbeatRequest, group_id=name, generation_id=int32, member_id=name, group_instance_id=st.none() | name),
    st.builds(
        LeaveGroupRequest,
        group_id=name,
        member_id=name,
        members=st.lists(st.builds(MemberIdentity, member_id=name, group_instance_id=st.none() | name), max_size=2).map(
            tuple
        ),
    ),
    st.builds(
        OffsetCommitRequest,
        group_id=name,
        generation_id_or_member_epoch=int32,
        member_id=name,
        group_instance_id=st.none() | name,
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


def on_the_wire(body: Any, version: int) -> Any | None:
    """The request as the shard would get it; None if this version cannot carry it."""
    try:
        return decode(type(body), version, encode(body, version))
    except Exception:
        return None


def answer(shard: Shard, body: Any, version: int, client: str = "a", number: int = 1) -> list[Any]:
    """One request, its records applied, its replies as they come off the wire."""
    arrived = decode(type(body), version, encode(body, version))
    effects = shard.step(GroupRequested(RequestId(number), version, Client(client, "/h"), arrived, UUID), NOW)
    for record in effects.records:
        shard.apply(record, NOW)
    return [decode(type(reply.body), version, encode(reply.body, version)) for reply in effects.replies]


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("client", ["x" * 32_767, "é" * 16_383])
def test_the_longest_client_id(version: int, client: str) -> None:
    """A member id is made of it, and must fit into the strings of old versions itself."""
    shard = Shard(0, Config(group_initial_rebalance_delay_ms=0))
    shard.step(Loaded(), NOW)
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    answer(shard, body, version, client)
    for reply in shard.step(DeadlineReached(), NOW).replies:
        encode(reply.body, version)
    described = DescribeGroupsResponse(groups=(shard.describe("g", 0),))
    assert decode(DescribeGroupsResponse, 0, encode(described, 0)).groups[0].group_id == "g"


@pytest.mark.parametrize("retention", [2**63 - 1, 2**63 - NOW, -(2**63), -2])
def test_a_retention_beyond_all_time(retention: int) -> None:
    shard = Shard(0, Config())
    shard.step(Loaded(), NOW)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    body = OffsetCommitRequest(
        group_id="g",
        member_id="",
        retention_time_ms=retention,
        topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    (response,) = answer(shard, body, 4)
    assert response.topics[0].partitions[0].error_code == 0
    assert shard.step(ExpireOffsets(), NOW).records == () or retention < 0


@histories(500)
@given(st.lists(st.tuples(requests, client_id, st.integers(0, 9), st.sampled_from([0, 0, 3000, 10_000])), max_size=12))
def test_everything_is_answered_in_bytes(asked: list[tuple[Any, str, int, int]]) -> None:
    shard = Shard(0, Config(group_initial_rebalance_delay_ms=0))
    shard.step(Loaded(), NOW)
    now = NOW
    versions: dict[RequestId, int] = {}

    def take(event: Any) -> None:
        effects = shard.step(event, now)
        for record in effects.records:
            shard.apply(record, now)
        shard.validate()
        for reply in effects.replies:
            encode(reply.body, versions[reply.request_id])

    for number, (body, client, wanted, pause) in enumerate(asked):
        valid = schema_of(type(body)).versions
        assert valid is not None
        version = max(valid.first, min(valid.last, wanted))
        arrived = on_the_wire(body, version)
        if arrived is not None:
            request_id = RequestId(number)
            versions[request_id] = version
            take(GroupRequested(request_id, version, Client(client, "/h"), arrived, str(number)))
        now += pause
        take(DeadlineReached())
    listed = shard.list_groups((), ())
    for version in range(6):
        encode(ListGroupsResponse(error_code=0, groups=tuple(listed)), version)
    for group in listed:
        for version in range(7):
            encode(DescribeGroupsResponse(groups=(shard.describe(group.group_id, version),)), version)
        found = shard.fetch_offsets(OffsetFetchRequestGroup(group_id=group.group_id), 9, now)
        encode(OffsetFetchResponse(groups=(found,)), 9)
    take(ExpireOffsets())
