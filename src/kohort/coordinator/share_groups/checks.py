"""Checks before anything changes: requests of other protocols for a share group; a ShareGroupHeartbeat, whose checks
return an error with a message, or None (SH3, SH16).

The messages are those of Kafka 4.3 (GroupCoordinatorService.java, GroupMetadataManager.java).
"""

from __future__ import annotations

from typing import Any

from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.share_groups.group import ShareGroup
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kohort.wire.schemas.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from kohort.wire.schemas.sync_group import SyncGroupRequest

Refusal = tuple[ErrorCode, str]
LONGEST_MEMBER_ID = 36
MOST_NAMES = 10_000
"""Topic names that a member subscribes to."""


def of_other_protocol(body: Any) -> ErrorCode:
    """The error for a request that share groups do not take; NONE for a request that they take (SH26)."""
    match body:
        case ShareGroupHeartbeatRequest() | AlterShareGroupOffsetsRequest() | DeleteShareGroupOffsetsRequest():
            return ErrorCode.NONE
        case JoinGroupRequest():
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        case SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest():
            return ErrorCode.UNKNOWN_MEMBER_ID
        case _:
            return ErrorCode.GROUP_ID_NOT_FOUND


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> Refusal | None:
    wrong = _wrong(request)
    return (ErrorCode.INVALID_REQUEST, wrong) if wrong else None


def _wrong(request: ShareGroupHeartbeatRequest) -> str:
    if not request.member_id:
        return "MemberId can't be empty."
    if len(request.member_id) > LONGEST_MEMBER_ID:
        return f"MemberId can't be longer than {LONGEST_MEMBER_ID} characters."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if request.member_epoch < -1:
        return "MemberEpoch is invalid."
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if len(request.group_id) > LONGEST_NAME or len(request.rack_id or "") > LONGEST_NAME:
        return f"A name of more than {LONGEST_NAME} characters."
    names = request.subscribed_topic_names or ()
    if len(names) > MOST_NAMES or any(len(name) > LONGEST_NAME for name in names):
        return f"More than {MOST_NAMES} names, or a name of more than {LONGEST_NAME} characters."
    return ""


def check_known(group: ShareGroup, member_id: str) -> Refusal | None:
    if member_id in group.members:
        return None
    return ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."


def check_epoch(group: ShareGroup, member_id: str, epoch: int) -> Refusal | None:
    """110 for an epoch that is neither the member's nor the one before."""
    state = group.state_of(member_id)
    if epoch in (state.epoch, state.previous_epoch):
        return None
    how = "greater" if epoch > state.epoch else "smaller"
    return ErrorCode.FENCED_MEMBER_EPOCH, (
        f"The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({state.epoch}). The member must abandon all its partitions and rejoin."
    )
