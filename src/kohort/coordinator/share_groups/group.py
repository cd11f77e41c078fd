"""Hard state of share groups: the fold of their records.

As with consumer groups, the kinds of a group's records come in any order, and the tombstone of the group's own record
ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareTopicPartitions,
    TopicPartitionsInfo,
)

TopicPartition = tuple[bytes, int]
Partitions = frozenset[TopicPartition]
NOTHING: Partitions = frozenset()


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
        return bytes_of_group + INITIALIZED_BYTES * sum(len(info.partitions) for info in self.initialized.values())

    def put_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> list[str]:
        """Returns the topics that gained their first subscriber or lost their last."""
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        if value is not None:
            self.members[member_id] = value
        names = value.subscribed_topic_names if value is not None else ()
        were = former.subscribed_topic_names if former is not None else ()
        if names == were:
            return []
        self.names_size += sum(map(len, names)) - sum(map(len, were))
        touched = []
        for more, of in ((1, names), (-1, were)):
            for name in of:
                before = self.subscribers.get(name, 0)
                self.subscribers[name] = before + more
                if before + more == 0:
                    del self.subscribers[name]
                if before == 0 or before + more == 0:
                    touched.append(name)
        return touched


GROUP_BYTES = 1_000
"""Counted for each group: one without members stays until it is deleted."""
INITIALIZED_BYTES = 300
"""Counted for each share-partition."""


class ShareFold:
    """The share groups in the log of a shard."""

    def __init__(self) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._subscribed: dict[str, dict[str, None]] = {}
        """The groups that subscribe to each topic, by its name. Derived from `groups`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareFold) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def subscribed_to(self, names: Iterable[str]) -> list[ShareGroup]:
        found = {group_id for name in names for group_id in self._subscribed.get(name, ())}
        return [self.groups[group_id] for group_id in sorted(found)]

    def _index(self, group: ShareGroup, names: Iterable[str]) -> None:
        for name in names:
            groups = self._subscribed.setdefault(name, {})
            groups.pop(group.group_id, None)
            if name in group.subscribers and group.group_id in self.groups:
                groups[group.group_id] = None
            if not groups:
                del self._subscribed[name]

    def apply(self, key: Any, value: Any) -> None:
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            former = self.groups.pop(key.group_id, None)
            if former is not None:
                self._index(former, former.subscribers)
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
                self._index(group, group.put_member(key.member_id, value))
            case ShareGroupTargetAssignmentMetadataKey():
                group.assignment_epoch = 0 if value is None else value.assignment_epoch
                group.assigned_ms = 0 if value is None else value.assignment_timestamp
            case ShareGroupTargetAssignmentMemberKey():
                if value is None:
                    group.targets.pop(key.member_id, None)
                else:
                    group.targets[key.member_id] = partitions_in(value.topic_partitions)
            case ShareGroupCurrentMemberAssignmentKey():
                if value is None:
                    group.current.pop(key.member_id, None)
                else:
                    group.current[key.member_id] = _member(value)
            case ShareGroupStatePartitionMetadataKey():
                topics = () if value is None else (*value.initializing_topics, *value.initialized_topics)
                group.initialized = {topic.topic_id: topic for topic in topics}


def _member(value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
    return ShareMember(value.member_epoch, value.previous_member_epoch, partitions_in(value.assigned_partitions))


def partitions_in(topics: Iterable[ShareTopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics
