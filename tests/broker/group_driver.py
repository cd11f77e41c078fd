"""Requests of the members of groups over the wire driver, classic and consumer, and their offsets."""

from __future__ import annotations

from typing import Any

from wire_driver import Connection, Wire

from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def group_on(wire: Wire, broker_id: int) -> str:
    """The name of a group that this broker coordinates."""
    return next(name for name in "abcdefgh" if wire.coordinator(name) == broker_id)


def join_request(group: str = "g", member: str = "", **fields: Any) -> JoinGroupRequest:
    usual = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": (JoinGroupRequestProtocol(name="range", metadata=b"m"),),
    }
    return JoinGroupRequest(**(usual | fields))


def join(client: Connection, group: str = "g", version: int = 3, **fields: Any) -> JoinGroupResponse:
    """A member alone joins a new group and waits for its initial rebalance."""
    client.send(join_request(group, **fields), version)
    client.wire.advance(3000)
    joined: JoinGroupResponse = client.take()
    assert joined.error_code == 0, joined
    return joined


def sync_request(
    member: str, generation: int, assignment: bytes | None = None, group: str = "g", **fields: Any
) -> SyncGroupRequest:
    """`assignment`: the member leads the group, and has this for itself."""
    given = () if assignment is None else (SyncGroupRequestAssignment(member_id=member, assignment=assignment),)
    return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=given, **fields)


def stable(client: Connection, group: str = "g") -> JoinGroupResponse:
    joined = join(client, group)
    synced = client.ask(sync_request(joined.member_id, joined.generation_id, b"all", group), 3)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return joined


def heartbeat_request(joined: JoinGroupResponse, group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)


def heartbeat(client: Connection, joined: JoinGroupResponse, group: str = "g") -> int:
    error: int = client.ask(heartbeat_request(joined, group), 3).error_code
    return error


def leave(client: Connection, member_id: str, group: str = "g", reason: str | None = None) -> None:
    member = MemberIdentity(member_id=member_id, reason=reason)
    answer = client.ask(LeaveGroupRequest(group_id=group, members=(member,)), 5)
    assert (answer.error_code, answer.members[0].error_code) == (0, 0)


def commit_request(
    offset: int, group: str = "g", partition: int = 0, topic: str = "t", topic_id: bytes = bytes(16), **fields: Any
) -> OffsetCommitRequest:
    committed = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata="note"
    )
    topics = (OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(committed,)),)
    return OffsetCommitRequest(**({"group_id": group, "member_id": "", "topics": topics} | fields))


def commit(client: Connection, offset: int, version: int = 7, **fields: Any) -> int:
    response = client.ask(commit_request(offset, **fields), version)
    error: int = response.topics[0].partitions[0].error_code
    return error


def committed(client: Connection, group: str = "g", topic: str = "t", partition: int = 0) -> int:
    topics = (OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),)
    response = client.ask(OffsetFetchRequest(group_id=group, topics=topics), 5)
    found = response.topics[0].partitions[0]
    assert (response.error_code, found.error_code) == (0, 0)
    offset: int = found.committed_offset
    return offset


def consumer_join(member: str = "m", *topics: str, group: str = "g", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of a consumer group."""
    usual = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": topics or ("t",),
        "topic_partitions": (),
    }
    return ConsumerGroupHeartbeatRequest(**(usual | fields))


def consumer_beat(member: str, epoch: int, owned: Any = None, group: str = "g") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, topic_partitions=owned)
