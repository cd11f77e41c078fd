"""Reconciliation: one step of a consumer group's member from its present assignment to its target (KIP-848).

The group's target says which partitions each member should own, and at which epoch. A member gets there by itself, a
heartbeat at a time, and no other member stops for it. `reconcile` takes the member's state, its part of the target and
the report in the heartbeat, and returns the member's next state.

    STABLE                  The member has what its epoch gives it.
                            A newer target: → any state. A topic less in its subscription: → UNREVOKED.
    UNREVOKED_PARTITIONS    The member must give partitions up and has not acknowledged it. It keeps its old
                            epoch and ignores newer targets. The rebalance timeout runs in this state only.
                            A report of owned partitions without those: → any state.
    UNRELEASED_PARTITIONS   The member has the target's epoch and all free partitions of its target. Others still own
                            the rest. It gets each partition when that is released; with the last one: → STABLE.

The order is revoke, acknowledge, release, add, for each partition by itself. A member owns `assigned`, and `revoking`
until it acknowledges. It gets only partitions without an owner, and only at the epoch of a target that gives them to
it; a target has each partition once. So two members never own a partition at the same time or at the same epoch. A
partition that is neither in the way of the target nor unsubscribed stays where it is. A topic that is subscribed
again comes with the next target: a change of subscription raises the group's epoch.

`owned` is an acknowledgement, so it must be true now. The caller passes it only if the heartbeat has the member's
present epoch. A report under the previous epoch (the answer was lost) or in a join is older than the last assignment
and says nothing about it. A report of None acknowledges nothing.

To keep a partition from a member for a while, let `current_epoch_of` report it as owned.

Behaviour: Kafka's CurrentAssignmentBuilder as of 4.3, that is with KAFKA-19431 (unsubscribed partitions go at once),
KAFKA-19449 (a partition that the member itself was to revoke is free for it), KAFKA-19974 (no epoch between the old
one and the target's) and KIP-1251 (the epoch at which a partition was got). Rows N9 to N12 of the conformance list.
One difference: a member that continues to wait keeps its previous epoch, because its state has not changed. So a
heartbeat whose answers were lost twice is not fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from typing import assert_never

TopicPartition = tuple[bytes, int]
"""Topic id and partition number."""

FREE = -1
"""The epoch of a partition without an owner."""


class Reconciliation(IntEnum):
    """How far a member is. The numbers are those in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a consumer group, as far as reconciliation goes. A new one has epoch 0 and owns nothing."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    """The epoch that the member sends if it missed the answer with `member_epoch`."""
    state: Reconciliation = Reconciliation.STABLE
    assigned: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The partitions that it may use, and since which epoch: commits are accepted from that epoch on (KIP-1251)."""
    revoking: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The partitions that it owns until it acknowledges that it gave them up; only in UNREVOKED_PARTITIONS."""


def has_nothing(member: MemberState) -> bool:
    return not member.assigned and not member.revoking


def reconcile(
    member: MemberState,
    *,
    target_epoch: int,
    target: AbstractSet[TopicPartition],
    owned: Collection[TopicPartition] | None,
    current_epoch_of: Callable[[TopicPartition], int],
    subscribed: Container[bytes] | None = None,
    subscription_changed: bool = False,
) -> MemberState:
    """The member after this heartbeat; the same object if nothing has changed.

    `current_epoch_of`: the epoch of a partition's owner, FREE if there is none. `subscribed`: the ids of the topics
    that the member subscribes to now; None for all topics of its target. A target from before a change of
    subscription may have more topics. `subscription_changed`: this heartbeat changed the subscription."""
    match member.state:
        case Reconciliation.STABLE:
            if member.member_epoch == target_epoch:
                return _without_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case Reconciliation.UNREVOKED_PARTITIONS:
            if _still_has_any(owned, member.revoking):
                return _without_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case Reconciliation.UNRELEASED_PARTITIONS:
            pass
        case _:
            assert_never(member.state)
    wanted = target if subscribed is None else {partition for partition in target if partition[0] in subscribed}
    return _towards(member, target_epoch, wanted, owned, current_epoch_of)


def _towards(
    member: MemberState,
    target_epoch: int,
    wanted: AbstractSet[TopicPartition],
    owned: Collection[TopicPartition] | None,
    current_epoch_of: Callable[[TopicPartition], int],
) -> MemberState:
    """Give up what is not wanted. Once that is acknowledged, rise to the target's epoch and take free partitions."""
    assigned = {partition: epoch for partition, epoch in member.assigned.items() if partition in wanted}
    revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in wanted}
    if revoking and _still_has_any(owned, revoking):
        return _changed(member, Reconciliation.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoking)
    for partition in sorted(wanted - member.assigned.keys()):
        # A partition that the member has just given up may return at once, because no other member can have got it in
        # between.
        if partition in member.revoking or current_epoch_of(partition) == FREE:
            assigned[partition] = target_epoch
    complete = len(assigned) == len(wanted)
    state = Reconciliation.STABLE if complete else Reconciliation.UNRELEASED_PARTITIONS
    return _changed(member, state, target_epoch, assigned, {})


def _without_unsubscribed(
    member: MemberState, owned: Collection[TopicPartition] | None, subscribed: Container[bytes] | None
) -> MemberState:
    """Between two targets: give up the partitions of topics that are no longer subscribed; get none."""
    if subscribed is None:
        return member
    assigned = {partition: epoch for partition, epoch in member.assigned.items() if partition[0] in subscribed}
    if len(assigned) == len(member.assigned):
        return member
    gone = {partition: epoch for partition, epoch in member.assigned.items() if partition[0] not in subscribed}
    revoking = {**member.revoking, **gone}
    if _still_has_any(owned, revoking):
        return _changed(member, Reconciliation.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoking)
    return _changed(member, member.state, member.member_epoch, assigned, {})


def _still_has_any(owned: Collection[TopicPartition] | None, partitions: Mapping[TopicPartition, int]) -> bool:
    return owned is None or any(partition in partitions for partition in owned)


def _changed(
    member: MemberState,
    state: Reconciliation,
    epoch: int,
    assigned: Mapping[TopicPartition, int],
    revoking: Mapping[TopicPartition, int],
) -> MemberState:
    waits_on = state != Reconciliation.UNREVOKED_PARTITIONS and member.state == Reconciliation.UNRELEASED_PARTITIONS
    previous = member.previous_member_epoch if waits_on and epoch == member.member_epoch else member.member_epoch
    changed = MemberState(epoch, previous, state, assigned, revoking)
    return member if changed == member else changed
