"""Fencing by ownership: what a member of a consumer group may do with a partition (docs/wire-extensions.md).

A member owns what it is assigned, and what it is to give up until it acknowledges that it has. It says who it is and
at which epoch; an epoch that is over is good for what the member has had ever since (KIP-1251).

     25 UNKNOWN_MEMBER_ID     it is not in the group: it left, or its session ended
    110 FENCED_MEMBER_EPOCH   it does not own the partition
    113 STALE_MEMBER_EPOCH    it owns the partition, but not since that epoch: there is an answer it has not seen
                              (22 ILLEGAL_GENERATION for a commit of a member that speaks the classic protocol)

110 says "not yours", 113 "ask again with your present epoch", because that is what clients make of them: 110 is told at
once and never repeated, and nobody leaves the group for it. What 113, 25 and 22 would do stands in the document.

A fence is made once a request and asked once a partition. It is of the moment: a fetch that waits needs a new one.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

Fence = Callable[[TopicPartition], ErrorCode]
"""What a partition is refused with; NONE if it is not."""


def every(error: ErrorCode) -> Fence:
    """The same for all partitions."""
    return lambda partition: error


def commit_fence(group: ConsumerGroup, member_id: str, epoch: int, *, by_ownership: bool) -> Fence:
    """For a commit that is right for the group as a whole. Kafka looks at partitions only where an epoch is over."""
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
    """For a fetch that says who reads. In what is no consumer group, or none any more, nobody owns anything."""
    if group is None:
        return every(ErrorCode.GROUP_ID_NOT_FOUND)
    if member_id not in group.members:
        return every(ErrorCode.UNKNOWN_MEMBER_ID)
    state = group.state_of(member_id)
    if state.member_epoch < 0:
        return every(ErrorCode.FENCED_MEMBER_EPOCH)  # a static member that has left for a while
    return _by_ownership(state, epoch, ErrorCode.STALE_MEMBER_EPOCH)


def stale_error(member: ConsumerGroupMemberMetadataValue) -> ErrorCode:
    """What an epoch that is not the member's is told: a member that speaks the classic protocol knows generations."""
    return ErrorCode.ILLEGAL_GENERATION if is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH


def _by_ownership(state: MemberState, epoch: int, stale: ErrorCode) -> Fence:
    def fence(partition: TopicPartition) -> ErrorCode:
        if partition not in state.assigned and partition not in state.revoking:
            return ErrorCode.FENCED_MEMBER_EPOCH
        return ErrorCode.NONE if _had_since(state, epoch, partition) else stale

    return fence


def _had_since(state: MemberState, epoch: int, partition: TopicPartition) -> bool:
    """Whether the member has owned the partition from that epoch until now."""
    since = state.assigned.get(partition, state.revoking.get(partition))
    return since is not None and since <= epoch <= state.member_epoch
