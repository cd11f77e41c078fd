"""The state of a group's rebalance now: which members are present, which are awaited, and for how long. Read-only.

    PreparingRebalance    joined | awaited to join | id given out
    CompletingRebalance   synced | awaited to sync
    Stable                member | awaited to sync (it has not fetched its assignment; its time runs all the same)

Consumer groups: consumer/status.py. Instants are milliseconds since the epoch. Awaited members come first, at most
`MAX_MEMBERS` are listed; the counts are of all.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.events import Millis
from kohort.coordinator.journal.story import cut
from kohort.coordinator.soft_state import Running

MAX_MEMBERS = 200

AWAITED_TO_JOIN = "awaited to join"
AWAITED_TO_SYNC = "awaited to sync"
ID_GIVEN_OUT = "id given out"


class MemberStatus(msgspec.Struct, omit_defaults=True):
    member_id: str
    state: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    leader: bool = False
    waited_ms: Millis | None = None
    """How long the group has waited for it."""
    remaining_ms: Millis | None = None
    """How long the group will still wait for it at most: until the phase ends, or its session if that ends first."""
    session_remaining_ms: Millis | None = None
    partitions: int = 0
    """In a consumer group: how many partitions it has to give up or waits for."""
    waits_for: list[str] = []
    """The ids of some of the members that still own the awaited partitions."""


class RebalanceStatus(msgspec.Struct, omit_defaults=True):
    phase: str
    since_ms: Millis
    generation: int
    """In a consumer group: its epoch."""
    now_ms: Millis
    why: str = ""
    """Why the running rebalance, or the last one, began."""
    window: bool = False
    """It waits for more members although all may have joined: the group is new (KIP-134) or in a storm."""
    ends_ms: Millis | None = None
    """The latest end of the phase."""
    counts: dict[str, int] = {}
    """Members by state."""
    members: list[MemberStatus] = []
    group_type: str = ""
    """"consumer" for a consumer group (KIP-848)."""
    assignment_epoch: int = -1
    """The epoch of its target; below the group's until the next target is made."""
    assignor: str = ""
    """The assignor that made the target."""
    held_back: str = ""
    """Why the next target, or the rest of this one, is delayed."""
    held_until_ms: Millis | None = None
    held_partitions: int = 0
    """How many partitions wait for it; 0 if unknown."""


def status_of(running: Running, group_id: str, now: Millis) -> RebalanceStatus | None:
    """None if the group does not exist."""
    group = running.groups.get(group_id)
    if group is None:
        return None
    ends = _ends(running, group)
    states = {member.member_id: _state(group, member) for member in group.members.values()}
    counts = Counter(states.values())
    if group.pending:
        counts[ID_GIVEN_OUT] = len(group.pending)
    awaited = [m for m in group.members.values() if _is_awaited(states[m.member_id])]
    others = [m for m in group.members.values() if not _is_awaited(states[m.member_id])]
    members = [_member(running, group, m, states[m.member_id], ends, now) for m in (awaited + others)[:MAX_MEMBERS]]
    for member_id in list(group.pending)[: MAX_MEMBERS - len(members)]:
        due = running.deadlines.get(("pending", group_id, member_id))
        members.append(MemberStatus(cut(member_id), ID_GIVEN_OUT, remaining_ms=until(due, now)))
    return RebalanceStatus(
        phase=group.phase.value,
        since_ms=group.since,
        generation=group.generation_id,
        now_ms=now,
        why=group.cause,
        window=(group.initial or group.settling) and group.phase is Phase.PREPARING,
        ends_ms=ends,
        counts=dict(counts),
        members=members,
    )


def _ends(running: Running, group: Group) -> Millis | None:
    match group.phase:
        case Phase.PREPARING:
            kinds = ("initial",) if group.initial else ("join", "settle")
        case Phase.COMPLETING | Phase.STABLE:
            kinds = ("sync",)
        case _:
            return None
    dues = [running.deadlines.get((kind, group.group_id, str(group.generation_id))) for kind in kinds]
    return max((due for due in dues if due is not None), default=None)


def _state(group: Group, member: Member) -> str:
    match group.phase:
        case Phase.PREPARING:
            return AWAITED_TO_JOIN if member.join is None else "joined"
        case Phase.COMPLETING:
            return AWAITED_TO_SYNC if member.member_id in group.awaiting_sync else "synced"
        case _:
            return AWAITED_TO_SYNC if member.member_id in group.awaiting_sync else "member"


def _is_awaited(state: str) -> bool:
    return state in (AWAITED_TO_JOIN, AWAITED_TO_SYNC)


def _member(
    running: Running, group: Group, member: Member, state: str, ends: Millis | None, now: Millis
) -> MemberStatus:
    session = running.deadlines.get(("session", group.group_id, member.member_id))
    status = MemberStatus(
        member_id=cut(member.member_id),
        state=state,
        instance_id=None if member.instance_id is None else cut(member.instance_id),
        client_id=cut(member.client.client_id),
        host=cut(member.client.host),
        leader=member.member_id == group.leader,
        session_remaining_ms=until(session, now),
    )
    if _is_awaited(state):
        first = min((due for due in (ends, session) if due is not None), default=None)
        status.waited_ms, status.remaining_ms = max(now - group.since, 0), until(first, now)
    return status


def until(due: Millis | None, now: Millis) -> Millis | None:
    return None if due is None else max(due - now, 0)
