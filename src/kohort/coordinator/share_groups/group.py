"""Hard state of share groups: the fold of their records.

As with consumer groups, the kinds of a group's records come in any order, and the tombstone of the group's own record
ends it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kohort.coordinator.events import Millis
from kohort.wire.schemas.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareTopicPartitions,
    TopicPartitionsInfo,
)

Partitions = tuple[ShareTopicPartitions, ...]
"""Partitions by topic, as records have them: thousands of them are copied and compared as a few tuples."""
NOTHING: Partitions = ()


class ShareMember(msgspec.Struct, frozen=True):
    """Where a member is on its way to the target."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NOTHING


NEW = ShareMember()


class ShareGroup(msgspec.Struct):
    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assigned_ms: Millis = 0
    members: dict[str, ShareGroupMemberMetadataValue] = {}
    targets: dict[str, Partitions] = {}
    current: dict[str, ShareMember] = {}
    initialized: dict[bytes, TopicPartitionsInfo] = {}
    """By topic id: the partitions that have a state."""
    initializing: dict[bytes, TopicPartitionsInfo] = {}
    """By topic id: partitions that get a state in several steps. If the topic has no state yet,
    they begin where the group's auto.offset.reset says; else at the beginning of the partition (SH29)."""
    deleting: dict[bytes, str] = {}
    """Topic ids, and names, whose state is deleted in several steps. `initialized` has their partitions meanwhile."""
    subscribers: dict[str, int] = {}
    """How many members are subscribed to a topic. Derived from `members`, as the next one."""
    names_size: int = 0
    """Characters of the names that the members subscribe to."""

    def state_of(self, member_id: str) -> ShareMember:
        return self.current.get(member_id, NEW)

    @property
    def size(self) -> int:
        """Bytes in memory, besides its members'."""
        bytes_of_group = GROUP_BYTES + len(self.group_id) + self.names_size
        infos = (*self.initialized.values(), *self.initializing.values())
        return bytes_of_group + INITIALIZED_BYTES * sum([len(info.partitions) for info in infos])

    def put_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        if value is not None:
            self.members[member_id] = value
        names = value.subscribed_topic_names if value is not None else ()
        were = former.subscribed_topic_names if former is not None else ()
        if names == were:
            return
        self.names_size += sum(map(len, names)) - sum(map(len, were))
        for more, of in ((1, names), (-1, were)):
            for name in of:
                count = self.subscribers.get(name, 0) + more
                self.subscribers[name] = count
                if not count:
                    del self.subscribers[name]


GROUP_BYTES = 1_000
"""Counted for each group: one without members stays until it is deleted."""
INITIALIZED_BYTES = 300
"""Counted for each share-partition."""


class ShareFold:
    """The share groups in the log of a shard."""

    def __init__(self) -> None:
        self.groups: dict[str, ShareGroup] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareFold) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def apply(self, key: Any, value: Any) -> None:
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            self.groups.pop(key.group_id, None)
            return
        group = self.groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = ShareGroup(key.group_id)
        match key:
            case ShareGroupMetadataKey():
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupMemberMetadataKey():
                group.put_member(key.member_id, value)
            case ShareGroupTargetAssignmentMetadataKey():
                group.assignment_epoch = 0 if value is None else value.assignment_epoch
                group.assigned_ms = 0 if value is None else value.assignment_timestamp
            case ShareGroupTargetAssignmentMemberKey():
                if value is None:
                    group.targets.pop(key.member_id, None)
                else:
                    group.targets[key.member_id] = value.topic_partitions
            case ShareGroupCurrentMemberAssignmentKey():
                if value is None:
                    group.current.pop(key.member_id, None)
                else:
                    group.current[key.member_id] = _member(value)
            case ShareGroupStatePartitionMetadataKey():
                _put_topics(group, value)


def _put_topics(group: ShareGroup, value: ShareGroupStatePartitionMetadataValue | None) -> None:
    if value is None:
        group.initialized, group.initializing, group.deleting = {}, {}, {}
        return
    group.initialized = {topic.topic_id: topic for topic in value.initialized_topics}
    group.initializing = {topic.topic_id: topic for topic in value.initializing_topics}
    group.deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}


def _member(value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return ShareMember(value.member_epoch, value.previous_member_epoch, value.assigned_partitions)
