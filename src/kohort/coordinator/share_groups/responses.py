"""Answers and descriptions of share groups."""

from __future__ import annotations

from kohort.coordinator.events import Millis
from kohort.coordinator.share_groups.assignor import NAME
from kohort.coordinator.share_groups.group import Partitions, ShareGroup
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas import share_group_describe as describing
from kohort.wire.schemas.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse, TopicPartitions

LEFT = -1
"""The epoch of a member that leaves."""


def share_heartbeat_error(error: int, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)


def share_heartbeat_answer(
    member_id: str, epoch: int, interval_ms: Millis, assigned: Partitions | None
) -> ShareGroupHeartbeatResponse:
    """`assigned`: None if that has not changed."""
    assignment = None
    if assigned is not None:
        assignment = Assignment(
            topic_partitions=tuple(
                [TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions) for topic in assigned]
            )
        )
    return ShareGroupHeartbeatResponse(
        member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms, assignment=assignment
    )


def state_name(group: ShareGroup) -> str:
    return "Stable" if group.members else "Empty"


def described_share_group(group: ShareGroup, topics: Topics) -> describing.DescribedGroup:
    return describing.DescribedGroup(
        group_id=group.group_id,
        group_state=state_name(group),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=NAME,
        members=tuple(
            describing.Member(
                member_id=member_id,
                rack_id=member.rack_id,
                member_epoch=group.state_of(member_id).epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=member.subscribed_topic_names,
                assignment=_assignment(group.state_of(member_id).assigned, topics),
            )
            for member_id, member in group.members.items()
        ),
    )


def _assignment(assigned: Partitions, topics: Topics) -> describing.Assignment:
    return describing.Assignment(
        topic_partitions=tuple(
            describing.TopicPartitions(topic_id=topic.topic_id, topic_name=spec.name, partitions=topic.partitions)
            for topic in assigned
            if (spec := topics.by_id.get(topic.topic_id)) is not None
        )
    )


def undescribed_share_group(error: ErrorCode, group_id: str, message: str | None = None) -> describing.DescribedGroup:
    return describing.DescribedGroup(error_code=error, error_message=message, group_id=group_id)
