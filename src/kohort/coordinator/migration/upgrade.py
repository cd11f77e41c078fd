"""The plan of an upgrade: the consumer group that replaces a classic group with members. Nothing here changes
anything.

Members keep what they have, under the number that they know: the generation becomes the epoch. A member has the
partitions of its last assignment and those that its JoinGroup claimed: a cooperative member uses partitions that its
leader has taken from it until it learns so. Members without a generation have nothing to keep; they join again.

Source: GroupMetadataManager.convertToConsumerGroup, ConsumerGroup.fromClassicGroup; row N18 of the conformance list.
Kafka takes librdkafka's sticky assignors for custom ones, and does not count what members say they own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.consumer.assignment_records import current_value, target_value
from kohort.coordinator.consumer.classic_fields import classic_value
from kohort.coordinator.consumer.group import epoch_value, target_epoch_value
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition
from kohort.coordinator.events import Record
from kohort.coordinator.migration.classic_side import owned_in, partitions_in
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.topics import Topics, hash_of
from kohort.wire.embedded import CONSUMER_PROTOCOL, assignment_of, subscription_of
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

USUAL_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors of the clients. None reads the user data in its assignments: librdkafka's sticky assignors only echo
what a member sent. The user data of any other assignor may have a meaning, which an upgrade would lose."""


class NoUpgrade(msgspec.Struct, frozen=True):
    """Why a group stays a classic one."""

    why: str
    """In Kafka's words."""
    advice: str = ""
    """The setting or the member at fault, a sentence of kohort's own."""


class UpgradePlan(msgspec.Struct, frozen=True):
    """The consumer group that replaces a classic group."""

    group_id: str
    generation: int
    """The last generation of the classic group: the members' epoch."""
    epoch: int
    """The group epoch: higher if a generation was announced and lost (docs/decisions/0002). Then members' epochs are
    lower."""
    members: Mapping[str, ConsumerGroupMemberMetadataValue]
    owned: Mapping[str, frozenset[TopicPartition]]
    """The partitions of each member."""
    instances: Mapping[str, str]
    awaiting_sync: frozenset[str]
    is_settled: bool
    """The group is at rest, and each partition of its topics belongs to one subscriber."""
    rejoin: bool
    """The members must join again."""
    topics_hash: int

    def records(self) -> Iterator[Record]:
        for member_id, value in self.members.items():
            yield member_record(self.group_id, member_id, value)
        yield consumer_group_record(self.group_id, epoch_value(self.epoch, self.topics_hash))
        for member_id, owned in self.owned.items():
            yield target_record(self.group_id, member_id, target_value(owned))
        yield target_epoch_record(self.group_id, target_epoch_value(self.epoch, 0))
        for member_id, owned in self.owned.items():
            assigned = dict.fromkeys(owned, self.generation)
            state = MemberState(self.generation, self.generation, Reconciliation.STABLE, assigned, {})
            yield current_record(self.group_id, member_id, current_value(state))


def established(group: Group) -> Iterator[Member]:
    """Members that have been through a generation."""
    return (member for member in group.members.values() if not member.is_new)


def plan_upgrade(group: Group, topics: Topics, *, epoch: int, joiner: str | None) -> UpgradePlan | NoUpgrade:
    """The plan, or why the group stays a classic one. `epoch`: the highest epoch or generation that it ever had;
    `joiner`: the instance id of the member that upgrades it."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        why = "the group does not use the consumer embedded protocol."
        return NoUpgrade(why, f"Its protocol type is {group.protocol_type}.")
    members: dict[str, ConsumerGroupMemberMetadataValue] = {}
    claims: list[tuple[int, str, frozenset[TopicPartition]]] = []
    owners: dict[TopicPartition, str] = {}
    is_settled = group.phase is Phase.STABLE
    for member in established(group):
        subscription = _subscription(group, member)
        assigned = _assigned(group, member, topics)
        if subscription is None or assigned is None:
            sender = member.member_id[:100]
            advice = f"Member {sender} sent what cannot be read."
            return NoUpgrade("the embedded consumer protocol is malformed.", advice)
        if isinstance(assigned, NoUpgrade):
            return assigned
        members[member.member_id] = classic_value(
            member.instance_id,
            member.client,
            subscription,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        claims.append((subscription.generation_id, member.member_id, owned_in(subscription, topics)))
        for partition in sorted(assigned):
            is_settled &= owners.setdefault(partition, member.member_id) == member.member_id
    for _, member_id, claimed in sorted(claims, key=lambda claim: -claim[0]):
        for partition in sorted(claimed):
            if partition not in owners:
                owners[partition] = member_id
                is_settled = False
    owned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for partition, owner in owners.items():
        owned[owner].add(partition)
    instances = {value.instance_id: m for m, value in members.items() if value.instance_id is not None}
    subscribed = {name for value in members.values() for name in value.subscribed_topic_names}
    is_settled &= _is_whole(members, subscribed, owners, topics)
    return UpgradePlan(
        group_id=group.group_id,
        generation=group.generation_id,
        epoch=max(epoch, group.generation_id),
        members=members,
        owned={member_id: frozenset(partitions) for member_id, partitions in owned.items()},
        instances=instances,
        awaiting_sync=frozenset(group.awaiting_sync),
        is_settled=is_settled,
        rejoin=not (joiner is not None and joiner in instances and is_settled),
        topics_hash=hash_of(topics, subscribed),
    )


def _subscription(group: Group, member: Member) -> ConsumerProtocolSubscription | None:
    """The subscription in the group's protocol, or in the first protocol of a member that no longer offers it."""
    names = member.protocol_names
    return subscription_of(member.metadata_of(group.protocol if group.protocol in names else names[0]))


def _assigned(group: Group, member: Member, topics: Topics) -> frozenset[TopicPartition] | NoUpgrade | None:
    if not member.assignment:
        return frozenset()
    assignment = assignment_of(member.assignment)
    if assignment is None:
        return None
    if assignment.user_data and group.protocol not in USUAL_ASSIGNORS:
        return NoUpgrade(
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade."
        )
    return partitions_in(((row.topic, row.partitions) for row in assignment.assigned_partitions), topics)


def _is_whole(
    members: Mapping[str, ConsumerGroupMemberMetadataValue],
    subscribed: set[str],
    owners: Mapping[TopicPartition, str],
    topics: Topics,
) -> bool:
    """True if each partition of the subscribed topics belongs to a subscriber of its topic, and no other is owned."""
    specs = [topics.by_name[name] for name in subscribed if name in topics.by_name]
    wanted = {(spec.topic_id, index) for spec in specs for index in range(spec.partitions)}
    return wanted == owners.keys() and all(
        topics.by_id[partition[0]].name in members[owner].subscribed_topic_names for partition, owner in owners.items()
    )
