"""The state of a consumer group's members that speak the classic protocol.

Such a member joins, syncs and heartbeats as in a classic group, and the coordinator translates. Its generation is its
member epoch. The metadata of its first protocol holds its subscription and the partitions that it owns. SyncGroup sends
it its part of the assignment.

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
    """Protocols that all classic members support: without the member `but`, and with a new member of the protocols
    `with_these`. Without other classic members, the protocols of the new one."""
    left_out = {name for name, _ in protocols_of(but)} if but is not None and is_classic(but) else set()
    others = group.classic_members - bool(left_out)
    new = {name for name, _ in with_these}
    if not others:
        return new
    common = {name for name, count in group.classic_support.items() if count - (name in left_out) == others}
    return common & new if new else common


def joint_bytes(group: ConsumerGroup, but: ConsumerGroupMemberMetadataValue | None, with_these: Protocols = ()) -> int:
    """Size of the protocols of the same members."""
    left_out = protocols_of(but) if but is not None else ()
    return group.classic_bytes + size_of(with_these) - size_of(left_out)


def owned_in(subscription: ConsumerProtocolSubscription, topics: Topics) -> frozenset[TopicPartition]:
    """The partitions that the member reports as its own. An eager member gives everything up before it joins, and
    says nothing."""
    return partitions_in(((row.topic, row.partitions) for row in subscription.owned_partitions), topics)


def partitions_in(rows: Iterable[tuple[str, tuple[int, ...]]], topics: Topics) -> frozenset[TopicPartition]:
    """The partitions by topic id, without those of topics that do not exist."""
    return frozenset(
        (topics.by_name[topic].topic_id, index)
        for topic, indexes in rows
        if topic in topics.by_name
        for index in indexes
        if 0 <= index < topics.by_name[topic].partitions
    )


def assignment_for(partitions: Iterable[TopicPartition], topics: Topics, subscription: bytes) -> bytes:
    """The bytes for SyncGroup, without partitions of topics that are gone."""
    found = by_topic(partitions)
    rows = [(topics.by_id[topic_id].name, indexes) for topic_id, indexes in found if topic_id in topics.by_id]
    return assignment_bytes(rows, subscription)


def must_rejoin(group: ConsumerGroup, member_id: str) -> bool:
    """True if the member gets no further without a JoinGroup (H13): there is a newer target, it has partitions to give
    up, or all partitions that it waits for are free."""
    state = group.state_of(member_id)
    if state.member_epoch < group.assignment_epoch or state.state is Reconciliation.UNREVOKED_PARTITIONS:
        return True
    if state.state is not Reconciliation.UNRELEASED_PARTITIONS:
        return False
    awaited = group.targets.get(member_id, frozenset()) - state.assigned.keys()
    return all(group.epoch_of(partition) == FREE for partition in awaited)
