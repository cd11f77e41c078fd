"""The durable state of consumer groups: an independent fold of their records, and what must hold after each record.

| promise | record |
| --- | --- |
| epochs only rise, even over the deletion of the group | group |
| an epoch has one target | target epoch |
| a target belongs to a member; a partition is in one target | target |
| a partition has one owner, and never two at the same epoch | assignment |
| a member gets partitions of its target, at the target's epoch, and keeps this epoch with the partition | assignment |
| a member's epoch only rises, and is never ahead of the target | assignment |

The checks run record by record, so a partition has one owner between any two of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.simulator.plan import MIXED
from kohort.simulator.world.world import Violation
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    CurrentTopicPartitions,
)

Partition = tuple[bytes, int]
AWAY = -2
"""The epoch of an absent static member."""
MUST_GIVE_UP = 1
"""The state of a member that must revoke partitions."""


@dataclass(frozen=True, slots=True)
class Has:
    """The assignment of a member."""

    epoch: int
    previous: int
    state: int
    assigned: dict[Partition, int]
    revoking: dict[Partition, int]

    @property
    def all(self) -> dict[Partition, int]:
        return {**self.assigned, **self.revoking}


@dataclass(slots=True)
class Durable:
    """A group, as folded from its records."""

    name: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    targets: dict[str, frozenset[Partition]] = field(default_factory=dict)
    has: dict[str, Has] = field(default_factory=dict)
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)
    """Regular expressions, and the topics that they match."""

    def broken(self, check: str, text: str) -> Violation:
        return Violation.of(self.name, check, text)

    def copy(self) -> Durable:
        return Durable(
            self.name,
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            dict(self.members),
            dict(self.targets),
            dict(self.has),
            dict(self.patterns),
        )

    def holder(self, instance: str) -> str | None:
        return next((m for m, value in self.members.items() if value.instance_id == instance), None)

    @property
    def topics(self) -> set[str]:
        named = {name for member in self.members.values() for name in member.subscribed_topic_names}
        return named.union(*self.patterns.values())

    def difference(self, other: ConsumerGroup) -> str:
        """The difference to the coordinator's state, in words."""
        theirs = other.epoch, other.metadata_hash, other.assignment_epoch
        if (self.epoch, self.metadata_hash, self.target_epoch) != theirs:
            return f"epochs {self.epoch}, {self.target_epoch} and {other.epoch}, {other.assignment_epoch}"
        if self.members != other.members:
            return f"members {self.members} and {other.members}"
        if self.targets != other.targets:
            return f"targets {self.targets} and {other.targets}"
        matched = {text: pattern.topics for text, pattern in other.patterns.items()}
        if self.patterns != matched:
            return f"patterns {self.patterns} and {matched}"
        for member_id in sorted({*self.has, *other.current}):
            mine, state = self.has.get(member_id), other.current.get(member_id)
            if mine is None or state is None or mine != _as_has(state):
                return f"{member_id} has {mine} and {state}"
        return ""


class ConsumerLedger:
    """For the whole run: promises that hold over crashes, moves and deletions."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        """The highest epoch of all groups of this name."""
        self._targets_made: set[tuple[str, int]] = set()
        self._given: dict[tuple[str, Partition, int], str] = {}
        """Group, partition and epoch to the owner's instance or member id."""

    def apply(self, groups: dict[str, Durable], taken: int, key: Any, value: Any) -> None:
        """`taken`: the highest generation or epoch that a former group of this name had."""
        name = key.group_id
        group = groups.get(name)
        if group is None:
            if value is None:
                return
            group = groups[name] = Durable(name)
            self._highest[name] = max(self._highest.get(name, 0), taken)
        match key:
            case ConsumerGroupMetadataKey():
                self._group(groups, group, value)
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                _put(group.members, member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self._target_epoch(group, value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                self._target(group, member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                self._has(group, member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=text):
                self._pattern(group, text, value)

    def _group(self, groups: dict[str, Durable], group: Durable, value: Any) -> None:
        name = group.name
        if value is None:
            if group.members or group.has or group.targets or group.patterns:
                raise group.broken("a live group is not deleted", f"has {sorted(group.members)}")
            del groups[name]
            return
        highest = self._highest.get(name, 0)
        if value.epoch < highest:
            raise group.broken("epochs only rise", f"{highest} is followed by {value.epoch}")
        self._highest[name] = value.epoch
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _target_epoch(self, group: Durable, value: Any) -> None:
        name = group.name
        if value is None:
            group.target_epoch = 0
            return
        epoch = value.assignment_epoch
        is_former = name == MIXED and group.target_epoch == 0  # at the generation of the classic group
        if (name, epoch) in self._targets_made and not is_former:
            raise group.broken("an epoch has one target", f"{epoch} gets a second one")
        self._targets_made.add((name, epoch))
        if not group.target_epoch <= epoch <= group.epoch:
            raise group.broken(
                "a target is of the group's epoch", f"{epoch}, after {group.target_epoch}, at {group.epoch}"
            )
        group.target_epoch = epoch
        given = [partition for target in group.targets.values() for partition in target]
        if len(given) != len(set(given)):
            raise group.broken("a target has a partition once", f"epoch {epoch}: {group.targets}")

    def _pattern(self, group: Durable, text: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            group.patterns.pop(text, None)
            return
        if not any(member.subscribed_topic_regex == text for member in group.members.values()):
            raise group.broken("a pattern is a member's", f"{text}")
        wrong = [name for name in value.topics if re.fullmatch(text, name) is None]
        if wrong:
            raise group.broken("a pattern matches what it is said to", f"{text} and {wrong}")
        group.patterns[text] = frozenset(value.topics)

    def _target(self, group: Durable, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            group.targets.pop(member_id, None)
            return
        if member_id not in group.members:
            raise group.broken("a target is for members", f"{member_id} is none")
        group.targets[member_id] = frozenset(
            (t.topic_id, index) for t in value.topic_partitions for index in t.partitions
        )

    def _has(self, group: Durable, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        if value is None:
            group.has.pop(member_id, None)
            return
        has = has_of(value)
        former = group.has.get(member_id)
        member = group.members.get(member_id)
        if member is None:
            raise group.broken("members own, nobody else", f"{member_id} is none")
        for other, theirs in group.has.items():
            both = [] if other == member_id else sorted(has.all.keys() & theirs.all.keys())
            if both:
                raise group.broken("one owner a partition", f"{both}: {other} and {member_id}")
        _check_epoch(group, member_id, former, has)
        self._check_given(group, member_id, member.instance_id or member_id, former, has)
        group.has[member_id] = has

    def _check_given(self, group: Durable, member_id: str, identity: str, former: Has | None, has: Has) -> None:
        target = group.targets.get(member_id, frozenset())
        before = former.all if former is not None else {}
        for partition, epoch in has.all.items():
            first = self._given.setdefault((group.name, partition, epoch), identity)
            if first != identity:
                text = f"{partition} at epoch {epoch}: {first} and {identity}"
                raise group.broken("one owner a partition and epoch", text)
            if before.get(partition) == epoch or has.epoch == 0 or (former is None and group.name == MIXED):
                continue  # it owned it before, maybe in a classic group, or it is a static member that has returned
            if partition not in target or epoch != group.target_epoch or partition in has.revoking:
                raise group.broken(
                    "a member gets what its target has, at its epoch",
                    f"{member_id} gets {partition} at {epoch}, the target of {group.target_epoch} is {sorted(target)}",
                )


def _check_epoch(group: Durable, member_id: str, former: Has | None, has: Has) -> None:
    if has.epoch > group.target_epoch:
        raise group.broken("a member is not ahead of the target", f"{member_id} at {has.epoch}, {group.target_epoch}")
    if former is not None and has.epoch < former.epoch and has.epoch not in (0, AWAY):
        raise group.broken("a member's epoch only rises", f"{member_id} from {former.epoch} to {has.epoch}")


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def has_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> Has:
    return Has(
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        _epochs(value.assigned_partitions),
        _epochs(value.partitions_pending_revocation),
    )


def _epochs(topics: Iterable[CurrentTopicPartitions]) -> dict[Partition, int]:
    return {
        (topic.topic_id, index): epoch
        for topic in topics
        for index, epoch in zip(topic.partitions, topic.assignment_epochs or (), strict=True)
    }


def _as_has(state: Any) -> Has:
    return Has(
        state.member_epoch,
        state.previous_member_epoch,
        int(state.state),
        dict(state.assigned),
        dict(state.revoking),
    )
