"""Checks of a ConsumerGroupHeartbeat before anything changes. Each returns an error with a message, or None."""

from __future__ import annotations

from collections.abc import Collection, Container

from kohort.coordinator.classic.checks import LONGEST_NAME
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, size_of_names
from kohort.coordinator.consumer.reconciliation import MemberState, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Refusal = tuple[ErrorCode, str]


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Container[str]) -> Refusal | None:
    """Checks that do not depend on the group (N2-N5)."""
    wrong = _wrong_field(request, version) or _wrong_join(request)
    if wrong:
        return ErrorCode.INVALID_REQUEST, wrong
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no assignor {request.server_assignor[:100]!r} here."
    return None


def _wrong_field(request: ConsumerGroupHeartbeatRequest, version: int) -> str:
    if not request.group_id:
        return "The group id is empty."
    if request.instance_id == "" or request.rack_id == "":
        return "An instance id or rack id that is given must not be empty."
    if not request.member_id and (version >= 1 or request.member_epoch != 0):
        return "The member id is empty."
    if request.member_epoch < LEFT_FOR_A_WHILE:
        return f"There is no member epoch {request.member_epoch}."
    if request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "Only a static member leaves for a while."
    names = (request.group_id, request.member_id, request.instance_id or "", request.rack_id or "")
    if any(len(name) > LONGEST_NAME for name in names):
        return f"A name of more than {LONGEST_NAME} characters."
    return ""


def _wrong_join(request: ConsumerGroupHeartbeatRequest) -> str:
    if request.member_epoch != 0:
        return ""
    if request.rebalance_timeout_ms < 0:
        return "A member that joins sends its rebalance timeout."
    if request.topic_partitions is None or request.topic_partitions:
        return "A member that joins owns no partitions, and says so."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "A member that joins sends its subscription."
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


def check_epoch(state: MemberState, epoch: int, owned: Collection[TopicPartition] | None) -> Refusal | None:
    """110 for an epoch that is not the member's, unless the member missed the answer with its present epoch (N7).

    Such a member sends the epoch of its last request, or a later one from an answer. If a heartbeat arrives twice,
    the copy may raise the epoch once more. Its report may name only partitions that it has or still has to give up:
    no other member owns those yet."""
    if epoch == state.member_epoch:
        return None
    if epoch > state.member_epoch:
        return ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {state.member_epoch}, not yet {epoch}."
    known = {*state.assigned, *state.revoking}
    if epoch >= state.previous_member_epoch and (owned is None or known.issuperset(owned)):
        return None
    return ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {state.member_epoch}, no longer {epoch}."


def check_known(group: ConsumerGroup, member_id: str) -> Refusal | None:
    """25 for an unknown member. A member of the classic protocol does not send ConsumerGroupHeartbeats."""
    member = group.members.get(member_id)
    if member is not None and not is_classic(member):
        return None
    return ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group."


def check_static(holder: str | None, member_id: str, instance_id: str) -> Refusal | None:
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, f"Instance {instance_id} is not in the group."
    if holder != member_id:
        return ErrorCode.FENCED_INSTANCE_ID, f"Instance {instance_id} is member {holder} now."
    return None
