"""Fencing by ownership: the rights of a consumer group's member to a partition (docs/wire-extensions.md).

A member owns the partitions that it is assigned, and those that it has to give up until it acknowledges. A request says
which member sends it and at which epoch; an older epoch is valid for the partitions that the member has owned since
then (KIP-1251).

     25 UNKNOWN_MEMBER_ID     the member is not in the group: it left, or its session ended
    110 FENCED_MEMBER_EPOCH   the member does not own the partition
    113 STALE_MEMBER_EPOCH    the member owns the partition, but not since that epoch: it has missed an answer
                              (22 ILLEGAL_GENERATION for a commit of a member that speaks the classic protocol)

110 means "not yours", 113 "retry with your present epoch", because clients react so: 110 reaches the application and is
not retried, and no member leaves the group for it. The document says what 113, 25 and 22 would do.

A fence is made for each request and asked for each partition. It is valid at that moment only: a waiting fetch needs
a new fence.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

Fence = Callable[[TopicPartition], ErrorCode]
"""The error for a partition; NONE if it is not refused."""


def every(error: ErrorCode) -> Fence:
    """The same error for all partitions."""
    return lambda partition: error


def commit_fence(group: ConsumerGroup, member_id: str, epoch: int, *, by_ownership: bool) -> Fence:
    """The fence of a commit that the group accepts as a whole. Kafka checks partitions only if the epoch is an older
    one."""
    if not group.members:
        return every(ErrorCode.NONE)
    state = group.state_of(member_id)
    stale = stale_error(group.members[member_id])
    if by_ownership:
        return _by_ownership(state, epoch, stale)
    if epoch == state.member_epoch:
        return every(ErrorCode.NONE)
    return lambda partition: ErrorCode.NONE if _had_since(state, epoch, partition) else stale


def fetch_fence(group: ConsumerGroup | None, member_id: str, epoch: int) -> Fence:
    """The fence of a fetch that names its member. Without a consumer group no member owns anything."""
    if group is None:
        return every(ErrorCode.GROUP_ID_NOT_FOUND)
    if member_id not in group.members:
        return every(ErrorCode.UNKNOWN_MEMBER_ID)
    state = group.state_of(member_id)
    if state.member_epoch < 0:
        return every(ErrorCode.FENCED_MEMBER_EPOCH)  # a static member that left temporarily
    return _by_ownership(state, epoch, ErrorCode.STALE_MEMBER_EPOCH)


def stale_error(member: ConsumerGroupMemberMetadataValue) -> ErrorCode:
    """The error for another epoch than the member's: members with the classic protocol know generations."""
    return ErrorCode.ILLEGAL_GENERATION if is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH


def _by_ownership(state: MemberState, epoch: int, stale: ErrorCode) -> Fence:
    def fence(partition: TopicPartition) -> ErrorCode:
        if partition not in state.assigned and partition not in state.revoking:
            return ErrorCode.FENCED_MEMBER_EPOCH
        return ErrorCode.NONE if _had_since(state, epoch, partition) else stale

    return fence


def _had_since(state: MemberState, epoch: int, partition: TopicPartition) -> bool:
    """True if the member has owned the partition since that epoch."""
    since = state.assigned.get(partition, state.revoking.get(partition))
    return since is not None and since <= epoch <= state.member_epoch
