"""Reconciliation: one step of a consumer group's member from what it has to what it should have (KIP-848).

The group's target says which partitions each member should own, and at which epoch. A member comes there by itself, a
heartbeat at a time, and nobody else stops for it: `reconcile` is called with what the member is, its part of the
target and what the heartbeat reported, and returns what the member is from now on.

    STABLE                  it has what its epoch gives it.
                            A newer target: → any state. A topic less in its subscription: → UNREVOKED.
    UNREVOKED_PARTITIONS    it was told to give partitions up and has not said that it did. It keeps its old epoch, and
                            looks at no newer target. The rebalance timeout runs in this state only.
                            A report of what it owns, without those partitions: → any state.
    UNRELEASED_PARTITIONS   it has the target's epoch and all of its target that is free; the rest is still with
                            others. It gets each partition when that is released: → STABLE with the last one.

Revoke, acknowledge, release, add, in that order, and partition by partition. A member owns `assigned` and `revoking`,
the latter until it has acknowledged. It is given only what nobody owns, and only at the epoch of a target that has
it; every target has a partition once. So no two members own a partition at a time, and never both at the same epoch.
What is neither in the way of the target nor unsubscribed stays where it is, whatever else happens. A topic that is
subscribed again comes with the next target: a change of subscription raises the group's epoch, so there will be one.

`owned` is an acknowledgement, so it must be true now. The caller hands it over only where the heartbeat carries the
member's present epoch: a report under the previous one (its answer was lost) or with a join is from before the last
assignment, and says nothing about that. None reports nothing and acknowledges nothing.

To hold a partition back from a member for a while, let `current_epoch_of` say that it is not free.

Behaviour: Kafka's CurrentAssignmentBuilder as of 4.3, that is with KAFKA-19431 (unsubscribed partitions go at once),
KAFKA-19449 (a partition that the member itself was to revoke is free for it), KAFKA-19974 (no epoch between the old
one and the target's) and KIP-1251 (the epoch at which a partition was got). Rows N9 to N12 of the conformance list.
One difference: a member that goes on waiting keeps its previous epoch, as nothing of it has changed, so that a
heartbeat whose answers were lost twice is not fenced for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from typing import assert_never

TopicPartition = tuple[bytes, int]
"""The topic's id and the number of the partition."""

FREE = -1
"""The epoch of a partition that nobody owns."""


class Reconciliation(IntEnum):
    """How far a member is; the numbers are those of its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a consumer group, as far as reconciliation goes. A new one has epoch 0 and owns nothing."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    """What the member says when it has missed the answer that told it `member_epoch`."""
    state: Reconciliation = Reconciliation.STABLE
    assigned: Mapping[TopicPartition, int] = field(default_factory=dict)
    """What it may use, and since which epoch. Commits of older epochs are accepted from that one on (KIP-1251)."""
    revoking: Mapping[TopicPartition, int] = field(default_factory=dict)
    """What it was told to give up and owns until it acknowledges; only in UNREVOKED_PARTITIONS."""


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
    """The member after this heartbeat; the same object when nothing has changed.

    `current_epoch_of` gives the epoch of a partition's owner, FREE without one. `subscribed` are the ids of the topics
    that the member subscribes to now, None for all of its target's: a target from before a change of subscription
    may have more. `subscription_changed` says that this heartbeat changed it.
    """
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
    """Give up what is not wanted; once that is acknowledged, rise to the target's epoch and take what is free."""
    assigned = {partition: epoch for partition, epoch in member.assigned.items() if partition in wanted}
    revoking = {partition: epoch for partition, epoch in member.assigned.items() if partition not in wanted}
    if revoking and _still_has_any(owned, revoking):
        return _changed(member, Reconciliation.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoking)
    for partition in sorted(wanted - member.assigned.keys()):
        # What it has just given up comes back without a way around: nobody can have got it in between.
        if partition in member.revoking or current_epoch_of(partition) == FREE:
            assigned[partition] = target_epoch
    complete = len(assigned) == len(wanted)
    state = Reconciliation.STABLE if complete else Reconciliation.UNRELEASED_PARTITIONS
    return _changed(member, state, target_epoch, assigned, {})


def _without_unsubscribed(
    member: MemberState, owned: Collection[TopicPartition] | None, subscribed: Container[bytes] | None
) -> MemberState:
    """Between two targets: partitions of topics that are no longer subscribed go at once, and nothing comes."""
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
