"""Consumer groups in scenarios: how groups, records and answers are printed, and the topics that the shard knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.conformance.play.consumer_client import TopicNames, partitions_of
from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.consumer.assignment_records import member_state, target_partitions
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.topics import Topics, topics_of
from kohort.wire.schemas.consumer_group_describe import DescribedAssignment, DescribedConsumerGroup
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


def catalog_of(names: TopicNames, counts: Mapping[str, int]) -> Topics:
    """Make these the present topics. Returns them as the shard takes them."""
    names.put(counts)
    return topics_of(TopicSpec(*topic) for topic in names.present.values())


def describe_answer(answer: ConsumerGroupHeartbeatResponse, topics: TopicNames) -> str:
    text = f" id={answer.member_id} epoch={answer.member_epoch} interval={answer.heartbeat_interval_ms / 1000:g}s"
    if answer.assignment is None:
        return f"{text} unchanged"
    return f"{text} assignment={topics.text(partitions_of(answer.assignment.topic_partitions))}"


def describe_state(state: MemberState, topics: TopicNames) -> str:
    text = f"epoch={state.member_epoch} previous={state.previous_member_epoch} {state.state.name.split('_')[0]}"
    text += f" {topics.with_epochs(state.assigned)}"
    return text + (f" revoking {topics.with_epochs(state.revoking)}" if state.revoking else "")


def describe_consumer_record(key: Any, value: Any, topics: TopicNames) -> str | None:
    """None for a record of another kind."""
    match key:
        case ConsumerGroupMetadataKey():
            return f"consumer group {key.group_id} {f'epoch={value.epoch}' if value is not None else 'deleted'}"
        case ConsumerGroupTargetAssignmentMetadataKey():
            return f"target {key.group_id} {f'epoch={value.assignment_epoch}' if value is not None else 'deleted'}"
        case ConsumerGroupMemberMetadataKey():
            text = f"member {key.group_id} {key.member_id}"
            if value is None:
                return f"{text} deleted"
            text += f" topics={'+'.join(value.subscribed_topic_names) or 'none'}"
            text += f" rebalance={value.rebalance_timeout_ms / 1000:g}s"
            others = {
                "regex": value.subscribed_topic_regex or None,
                "instance": value.instance_id,
                "assignor": value.server_assignor,
                "rack": value.rack_id,
            }
            return text + "".join(f" {name}={told}" for name, told in others.items() if told is not None)
        case ConsumerGroupRegularExpressionKey():
            what = f"matches {'+'.join(value.topics) or 'none'}" if value is not None else "deleted"
            return f"regex {key.group_id} {key.regular_expression} {what}"
        case ConsumerGroupTargetAssignmentMemberKey():
            what = topics.text(target_partitions(value)) if value is not None else "deleted"
            return f"target {key.group_id} {key.member_id} {what}"
        case ConsumerGroupCurrentMemberAssignmentKey():
            what = describe_state(member_state(value), topics) if value is not None else "deleted"
            return f"current {key.group_id} {key.member_id} {what}"
    return None


def describe_consumer_group(group: ConsumerGroup, held: Iterable[str], topics: TopicNames) -> list[str]:
    """The group epoch, the target's epoch, and the members; a target only if it differs from the assignment."""
    lines = [f"{group.group_id} {state_name(group)}({group.epoch}) target={group.assignment_epoch}"]
    for member_id in sorted(group.members):
        state, target = group.state_of(member_id), group.targets.get(member_id, frozenset())
        text = f"    {member_id} {state.member_epoch} {state.state.name.split('_')[0]} {topics.text(state.assigned)}"
        if state.state is Reconciliation.UNREVOKED_PARTITIONS:
            text += f" revoking {topics.text(state.revoking)}"
        if target != state.assigned.keys():
            text += f" target {topics.text(target)}"
        lines.append(text + (" held" if member_id in held else ""))
    return lines


def describe_description(found: DescribedConsumerGroup, topics: TopicNames) -> list[str]:
    """The ConsumerGroupDescribe response for an existing group."""

    def text(assignment: DescribedAssignment) -> str:
        return topics.text(partitions_of(assignment.topic_partitions))

    lines = [f"    epoch={found.group_epoch} target={found.assignment_epoch} assignor={found.assignor_name!r}"]
    for member in found.members:
        lines.append(
            f"    {member.member_id} instance={member.instance_id} rack={member.rack_id} epoch={member.member_epoch}"
            f" client={member.client_id} host={member.client_host} type={member.member_type}"
            f" topics={'+'.join(member.subscribed_topic_names)}"
            + (f" regex={member.subscribed_topic_regex}" if member.subscribed_topic_regex else "")
            + f" has {text(member.assignment)}"
            f" target {text(member.target_assignment)}"
        )
    return lines
