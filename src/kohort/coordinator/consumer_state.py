"""Hard state of consumer groups (KIP-848): the fold of their records, and what is looked up in it.

Records of a group may come in any order of their kinds, because compaction keeps of each key the last one only; so
whatever comes first founds the group, and its own tombstone ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kohort.coordinator.events import Millis
from kohort.coordinator.reconciliation import FREE, MemberState, Reconciliation, TopicPartition
from kohort.coordinator.stored_assignment import member_state, target_partitions
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

Target = frozenset[TopicPartition]
LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that is away and whose place is kept."""


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    """Counts what asks for a new target: joins, departures, subscriptions, topics."""
    metadata_hash: int = 0
    """Of the subscribed topics, when they were last looked at."""
    assignment_epoch: int = 0
    """The group epoch that the target was made for."""
    assigned_ms: Millis = 0
    """When that was."""
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    current: dict[str, MemberState] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    """Who has a partition, what is to be revoked included. Derived from `current`."""
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: instance id, member id. Derived from `members`."""

    def state_of(self, member_id: str) -> MemberState:
        return self.current.get(member_id, NEW)

    def epoch_of(self, partition: TopicPartition) -> int:
        """The epoch of a partition's owner, FREE without one."""
        owner = self.owners.get(partition)
        return self.current[owner].member_epoch if owner is not None else FREE

    def is_reconciled(self, member_id: str) -> bool:
        state = self.state_of(member_id)
        return state.state is Reconciliation.STABLE and state.member_epoch == self.assignment_epoch

    @property
    def subscribed_topics(self) -> set[str]:
        return {name for member in self.members.values() for name in member.subscribed_topic_names}

    # -- the fold

    def put_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        if (
            former is not None
            and former.instance_id is not None
            and self.instances.get(former.instance_id) == member_id
        ):
            del self.instances[former.instance_id]
        if value is not None:
            self.members[member_id] = value
            if value.instance_id is not None:
                self.instances[value.instance_id] = member_id

    def put_current(self, member_id: str, state: MemberState | None) -> None:
        former = self.current.pop(member_id, None) if state is None else self.current.get(member_id)
        if former is not None:
            for partition in (*former.assigned, *former.revoking):
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]
        if state is not None:
            self.current[member_id] = state
            for partition in (*state.assigned, *state.revoking):
                self.owners[partition] = member_id


NEW = MemberState()


class ConsumerFold:
    """The consumer groups of a shard, as its log tells them."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerFold) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def apply(self, key: Any, value: Any) -> None:
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            self.groups.pop(key.group_id, None)
            return
        group = self.groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
        match key:
            case ConsumerGroupMetadataKey():
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupMemberMetadataKey():
                group.put_member(key.member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                group.assignment_epoch = 0 if value is None else value.assignment_epoch
                group.assigned_ms = 0 if value is None else value.assignment_timestamp
            case ConsumerGroupTargetAssignmentMemberKey():
                if value is None:
                    group.targets.pop(key.member_id, None)
                else:
                    group.targets[key.member_id] = target_partitions(value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                group.put_current(key.member_id, None if value is None else member_state(value))


# -- records' values


def epoch_value(epoch: int, metadata_hash: int) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)


def target_epoch_value(epoch: int, now: Millis) -> ConsumerGroupTargetAssignmentMetadataValue:
    return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)
