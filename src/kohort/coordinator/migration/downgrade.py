"""The plan of a downgrade: the classic group that replaces a consumer group whose members all speak the classic
protocol. Nothing here changes anything.

Members keep what they have; the epoch becomes the generation. If a member left, the others rebalance. If the last
member of the consumer protocol is a static one that returns with the classic protocol, it takes its former place
without a rebalance, provided that the group was at rest, that it subscribes to the same topics, and that no classic
generation had this number: the leader of that generation may have been another member.

The plan announces the next generation if a rebalance is due, so that a crash does not lose the rebalance. Kafka does
not; the first generation after that is one higher here.

Source: GroupMetadataManager.convertToClassicGroup, ClassicGroup.fromConsumerGroup; row N18 of the conformance list.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kohort.coordinator.classic.group import Group, Member, Phase, size_of_assignments
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.classic.protocol_vote import vote
from kohort.coordinator.consumer.classic_fields import protocols_of, session_timeout_of
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup
from kohort.coordinator.consumer.reconciliation import MemberState
from kohort.coordinator.events import Client, Millis, Record
from kohort.coordinator.migration.classic_side import assignment_for
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    group_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.topics import Topics
from kohort.wire.embedded import CONSUMER_PROTOCOL
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue


class Returning(msgspec.Struct, frozen=True):
    """A static member that takes over from the last member of the consumer protocol."""

    member_id: str
    value: ConsumerGroupMemberMetadataValue
    state: MemberState
    """The state of the member before the downgrade."""


class DowngradePlan(msgspec.Struct, frozen=True):
    """The classic group that replaces a consumer group."""

    classic: Group
    """The group as it begins."""
    members: tuple[str, ...]
    """The members of the consumer group."""
    rebalance: bool

    def records(self, *, numbers_go_on: bool) -> Iterator[Record]:
        group_id = self.classic.group_id
        for record in (current_record, target_record):
            for member_id in self.members:
                yield record(group_id, member_id, None)
        yield target_epoch_record(group_id, None)
        for member_id in self.members:
            yield member_record(group_id, member_id, None)
        yield consumer_group_record(group_id, None)
        # A number above the group's own means, when the group is loaded, that its next generation is due.
        if numbers_go_on:
            yield generation_record(group_id, self.classic.generation_id + (1 if self.rebalance else 0))
        yield group_record(group_id, value_of(self.classic))


def is_at_rest(group: ConsumerGroup, former_id: str, *, last_generation: int) -> bool:
    """True if every member has reached the target, and the epoch can be the number of a classic generation.
    `last_generation`: the highest generation that the log has of a group of this name."""
    away = group.state_of(former_id)
    former_has_all = group.is_reconciled(former_id) or (
        away.member_epoch == LEFT_FOR_A_WHILE and away.assigned.keys() == group.targets.get(former_id, frozenset())
    )
    return (
        group.epoch == group.assignment_epoch
        and former_has_all
        and all(group.is_reconciled(member_id) for member_id in group.members if member_id != former_id)
        and last_generation < group.epoch
    )


def plan_downgrade(
    group: ConsumerGroup,
    topics: Topics,
    now: Millis,
    *,
    rebalance: bool,
    returning: Returning | None = None,
    of_target: bool = False,
    vote_tie: bool = True,
) -> DowngradePlan:
    """`group` without the members that are gone. `of_target`: members are described with their targets, as in Kafka,
    and not with the partitions that they have. `vote_tie`: see `vote`."""
    classic = Group(group.group_id, Phase.STABLE, since=now, protocol_type=CONSUMER_PROTOCOL, generation_id=group.epoch)
    for member_id, value in sorted(group.members.items()):
        classic.add(_member(member_id, value))
    if returning is not None:
        classic.add(_member(returning.member_id, returning.value))
        classic.members[returning.member_id].joined_ms = now
    classic.instances = {m.instance_id: m.member_id for m in classic.members.values() if m.instance_id is not None}
    classic.leader = next(iter(classic.members))
    classic.protocol = vote(classic, vote_tie=vote_tie)
    for member in classic.members.values():
        if returning is not None and member.member_id == returning.member_id:
            had = (*returning.state.assigned,)
        else:
            state = group.state_of(member.member_id)
            had = (*state.assigned, *state.revoking)
            if of_target:
                had = (*sorted(group.targets.get(member.member_id, ())),)
        member.assignment = assignment_for(had, topics, member.metadata_of(classic.protocol))
    classic.assignment_bytes = size_of_assignments([member.assignment for member in classic.members.values()])
    return DowngradePlan(classic, tuple(group.members), rebalance)


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue) -> Member:
    return Member(
        member_id,
        value.instance_id,
        Client(value.client_id, value.client_host),
        session_timeout_of(value),
        value.rebalance_timeout_ms,
        protocols_of(value),
    )
