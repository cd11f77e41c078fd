"""The part of a large group's target that is made outside of the shard, and what it is made from.

A shard takes a `Snapshot` in a step: it copies mappings, whose values are immutable, and looks at no member. The rest
is done elsewhere: the assignor's input (`spec`), and with the assignor's result the target of each member and the
records of those that change (`prepared`). The shard takes these as they are (target.py), so that a target of thousands
of members is a short step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from kohort.coordinator.assignors.spec import Assignment, GroupSpec, MemberSpec, TopicId, TopicSpec
from kohort.coordinator.consumer.assignment_records import by_topic, target_value
from kohort.coordinator.consumer.group import ConsumerGroup, Target
from kohort.coordinator.consumer.reconciliation import MemberState
from kohort.coordinator.events import TargetRecords
from kohort.coordinator.records import target_record
from kohort.coordinator.topics import Topics
from kohort.wire.records import NewRecord, encode_record
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue


class PreparedTarget(msgspec.Struct, frozen=True):
    """The target that an assignor's result gives."""

    targets: Mapping[str, Target]
    """Of each member of the snapshot: the object that the snapshot has, if the target is the same."""
    changes: TargetRecords
    records: Mapping[str, NewRecord]
    """Those of `changes`, by member."""

    def changes_of(self, members: Container[str]) -> TargetRecords:
        """The changes without those of members that have gone meanwhile."""
        kept = {member_id: record for member_id, record in self.records.items() if member_id in members}
        if len(kept) == len(self.records):
            return self.changes
        targets = {member_id: self.targets[member_id] for member_id in kept}
        return TargetRecords(self.changes.group, targets, _encoded(kept.values()))


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A group when its target is asked for."""

    group_id: str
    members: Mapping[str, ConsumerGroupMemberMetadataValue]
    patterns: Mapping[str, frozenset[str]]
    """The topics that match the members' patterns."""
    targets: Mapping[str, Target]
    current: Mapping[str, MemberState]
    topics: Mapping[TopicId, TopicSpec]
    """The topics that the members subscribe to, in the order of their names."""

    def spec(self) -> GroupSpec:
        """A member owns the partitions of its target, and those of its present partitions that are in no target,
        because their next owner is gone."""
        by_name = {topic.name: topic.topic_id for topic in self.topics.values()}
        members = {}
        targeted = {partition for member_id in self.members for partition in self.targets.get(member_id, ())}
        ids: dict[frozenset[str], tuple[bytes, ...]] = {}
        """The key is the subscribed names, because thousands of members may subscribe to the same topics."""
        for member_id, member in sorted(self.members.items()):
            names = self._names(member)
            if names not in ids:
                ids[names] = tuple(sorted(by_name[name] for name in names if name in by_name))
            owned = self.targets.get(member_id, frozenset())
            if (state := self.current.get(member_id)) is not None:
                owned |= frozenset((*state.assigned, *state.revoking)) - targeted
            members[member_id] = MemberSpec(
                member_id, member.instance_id, member.rack_id, ids[names], dict(by_topic(owned))
            )
        wanted = frozenset[str]().union(*ids)
        return GroupSpec(members, {key: topic for key, topic in self.topics.items() if topic.name in wanted})

    def _names(self, member: ConsumerGroupMemberMetadataValue) -> frozenset[str]:
        matched = self.patterns.get(member.subscribed_topic_regex or "")
        names = member.subscribed_topic_names
        return frozenset(names) if matched is None else matched.union(names)

    def prepared(self, result: Mapping[str, Assignment]) -> PreparedTarget:
        targets: dict[str, Target] = {}
        changed: dict[str, Target] = {}
        records: dict[str, NewRecord] = {}
        for member_id, assignment in result.items():
            target = flat(assignment)
            former = self.targets.get(member_id)
            if target == former:
                targets[member_id] = former
                continue
            record = target_record(self.group_id, member_id, target_value(target))
            records[member_id] = NewRecord(record.key, record.value, 0)
            targets[member_id] = changed[member_id] = target
        return PreparedTarget(targets, TargetRecords(self.group_id, changed, _encoded(records.values())), records)


def snapshot(group: ConsumerGroup, topics: Topics) -> Snapshot:
    return Snapshot(
        group.group_id,
        dict(group.members),
        {text: pattern.topics for text, pattern in group.patterns.items()},
        dict(group.targets),
        dict(group.current),
        {topic.topic_id: topic for topic in topics.known(group.subscribed_topics)},
    )


def _encoded(records: Iterable[NewRecord]) -> bytes:
    return b"".join(encode_record(record, 0, delta) for delta, record in enumerate(records))


def flat(assignment: Assignment) -> Target:
    return frozenset((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)
