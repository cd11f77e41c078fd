"""How the members of a consumer group came to their target: the steps of each, folded into the story of a rebalance.

    told to revoke ─► revoked ─►            of a member that has to give partitions up
    waits for partitions ─► got partitions  of one that shall have more

Each is told with a heartbeat's answer. A held one carries it at once, which is a push; who is not held learns it with
its next heartbeat. The last one to give up partitions that somebody waits for is whom the others waited for.

Bounded: the steps of so many members as a story shows, and of each the names of a few that it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.events import JournalEntry, Millis
from kohort.coordinator.stories import HeldBack, HeldUp, MemberThen, Steps, Story, cut, happening

MAX_MEMBERS = 200
"""Members that a story shows; the others are counted."""
MAX_REASONS = 20
MAX_PEERS = 5
PUSH, HEARTBEAT = "push", "heartbeat"

Taken = dict[str, MemberThen]
"""Steps by member id (cut)."""


def take_step(story: Story, taken: Taken, entry: JournalEntry, now: Millis) -> None:
    after_ms = now - story.started_ms
    how = PUSH if entry.pushed else HEARTBEAT
    if entry.what in ("told to revoke", "got partitions"):
        story.pushed += entry.pushed
        story.polled += not entry.pushed
    steps = _steps_of(taken, entry)
    if steps is None:
        return
    match entry.what:
        case "told to revoke":
            if steps.told_after_ms is None or steps.revoked_after_ms is not None:
                steps.told_after_ms, steps.told_by = after_ms, how
            steps.revoked += entry.partitions
            steps.revoked_after_ms = None
        case "revoked":
            steps.revoked_after_ms = after_ms
        case "waits for partitions":
            if steps.waited_after_ms is None:
                steps.waited_after_ms = after_ms
            others = dict.fromkeys([*steps.waited_for, *map(cut, entry.peers)])
            steps.waited_for = list(others)[:MAX_PEERS]
        case "got partitions":
            steps.got += entry.partitions
            steps.got_after_ms, steps.got_by = after_ms, how


def _steps_of(taken: Taken, entry: JournalEntry) -> Steps | None:
    member_id = cut(entry.member_id)
    known = taken.get(member_id)
    if known is None:
        if len(taken) >= MAX_MEMBERS:
            return None
        who = happening(entry, 0)
        known = taken[member_id] = MemberThen(member_id, who.instance_id, who.client_id, who.host, steps=Steps())
    return known.steps


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


def put_steps(rows: Iterable[MemberThen], taken: Taken) -> None:
    for row in rows:
        known = taken.get(row.member_id)
        if known is not None:
            row.steps = known.steps


def who_gave_up_last(taken: Taken) -> HeldUp | None:
    """And how long the others waited for that one alone: since the one before it, or since somebody waited at all."""
    awaited = {member_id for member in taken.values() if member.steps for member_id in member.steps.waited_for}
    began = [
        member.steps.waited_after_ms
        for member in taken.values()
        if member.steps is not None and member.steps.waited_after_ms is not None
    ]
    gave_up = sorted(
        (member.steps.revoked_after_ms, member_id)
        for member_id, member in taken.items()
        if member_id in awaited and member.steps is not None and member.steps.revoked_after_ms is not None
    )
    if not began or not gave_up:
        return None
    last_ms, member_id = gave_up[-1]
    since_ms = max(min(began), gave_up[-2][0] if len(gave_up) > 1 else 0)
    last = taken[member_id]
    waited_ms = max(last_ms - since_ms, 0)
    return HeldUp("gave up last", waited_ms, member_id, last.instance_id, last.client_id, last.host)
