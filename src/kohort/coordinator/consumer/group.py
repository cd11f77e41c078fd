"""Hard state of consumer groups (KIP-848): the fold of their records, and lookups in it.

Compaction keeps only the last record of each key, so the kinds of a group's records come in any order. The first record
of any kind founds the group; the tombstone of the group's own record ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from kohort.coordinator.classic.protocols import Protocols, held_by, size_of
from kohort.coordinator.consumer.assignment_records import member_state, target_partitions
from kohort.coordinator.consumer.classic_fields import is_classic, protocols_of
from kohort.coordinator.consumer.reconciliation import FREE, MemberState, Reconciliation, TopicPartition
from kohort.coordinator.events import Millis
from kohort.coordinator.member_bytes import CONSUMER_GROUP_BYTES, MEMBER_BYTES, subscription_bytes, text_bytes
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

Target = frozenset[TopicPartition]
LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that is away for a while and keeps its place."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """The version of the topics that it was compared with."""
    resolved_ms: Millis


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    """Rises with each change that needs a new target: joins, departures, subscriptions, topics."""
    metadata_hash: int = 0
    """The hash of the subscribed topics at the time of this epoch."""
    assignment_epoch: int = 0
    """The group epoch of the target."""
    assigned_ms: Millis = 0
    """When the target was made."""
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    current: dict[str, MemberState] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The owner of each partition, including partitions that are to be revoked. Derived from `current`."""
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: member id by instance id. Derived from `members`."""
    patterns: dict[str, Pattern] = field(default_factory=dict)
    """The members' regular expressions, with their last known matches."""
    pattern_users: dict[str, int] = field(default_factory=dict)
    """The number of members that subscribe by each regular expression. Derived from `members`."""
    classic_members: int = 0
    """The number of members that speak the classic protocol. Derived from `members`, like the next two."""
    classic_support: dict[str, int] = field(default_factory=dict)
    """The number of those that support each protocol (an assignor's name)."""
    classic_bytes: int = 0
    """The size of their protocols."""
    subscribers: dict[str, int] = field(default_factory=dict)
    """How many members and patterns are subscribed to a topic. Derived from them."""
    names_size: int = 0
    """Characters of the names that the members subscribe to. Derived from `members`."""
    members_size: int = 0
    """About the bytes of the members in memory. Derived from `members`."""
    own_size: int = 0
    """About the bytes of the group without members."""

    def __post_init__(self) -> None:
        self.own_size = CONSUMER_GROUP_BYTES + text_bytes(self.group_id)

    def state_of(self, member_id: str) -> MemberState:
        return self.current.get(member_id, NEW)

    def had_by(self, member_id: str) -> frozenset[TopicPartition]:
        """The member's partitions, including those that it has to give up."""
        state = self.state_of(member_id)
        return frozenset(state.assigned) | frozenset(state.revoking)

    def epoch_of(self, partition: TopicPartition) -> int:
        """The epoch of the partition's owner; FREE if there is no owner."""
        owner = self.owners.get(partition)
        return self.current[owner].member_epoch if owner is not None else FREE

    def is_reconciled(self, member_id: str) -> bool:
        state = self.state_of(member_id)
        return state.state is Reconciliation.STABLE and state.member_epoch == self.assignment_epoch

    def names_of(self, member_id: str) -> frozenset[str]:
        """The topics that a member is subscribed to, whether they exist or not."""
        member = self.members[member_id]
        pattern = self.patterns.get(member.subscribed_topic_regex or "")
        if pattern is None:
            return frozenset(member.subscribed_topic_names)
        return pattern.topics.union(member.subscribed_topic_names) if member.subscribed_topic_names else pattern.topics

    def is_pending(self, member_id: str) -> bool:
        """True while the matches of the member's regular expression are unknown."""
        text = self.members[member_id].subscribed_topic_regex
        return bool(text) and text not in self.patterns

    @property
    def has_pending(self) -> bool:
        return any(text not in self.patterns for text in self.pattern_users)

    @property
    def subscribed_topics(self) -> Set[str]:
        return self.subscribers.keys()

    # -- the fold

    def put_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> list[str]:
        """Returns the topics that gained their first subscriber or lost their last."""
        former = self.members.pop(member_id, None) if value is None else self.members.get(member_id)
        if (
            former is not None
            and former.instance_id is not None
            and self.instances.get(former.instance_id) == member_id
        ):
            del self.instances[former.instance_id]
        for member, members in ((former, -1), (value, 1)):
            if member is not None and member.subscribed_topic_regex:
                _count(self.pattern_users, member.subscribed_topic_regex, members)
            if member is not None and is_classic(member):
                self._count_classic(protocols_of(member), members)
        if value is not None:
            self.members[member_id] = value
            if value.instance_id is not None:
                self.instances[value.instance_id] = member_id
        names = value.subscribed_topic_names if value is not None else ()
        were = former.subscribed_topic_names if former is not None else ()
        self.names_size += size_of_names(names) - size_of_names(were)
        self.members_size += size_of_member(member_id, value) - size_of_member(member_id, former)
        return [*self._count(names, 1), *self._count(were, -1)] if names != were else []

    def _count_classic(self, protocols: Protocols, members: int) -> None:
        self.classic_members += members
        self.classic_bytes += members * size_of(protocols)
        for name in {name for name, _ in protocols}:
            _count(self.classic_support, name, members)

    def put_pattern(self, text: str, pattern: Pattern | None) -> list[str]:
        """Returns the topics that gained their first subscriber or lost their last."""
        former = self.patterns.pop(text, None)
        if pattern is not None:
            self.patterns[text] = pattern
        names = pattern.topics if pattern is not None else frozenset()
        were = former.topics if former is not None else frozenset()
        return [*self._count(sorted(names - were), 1), *self._count(sorted(were - names), -1)]

    def _count(self, names: Iterable[str], members: int) -> Iterator[str]:
        """Add this many subscribers to each topic. Yields the topics that gained their first or lost their last one."""
        for name in names:
            before = self.subscribers.get(name, 0)
            _count(self.subscribers, name, members)
            if not before or name not in self.subscribers:
                yield name

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


def size_of_member(member_id: str, member: ConsumerGroupMemberMetadataValue | None) -> int:
    """About its bytes in memory; 0 for none."""
    if member is None:
        return 0
    texts = text_bytes(
        member_id,
        member.instance_id,
        member.client_id,
        member.rack_id,
        member.subscribed_topic_regex,
    )
    return MEMBER_BYTES + texts + subscription_bytes(member.subscribed_topic_names) + held_by(protocols_of(member))


def size_of_names(names: Iterable[str]) -> int:
    return sum(map(len, names))


def _count(counts: dict[str, int], key: str, more: int) -> None:
    counts[key] = counts.get(key, 0) + more
    if not counts[key]:
        del counts[key]


class ConsumerFold:
    """The consumer groups in the log of a shard."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._subscribed: dict[str, dict[str, None]] = {}
        """The groups that subscribe to each topic, by its name. Derived from `groups`."""

    @property
    def subscribed_names(self) -> int:
        """How many topic names groups subscribe to."""
        return len(self._subscribed)

    def subscribed_to(self, names: Iterable[str]) -> list[ConsumerGroup]:
        found = {group_id for name in names for group_id in self._subscribed.get(name, ())}
        return [self.groups[group_id] for group_id in sorted(found)]

    def _index(self, group: ConsumerGroup, names: Iterable[str]) -> None:
        for name in names:
            groups = self._subscribed.setdefault(name, {})
            groups.pop(group.group_id, None)
            if name in group.subscribers and group.group_id in self.groups:
                groups[group.group_id] = None
            if not groups:
                del self._subscribed[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerFold) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def apply(self, key: Any, value: Any) -> None:
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            former = self.groups.pop(key.group_id, None)
            if former is not None:
                self._index(former, former.subscribers)
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
                self._index(group, group.put_member(key.member_id, value))
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
            case ConsumerGroupRegularExpressionKey(regular_expression=text):
                stored = None
                if value is not None:
                    stored = Pattern(frozenset(value.topics), value.version, value.timestamp)
                self._index(group, group.put_pattern(text, stored))

    def apply_targets(self, group_id: str, targets: Mapping[str, Target]) -> None:
        """Like `apply` for the record of each of these targets."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.targets.update(targets)


# -- records' values


def epoch_value(epoch: int, metadata_hash: int) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)


def target_epoch_value(epoch: int, now: Millis) -> ConsumerGroupTargetAssignmentMetadataValue:
    return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now)


def pattern_value(pattern: Pattern) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(pattern.topics)), version=pattern.version, timestamp=pattern.resolved_ms
    )
