"""The state of a group's rebalance right now: who is there, who is awaited, and for how long still. Read-only.

    PreparingRebalance    joined | awaited to join | id given out
    CompletingRebalance   synced | awaited to sync
    Stable                member | awaited to sync (it has not fetched its assignment; its time runs all the same)
    of a consumer group   member | awaited to revoke | waits for partitions | on its way (its next heartbeat tells it)

Instants are milliseconds since the epoch. Members are those whom the others wait for first, at most `MAX_MEMBERS`; the
counts tell of all.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from kohort.coordinator.consumer_state import ConsumerGroup
from kohort.coordinator.events import Millis
from kohort.coordinator.reconciliation import Reconciliation
from kohort.coordinator.running import Running
from kohort.coordinator.state import Group, Member, Phase
from kohort.coordinator.stories import cut

MAX_MEMBERS = 200

AWAITED_TO_JOIN = "awaited to join"
AWAITED_TO_SYNC = "awaited to sync"
AWAITED_TO_REVOKE = "awaited to revoke"
WAITS_FOR_PARTITIONS = "waits for partitions"
ON_ITS_WAY = "on its way"
ID_GIVEN_OUT = "id given out"


class MemberStatus(msgspec.Struct, omit_defaults=True):
    member_id: str
    state: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    leader: bool = False
    waited_ms: Millis | None = None
    """How long it has been waited for."""
    remaining_ms: Millis | None = None
    """How long it will be waited for still, at most: the phase's end, or its session's if that comes first."""
    session_remaining_ms: Millis | None = None


class RebalanceStatus(msgspec.Struct, omit_defaults=True):
    phase: str
    since_ms: Millis
    generation: int
    now_ms: Millis
    why: str = ""
    """Why the rebalance that is running, or the last one, began."""
    window: bool = False
    """It waits for more members for a while, although all may have joined: the group is new (KIP-134), or in a storm
    of rebalances."""
    ends_ms: Millis | None = None
    """When the phase ends at the latest."""
    counts: dict[str, int] = {}
    """Members by state."""
    members: list[MemberStatus] = []


def status_of(running: Running, group_id: str, now: Millis) -> RebalanceStatus | None:
    """None for a group that is not there."""
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
        members.append(MemberStatus(cut(member_id), ID_GIVEN_OUT, remaining_ms=_until(due, now)))
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


def consumer_status_of(running: Running, group: ConsumerGroup, phase: str, now: Millis) -> RebalanceStatus:
    states = {member_id: _consumer_state(group, member_id) for member_id in sorted(group.members)}
    members = []
    for member_id, state in sorted(states.items(), key=lambda item: item[1] != AWAITED_TO_REVOKE):
        member = group.members[member_id]
        session = running.deadlines.get(("consumer session", group.group_id, member_id))
        status = MemberStatus(
            member_id=cut(member_id),
            state=state,
            instance_id=None if member.instance_id is None else cut(member.instance_id),
            client_id=cut(member.client_id),
            host=cut(member.client_host),
            session_remaining_ms=_until(session, now),
        )
        if state == AWAITED_TO_REVOKE:
            due = running.deadlines.get(("consumer revoke", group.group_id, member_id))
            status.remaining_ms = _until(due, now)
            status.waited_ms = None if due is None else max(now - (due - member.rebalance_timeout_ms), 0)
        members.append(status)
    return RebalanceStatus(
        phase=phase,
        since_ms=group.assigned_ms,
        generation=group.epoch,
        now_ms=now,
        counts=dict(Counter(states.values())),
        members=members[:MAX_MEMBERS],
    )


def _consumer_state(group: ConsumerGroup, member_id: str) -> str:
    if group.is_reconciled(member_id):
        return "member"
    match group.state_of(member_id).state:
        case Reconciliation.UNREVOKED_PARTITIONS:
            return AWAITED_TO_REVOKE
        case Reconciliation.UNRELEASED_PARTITIONS:
            return WAITS_FOR_PARTITIONS
        case _:
            return ON_ITS_WAY


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
        session_remaining_ms=_until(session, now),
    )
    if _is_awaited(state):
        first = min((due for due in (ends, session) if due is not None), default=None)
        status.waited_ms, status.remaining_ms = max(now - group.since, 0), _until(first, now)
    return status


def _until(due: Millis | None, now: Millis) -> Millis | None:
    return None if due is None else max(due - now, 0)
