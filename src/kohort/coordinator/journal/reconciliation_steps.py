"""The steps by which each member of a consumer group reached its target, for the story of a rebalance.

    told to revoke ─► revoked ─►            a member that has to give partitions up
    waits for partitions ─► got partitions  a member that gets more

A member learns each step from a heartbeat's answer: at once if a heartbeat is held (a push), otherwise from the
answer to its next one. A member does not choose when it learns that it must give partitions up. The time from there
to the acknowledgement is the member's own. So the member that took longest, among those whose partitions others
waited for, has delayed the others.

Limits: the steps of as many members as a story shows, and for each the ids of a few members that it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kohort.coordinator.events import JournalEntry, Millis
from kohort.coordinator.journal.story import HeldBack, HeldUp, MemberThen, Steps, Story, cut, happening

MAX_MEMBERS = 200
"""Members that a story shows; the others are counted."""
MAX_REASONS = 20
MAX_PEERS = 5
PUSH, HEARTBEAT = "push", "heartbeat"


class MemberSteps(msgspec.Struct):
    """A member on its way to the target."""

    then: MemberThen
    steps: Steps
    """The same as in `then`."""
    told_ms: Millis | None = None
    """The time since which the member has partitions to give up."""
    waits_ms: Millis | None = None
    """Since when it has waited."""


StepsByMember = dict[str, MemberSteps]
"""The key is the member id, cut to its limit."""


def take_step(story: Story, steps_of: StepsByMember, entry: JournalEntry, now: Millis) -> None:
    if entry.what in ("told to revoke", "got partitions"):
        story.pushed += entry.pushed
        story.polled += not entry.pushed
    member = _member_steps(steps_of, entry)
    if member is None:
        return
    steps, after_ms = member.steps, now - story.started_ms
    how = PUSH if entry.pushed else HEARTBEAT
    match entry.what:
        case "told to revoke":
            if steps.told_after_ms is None:
                steps.told_after_ms, steps.told_by = after_ms, how
            if member.told_ms is None:
                member.told_ms = now
                steps.times += 1
            steps.revoked += entry.partitions
            steps.revoked_after_ms = None
        case "revoked":
            if member.told_ms is not None:
                steps.gave_up_in_ms = max(steps.gave_up_in_ms or 0, now - member.told_ms)
                steps.revoked_after_ms, member.told_ms = after_ms, None
        case "waits for partitions":
            if member.waits_ms is None:
                member.waits_ms = now
            if steps.waited_after_ms is None:
                steps.waited_after_ms = after_ms
            others = dict.fromkeys([*steps.waited_for, *map(cut, entry.peers)])
            steps.waited_for = list(others)[:MAX_PEERS]
        case "got partitions":
            if member.waits_ms is not None:
                steps.waited_ms = (steps.waited_ms or 0) + now - member.waits_ms
                member.waits_ms = now if entry.peers else None
            steps.got += entry.partitions
            steps.got_after_ms, steps.got_by = after_ms, how


def _member_steps(steps_of: StepsByMember, entry: JournalEntry) -> MemberSteps | None:
    member_id = cut(entry.member_id)
    known = steps_of.get(member_id)
    if known is None and len(steps_of) < MAX_MEMBERS:
        who, steps = happening(entry, 0), Steps()
        then = MemberThen(member_id, who.instance_id, who.client_id, who.host, steps=steps)
        known = steps_of[member_id] = MemberSteps(then, steps)
    return known


def hold_back(story: Story, entry: JournalEntry, now: Millis) -> None:
    why, after_ms, for_ms = cut(entry.cause), now - story.started_ms, max(entry.waited_ms, 0)
    known = next((row for row in story.held_back if row.why == why), None)
    if known is None:
        if len(story.held_back) < MAX_REASONS:
            story.held_back.append(HeldBack(why, after_ms, for_ms, partitions=entry.partitions))
        return
    known.partitions = max(known.partitions, entry.partitions)
    if after_ms + for_ms > known.after_ms + known.for_ms:
        known.for_ms = after_ms + for_ms - known.after_ms
        known.times += 1


def rows_of(steps_of: StepsByMember) -> list[MemberThen]:
    """The rows of a story whose owners are not known yet."""
    return [member.then for member in steps_of.values()]


def put_steps(rows: Iterable[MemberThen], steps_of: StepsByMember) -> None:
    for row in rows:
        member = steps_of.get(row.member_id)
        if member is not None:
            row.steps = member.steps


def last_to_give_up(steps_of: StepsByMember) -> HeldUp | None:
    """The member that took longest among those that others waited for."""
    awaited = {member_id for member in steps_of.values() for member_id in member.steps.waited_for}
    took = [
        (member.steps.gave_up_in_ms, member_id)
        for member_id, member in steps_of.items()
        if member_id in awaited and member.steps.gave_up_in_ms is not None
    ]
    if not took:
        return None
    waited_ms, member_id = max(took)
    who = steps_of[member_id].then
    return HeldUp("gave up late", waited_ms, member_id, who.instance_id, who.client_id, who.host)
