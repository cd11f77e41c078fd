"""The state of a consumer group's member and its target, to and from their records.

Topics and partitions are written in order, so that equal assignments have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)


def current_value(member: MemberState) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )


def member_state(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    """A member in an unknown state gives everything up and starts again. Kafka fences such a member."""
    assigned = _epochs(value.assigned_partitions, value.member_epoch)
    revoking = _epochs(value.partitions_pending_revocation, value.member_epoch)
    if value.state in tuple(Reconciliation):
        state = Reconciliation(value.state)
    else:
        state, assigned, revoking = Reconciliation.UNREVOKED_PARTITIONS, {}, {**assigned, **revoking}
    return MemberState(value.member_epoch, value.previous_member_epoch, state, assigned, revoking)


def target_value(partitions: Iterable[TopicPartition]) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            TargetTopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in by_topic(partitions)
        )
    )


def target_partitions(value: ConsumerGroupTargetAssignmentMemberValue) -> frozenset[TopicPartition]:
    return frozenset((topic.topic_id, number) for topic in value.topic_partitions for number in topic.partitions)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[bytes, tuple[int, ...]]]:
    """Topic ids with their partition numbers, all in order: the form of records, requests and responses."""
    topics: dict[bytes, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [(topic, tuple(numbers)) for topic, numbers in topics.items()]


def _with_epochs(partitions: Mapping[TopicPartition, int]) -> tuple[CurrentTopicPartitions, ...]:
    return tuple(
        CurrentTopicPartitions(
            topic_id=topic,
            partitions=numbers,
            assignment_epochs=tuple(partitions[topic, number] for number in numbers),
        )
        for topic, numbers in by_topic(partitions)
    )


def _epochs(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> dict[TopicPartition, int]:
    """Records from before KIP-1251 have no epochs: then the member's own epoch counts, as the only one known then."""
    result = {}
    for topic in topics:
        epochs = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = (max(member_epoch, 0),) * len(topic.partitions)
        for number, epoch in zip(topic.partitions, epochs, strict=True):
            result[topic.topic_id, number] = epoch
    return result
