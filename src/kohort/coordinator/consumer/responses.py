"""Responses about consumer groups, built from their state."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from kohort.coordinator.consumer.assignment_records import by_topic
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import TopicPartition
from kohort.coordinator.described import MEMBER_BYTES, PART_BYTES, PARTITION_BYTES
from kohort.coordinator.events import MemberStory
from kohort.coordinator.topics import Topics
from kohort.wire.codec import encode
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Member types in ConsumerGroupDescribe, by the protocol that the member speaks."""


def heartbeat_answer(
    member_id: str, epoch: int, interval_ms: int, assigned: Iterable[TopicPartition] | None = None
) -> ConsumerGroupHeartbeatResponse:
    """`assigned` None: the assignment in an earlier answer still holds."""
    assignment = None
    if assigned is not None:
        assignment = HeartbeatAssignment(
            topic_partitions=tuple(
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(assigned)
            )
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
    )


def state_name(group: ConsumerGroup) -> str:
    """As Kafka prints it."""
    if not group.members:
        return "Empty"
    if group.epoch > group.assignment_epoch:
        return "Assigning"
    return "Stable" if all(group.is_reconciled(member_id) for member_id in group.members) else "Reconciling"


def undescribed_consumer_group(error: ErrorCode, group_id: str, message: str | None = None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def described(group: ConsumerGroup, topics: Topics, assignor: str) -> Generator[int, None, DescribedConsumerGroup]:
    """In steps; each yields the memory of its part. It tells of the moment of the first step."""
    group_state, epoch, assignment_epoch = state_name(group), group.epoch, group.assignment_epoch
    seen = [
        (member_id, member, group.state_of(member_id), group.targets.get(member_id, ()))
        for member_id, member in sorted(group.members.items())
    ]
    members: list[DescribedConsumerGroupMember] = []
    size = 0
    for member_id, member, state, target in seen:
        owned = {**state.assigned, **state.revoking}  # it still owns the partitions that it has to give up
        members.append(
            DescribedConsumerGroupMember(
                member_id=member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=state.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=member.subscribed_topic_names,
                subscribed_topic_regex=member.subscribed_topic_regex or "",
                assignment=_described_assignment(owned, topics),
                target_assignment=_described_assignment(target, topics),
                member_type=CLASSIC_MEMBER if is_classic(member) else CONSUMER_MEMBER,
            )
        )
        size += MEMBER_BYTES + PARTITION_BYTES * (len(owned) + len(target))
        if size >= PART_BYTES:
            yield size
            size = 0
    yield size
    return DescribedConsumerGroup(
        error_code=0,
        group_id=group.group_id,
        group_state=group_state,
        group_epoch=epoch,
        assignment_epoch=assignment_epoch,
        assignor_name=assignor,
        members=tuple(members),
    )


def _described_assignment(partitions: Iterable[TopicPartition], topics: Topics) -> DescribedAssignment:
    """Partitions of deleted topics are left out, because they have no name."""
    return DescribedAssignment(
        topic_partitions=tuple(
            DescribedTopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=indexes)
            for topic_id, indexes in by_topic(partitions)
            if topic_id in topics.by_id
        )
    )


Told = dict[str, tuple[Mapping[TopicPartition, int], bytes]]
"""The journal's last note of each member: its partitions, and their encoded form."""


def stories_of(group: ConsumerGroup, topics: Topics, told: Told) -> tuple[tuple[MemberStory, ...], Told]:
    """All members for the journal, with their partitions as an encoded consumer assignment; and the new `told`.

    Encoding takes the time, and most members of a large group have the same partitions as last time."""
    stories, tells = [], {}
    for member_id, member in sorted(group.members.items()):
        assigned = group.state_of(member_id).assigned
        known = told.get(member_id)
        if known is None or known[0].keys() != assigned.keys():
            known = assigned, _encoded(assigned, topics)
        tells[member_id] = known
        stories.append(
            MemberStory(member_id, member.instance_id, member.client_id, member.client_host, assignment=known[1])
        )
    return tuple(stories), tells


def _encoded(partitions: Iterable[TopicPartition], topics: Topics) -> bytes:
    rows = tuple(
        ConsumerProtocolAssignmentResponseTopicPartition(topic=topics.by_id[topic_id].name, partitions=indexes)
        for topic_id, indexes in by_topic(partitions)
        if topic_id in topics.by_id
    )
    return b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=rows), 0)
