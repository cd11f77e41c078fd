"""Checks of a ConsumerGroupHeartbeat before anything changes. Each returns an error with a message, or None.

Tools print the messages and their users search for them, so they are those of Kafka 4.3 (GroupMetadataManager.java,
GroupCoordinatorService.java) wherever Kafka has the same check.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.config import Deviations
from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, size_of_names
from kohort.coordinator.consumer.reconciliation import MemberState, TopicPartition
from kohort.coordinator.member_bytes import (
    CONSUMER_GROUP_BYTES,
    INDEX_BYTES,
    MEMBER_BYTES,
    SUBSCRIBED_BYTES,
    subscription_bytes,
    text_bytes,
)
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Refusal = tuple[ErrorCode, str]

MOST_NAMES = 10_000
"""Topic names that a member subscribes to. All of them are looked at in one step."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str], deviations: Deviations
) -> Refusal | None:
    """Checks that do not depend on the group (N2-N5)."""
    wrong = _wrong_field(request, version) or _wrong_join(request, deviations)
    if wrong:
        return ErrorCode.INVALID_REQUEST, wrong
    if request.server_assignor is not None and request.server_assignor not in assignors:
        name, known = request.server_assignor[:100], ", ".join(assignors)
        return ErrorCode.UNSUPPORTED_ASSIGNOR, (
            f"ServerAssignor {name} is not supported. Supported assignors: {known}."
        )
    return None


def _wrong_field(request: ConsumerGroupHeartbeatRequest, version: int) -> str:
    if not request.member_id and (version >= 1 or request.member_epoch != 0):
        return "MemberId can't be empty."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id == "":
        return "InstanceId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if request.member_epoch < LEFT_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    if request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    names = (request.group_id, request.member_id, request.instance_id or "", request.rack_id or "")
    if any(len(name) > LONGEST_NAME for name in names):
        return f"A name of more than {LONGEST_NAME} characters."
    subscribed = len(request.subscribed_topic_names or ())
    if subscribed > MOST_NAMES:
        return f"SubscribedTopicNames has {subscribed} names, more than {MOST_NAMES}. Use SubscribedTopicRegex."
    return ""


def _wrong_join(request: ConsumerGroupHeartbeatRequest, deviations: Deviations) -> str:
    if request.member_epoch != 0:
        return ""
    if request.rebalance_timeout_ms == -1 or (request.rebalance_timeout_ms < -1 and deviations.negative_timeout):
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return ""


def check_names(group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, limit: int) -> Refusal | None:
    """81 if the subscribed names of the group would become too large for its log and memory."""
    if not request.subscribed_topic_names or request.member_epoch < 0:
        return None
    others = 0
    if group is not None:
        former = group.members.get(group.instances.get(request.instance_id or "", request.member_id))
        others = group.names_size - (size_of_names(former.subscribed_topic_names) if former is not None else 0)
    if others + size_of_names(request.subscribed_topic_names) <= limit:
        return None
    return ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group would subscribe to too many names: group.max.bytes is {limit}."


def bytes_added(group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, client_id: str) -> int:
    """What the heartbeat adds to the memory of groups: names, the member if it is new, and the group."""
    if request.member_epoch < 0:
        return 0
    former = None
    if group is not None:
        former = group.members.get(group.instances.get(request.instance_id or "", request.member_id))
    if former is not None:
        more = text_bytes(client_id) - text_bytes(former.client_id)
        for told, known in (
            (request.rack_id, former.rack_id),
            (request.subscribed_topic_regex, former.subscribed_topic_regex),
        ):
            more += text_bytes(told) - text_bytes(known) if told is not None else 0
    elif request.member_epoch > 0:
        return 0  # there is no such member
    else:
        more = MEMBER_BYTES + text_bytes(
            request.member_id, request.instance_id, request.rack_id, request.subscribed_topic_regex, client_id
        )
        if group is None or not group.members:
            more += CONSUMER_GROUP_BYTES + text_bytes(request.group_id)
    if request.subscribed_topic_names is not None:
        names = set(request.subscribed_topic_names)
        more += subscription_bytes(names) - (subscription_bytes(former.subscribed_topic_names) if former else 0)
        fresh = names - group.subscribers.keys() if group is not None else names
        more += (SUBSCRIBED_BYTES + INDEX_BYTES) * len(fresh)
    return more


def partitions_added(group: ConsumerGroup | None, request: ConsumerGroupHeartbeatRequest, topics: Topics) -> int:
    """How many partitions the topics have that the heartbeat names and that are new to the group."""
    if request.member_epoch < 0 or not request.subscribed_topic_names:
        return 0
    subscribed = group.subscribers if group is not None else {}
    names = {name for name in request.subscribed_topic_names if name not in subscribed}
    return sum([spec.partitions for spec in topics.known(names)])


def check_epoch(state: MemberState, epoch: int, owned: Collection[TopicPartition] | None) -> Refusal | None:
    """110 for an epoch that is not the member's, unless the member missed the answer with its present epoch (N7).

    Such a member sends the epoch of its last request, or a later one from an answer. If a heartbeat arrives twice,
    the copy may raise the epoch once more. Its report may name only partitions that it has or still has to give up:
    no other member owns those yet."""
    if epoch == state.member_epoch:
        return None
    if epoch > state.member_epoch:
        return _fenced("greater", epoch, state)
    known = {*state.assigned, *state.revoking}
    if epoch >= state.previous_member_epoch and (owned is None or known.issuperset(owned)):
        return None
    return _fenced("smaller", epoch, state)


def check_epoch_as_kafka(state: MemberState, epoch: int, owned: Collection[TopicPartition] | None) -> Refusal | None:
    """110 for an epoch that is not the member's, except the one before, with a report within its assignment."""
    if epoch > state.member_epoch:
        return _fenced("greater", epoch, state)
    is_previous = epoch == state.previous_member_epoch and owned is not None and state.assigned.keys() >= set(owned)
    return None if epoch == state.member_epoch or is_previous else _fenced("smaller", epoch, state)


def _fenced(how: str, epoch: int, state: MemberState) -> Refusal:
    return ErrorCode.FENCED_MEMBER_EPOCH, (
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({state.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def check_known(group: ConsumerGroup, member_id: str) -> Refusal | None:
    """25 for an unknown member. A member of the classic protocol does not send ConsumerGroupHeartbeats."""
    member = group.members.get(member_id)
    if member is not None and not is_classic(member):
        return None
    return ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."


def check_static(holder: str | None, member_id: str, instance_id: str) -> Refusal | None:
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
    if holder != member_id:
        return ErrorCode.FENCED_INSTANCE_ID, (
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder}."
        )
    return None
