"""The end of a rebalance: the owners, the moves, and the members that the others waited for.

PreparingRebalance lasts until all have joined or the time is up. If it ended when the last member joined, the others
waited for that member alone since the second to last joined. CompletingRebalance lasts until the leader's SyncGroup, so
the others wait for the leader. Members of a consumer group wait for those that have to give partitions up. Members that
came too late are noted when they are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.coordinator.events import MemberStory
from kohort.coordinator.journal.partition_moves import (
    Comparison,
    Identity,
    Owners,
    compare,
    identity_of,
    partitions_of,
    unread_owners,
)
from kohort.coordinator.journal.reconciliation_steps import MAX_MEMBERS, StepsByMember, last_to_give_up, put_steps
from kohort.coordinator.journal.story import MemberThen, Partitions, Story, held_up, member_then
from kohort.wire.embedded import CONSUMER_PROTOCOL

MAX_PARTITIONS = 5_000
"""Partitions that a story shows in all its lists."""
NOTABLE_MS = 10
"""Shorter waits are not noted."""


def end_of_rebalance(
    story: Story, members: Sequence[MemberStory], leader: str, before: Owners | None, steps_of: StepsByMember
) -> Owners:
    """Fill in the end of a story. Returns the owners from now on. `steps_of`: a consumer group's members."""
    consumers = story.protocol_type == CONSUMER_PROTOCOL or not members
    compared = compare(before or {}, members) if consumers else None
    owners = compared.owners if compared is not None else unread_owners(members)
    comparison = compared if before is not None else None
    room = _Room()
    ordered = sorted(members, key=lambda m: comparison is None or identity_of(m) not in comparison.changes)
    story.members = [_member(m, owners, before, comparison, consumers, room) for m in ordered[:MAX_MEMBERS]]
    story.members_count = len(members)
    gone = [identity for identity in before or {} if identity not in owners]
    story.gone = [_gone(identity, before or {}, comparison, room) for identity in gone[:MAX_MEMBERS]]
    story.gone_count = len(gone)
    if consumers:
        story.partitions_count = sum(owner.count for owner in owners.values())
    if comparison is not None:
        story.moved, story.taken, story.released = comparison.moved, comparison.taken, comparison.released
    if story.group_type:
        put_steps((*story.members, *story.gone), steps_of)
        late = last_to_give_up(steps_of)
        if late is not None and late.waited_ms >= NOTABLE_MS:
            story.held_up_by.append(late)
    else:
        _note_awaited(story, members, leader)
    return owners


class _Room:
    """The room that is left for partitions in a story."""

    def __init__(self) -> None:
        self._left = MAX_PARTITIONS

    def shown(self, partitions: Mapping[str, set[int]]) -> Partitions:
        shown: Partitions = {}
        for topic, indexes in sorted(partitions.items()):
            if self._left > 0 and indexes:
                shown[topic] = sorted(indexes)[: self._left]
                self._left -= len(shown[topic])
        return shown


def _member(
    member: MemberStory,
    owners: Owners,
    before: Owners | None,
    comparison: Comparison | None,
    consumers: bool,
    room: _Room,
) -> MemberThen:
    then = member_then(member)
    identity = identity_of(member)
    partitions = partitions_of(member.assignment) if consumers else None
    if partitions is None:
        then.assignment_bytes = len(member.assignment)
        if before is not None and identity in before:
            then.assignment_bytes_before = len(before[identity].assignment)
        return then
    then.partitions = owners[identity].count
    _show_change(then, identity, comparison, room)
    then.assignment = room.shown(partitions)
    return then


def _gone(identity: Identity, before: Owners, comparison: Comparison | None, room: _Room) -> MemberThen:
    then = member_then(before[identity].member)
    then.joined_after_ms = then.synced_after_ms = None
    _show_change(then, identity, comparison, room)
    return then


def _show_change(then: MemberThen, identity: Identity, comparison: Comparison | None, room: _Room) -> None:
    if comparison is not None and identity in comparison.changes:
        change = comparison.changes[identity]
        then.gained, then.lost = room.shown(change.gained), room.shown(change.lost)


def _note_awaited(story: Story, members: Sequence[MemberStory], leader: str) -> None:
    preparing = story.phases[0].took_ms
    joined = sorted(members, key=lambda member: member.joined_after_ms)
    if len(joined) > 1 and joined[-1].joined_after_ms == preparing:
        waited = joined[-1].joined_after_ms - max(joined[-2].joined_after_ms, 0)
        if waited >= NOTABLE_MS:
            story.held_up_by.append(held_up(joined[-1], "joined last", waited))
    completing = story.phases[-1].took_ms or 0
    leading = next((member for member in members if member.member_id == leader), None)
    if leading is not None and len(members) > 1 and len(story.phases) > 1 and completing >= NOTABLE_MS:
        story.held_up_by.append(held_up(leading, "led and synced late", completing))
