"""Answers of the group APIs, built from a group and a member; refusals carry an error and nothing else (J28)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.described import MEMBER_BYTES, in_parts
from kohort.coordinator.events import GroupRequested
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribedGroupMember
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.schemas.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.wire.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def join_error(error: int, version: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, protocol_name=None if version >= 7 else "", leader="", member_id=member_id, members=()
    )


def joined(
    group: Group, member: Member, *, with_members: bool, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation for `member`. `leader`: the id to name as leader, if not the group's."""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if with_members:
        members = tuple(
            JoinGroupResponseMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                metadata=m.metadata_of(group.protocol),
            )
            for m in group.members.values()
        )
    return JoinGroupResponse(
        error_code=0,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=(group.leader or "") if leader is None else leader,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def sync_error(error: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=0,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def heartbeat_error(error: int, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """For a member of a consumer group."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def described_classic_group(group: Group) -> Generator[int, None, DescribedGroup]:
    """In steps; each yields the memory of its part. Changes between two steps may show in the answer."""
    stable = group.phase is Phase.STABLE
    phase, protocol = group.phase, (group.protocol or "") if stable else ""
    members: list[DescribedGroupMember] = []
    for some in in_parts(list(group.members.values())):
        members += [
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client.client_id,
                client_host=m.client.host,
                member_metadata=m.metadata_of(protocol) if stable else b"",
                member_assignment=m.assignment,
            )
            for m in some
        ]
        yield MEMBER_BYTES * len(some)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=phase.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=tuple(members),
    )


def undescribed(error: int, group_id: str, state: str = "", message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def refusal(event: GroupRequested, error: int) -> Any:
    """The answer to a request that fails as a whole, whatever its API."""
    body = event.body
    match body:
        case JoinGroupRequest():
            return join_error(error, event.version, body.member_id)
        case SyncGroupRequest():
            return sync_error(error)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=error)
        case ConsumerGroupHeartbeatRequest():
            return heartbeat_error(error)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case OffsetCommitRequest():
            return commit_error(body, error)
        case TxnOffsetCommitRequest():
            return pending_commit_error(body, error)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error, topics=())
        case DeleteGroupsRequest():
            return DeleteGroupsResponse(
                results=tuple(DeletableGroupResult(group_id=name, error_code=error) for name in body.groups_names)
            )
        case ShareGroupHeartbeatRequest():
            return ShareGroupHeartbeatResponse(error_code=error)
        case AlterShareGroupOffsetsRequest():
            return AlterShareGroupOffsetsResponse(error_code=error)
        case DeleteShareGroupOffsetsRequest():
            return DeleteShareGroupOffsetsResponse(error_code=error)
        case _:
            raise TypeError(f"no group API takes {type(body).__name__}")


def commit_error(request: OffsetCommitRequest, error: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def pending_commit_error(request: TxnOffsetCommitRequest, error: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error)
                    for asked in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
