"""A member of a consumer group that speaks the classic protocol: what its record holds, and what follows from it.

Such a member joins, syncs and heartbeats as in a classic group, and the coordinator translates. Its generation is its
member epoch; its first protocol's metadata is its subscription and tells what it owns; its part of the assignment is
what it is sent in SyncGroup. Its record has all its protocols, so that the group can become a classic one again.

Source: ConsumerGroupMember.java, ConsumerGroup.java; H13 of the conformance list.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.classic.protocols import Protocols, size_of
from kohort.coordinator.consumer.assignment_records import by_topic
from kohort.coordinator.consumer.classic_fields import is_classic, protocols_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import FREE, Reconciliation, TopicPartition
from kohort.coordinator.topics import Topics
from kohort.wire.embedded import assignment_bytes
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue


def joint_protocols(
    group: ConsumerGroup, but: ConsumerGroupMemberMetadataValue | None, with_these: Protocols = ()
) -> set[str]:
    """Names that all classic members support: without the one, if it is classic, and with a new one of these protocols.
    If there is no such member, of these the ones that the new one has."""
    left_out = {name for name, _ in protocols_of(but)} if but is not None and is_classic(but) else set()
    others = group.classic_members - bool(left_out)
    new = {name for name, _ in with_these}
    if not others:
        return new
    common = {name for name, count in group.classic_support.items() if count - (name in left_out) == others}
    return common & new if new else common


def joint_bytes(group: ConsumerGroup, but: ConsumerGroupMemberMetadataValue | None, with_these: Protocols = ()) -> int:
    """Size of the same members' protocols."""
    left_out = protocols_of(but) if but is not None else ()
    return group.classic_bytes + size_of(with_these) - size_of(left_out)


def owned_in(subscription: ConsumerProtocolSubscription, topics: Topics) -> frozenset[TopicPartition]:
    """What the member says that it uses; nothing, by one that gives everything up before it joins."""
    return partitions_in(((row.topic, row.partitions) for row in subscription.owned_partitions), topics)


def partitions_in(rows: Iterable[tuple[str, tuple[int, ...]]], topics: Topics) -> frozenset[TopicPartition]:
    """By id; those of topics that do not exist are left out."""
    return frozenset(
        (topics.by_name[topic].topic_id, index)
        for topic, indexes in rows
        if topic in topics.by_name
        for index in indexes
        if 0 <= index < topics.by_name[topic].partitions
    )


def assignment_for(partitions: Iterable[TopicPartition], topics: Topics, subscription: bytes) -> bytes:
    """As the member is sent it. Partitions of topics that are gone are left out."""
    found = by_topic(partitions)
    rows = [(topics.by_id[topic_id].name, indexes) for topic_id, indexes in found if topic_id in topics.by_id]
    return assignment_bytes(rows, subscription)


def must_rejoin(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the member has to send a JoinGroup to come further (H13): there is a newer target; it has partitions to
    give up; or all that it waits for is free."""
    state = group.state_of(member_id)
    if state.member_epoch < group.assignment_epoch or state.state is Reconciliation.UNREVOKED_PARTITIONS:
        return True
    if state.state is not Reconciliation.UNRELEASED_PARTITIONS:
        return False
    awaited = group.targets.get(member_id, frozenset()) - state.assigned.keys()
    return all(group.epoch_of(partition) == FREE for partition in awaited)
