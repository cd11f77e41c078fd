"""The records of share groups."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator.events import Record
from kohort.coordinator.records import version_0
from kohort.coordinator.share_groups.group import Partitions, ShareMember
from kohort.wire.schemas.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)


def share_group_record(group: str, epoch: int | None, metadata_hash: int = 0) -> Record:
    value = None if epoch is None else ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return version_0(ShareGroupMetadataKey(group_id=group), value)


def share_member_record(group: str, member: str, value: ShareGroupMemberMetadataValue | None) -> Record:
    return version_0(ShareGroupMemberMetadataKey(group_id=group, member_id=member), value)


def share_target_epoch_record(group: str, epoch: int | None, made_ms: int = 0) -> Record:
    value = None
    if epoch is not None:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=made_ms)
    return version_0(ShareGroupTargetAssignmentMetadataKey(group_id=group), value)


def share_target_record(group: str, member: str, target: Partitions | None) -> Record:
    value = None if target is None else ShareGroupTargetAssignmentMemberValue(topic_partitions=target)
    return version_0(ShareGroupTargetAssignmentMemberKey(group_id=group, member_id=member), value)


def share_current_record(group: str, member: str, state: ShareMember | None) -> Record:
    value = None
    if state is not None:
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=state.epoch,
            previous_member_epoch=state.previous_epoch,
            assigned_partitions=state.assigned,
        )
    return version_0(ShareGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), value)


def states_record(
    group: str,
    initialized: Mapping[bytes, TopicPartitionsInfo] | None,
    initializing: Mapping[bytes, TopicPartitionsInfo],
    deleting: Mapping[bytes, str],
) -> Record:
    """Which share-partitions have a state, by topic id; None for a group that is deleted."""
    value = None
    if initialized is not None:
        value = ShareGroupStatePartitionMetadataValue(
            initializing_topics=tuple([initializing[topic_id] for topic_id in sorted(initializing)]),
            initialized_topics=tuple([initialized[topic_id] for topic_id in sorted(initialized)]),
            deleting_topics=tuple(
                [TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(deleting.items())]
            ),
        )
    return version_0(ShareGroupStatePartitionMetadataKey(group_id=group), value)
