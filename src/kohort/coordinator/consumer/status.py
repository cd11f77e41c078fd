"""The progress of a consumer group's rebalance: the awaited members, the members that wait, the partitions held back.

    awaited to join        classic protocol: told to join again
    awaited to sync        classic protocol: joined, and has not fetched its assignment
    awaited to revoke      told to give partitions up, and has not acknowledged it
    waits for partitions   other members still have them
    on its way             learns of the target with its next heartbeat
    member                 has its whole part of the target

Read-only, like classic/status.py. The members that others wait for come first.
"""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.classic.status import (
    AWAITED_TO_JOIN,
    AWAITED_TO_SYNC,
    MAX_MEMBERS,
    MemberStatus,
    RebalanceStatus,
    until,
)
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.journal_notes import missing_of, owners_of
from kohort.coordinator.consumer.reconciliation import Reconciliation
from kohort.coordinator.consumer.responses import state_name
from kohort.coordinator.consumer.soft_state import JOIN, REVOKE, SESSION, SYNC, RunningConsumers
from kohort.coordinator.consumer.target import Targets
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.events import Millis
from kohort.coordinator.journal.story import cut

MEMBER = "member"
AWAITED_TO_REVOKE = "awaited to revoke"
WAITS_FOR_PARTITIONS = "waits for partitions"
ON_ITS_WAY = "on its way"
ORDER = (AWAITED_TO_JOIN, AWAITED_TO_SYNC, AWAITED_TO_REVOKE, WAITS_FOR_PARTITIONS, ON_ITS_WAY, MEMBER)
AWAITED = {AWAITED_TO_JOIN: JOIN, AWAITED_TO_SYNC: SYNC, AWAITED_TO_REVOKE: REVOKE}
"""The step that a member must take, and its deadline."""


def consumer_status_of(
    consumers: RunningConsumers, targets: Targets, group: ConsumerGroup, now: Millis
) -> RebalanceStatus:
    deadlines = consumers.running.deadlines
    states = {member_id: _consumer_state(deadlines, group, member_id) for member_id in sorted(group.members)}
    first = sorted(states, key=lambda member_id: ORDER.index(states[member_id]))[:MAX_MEMBERS]
    known = consumers.of(group)
    deferred = known.target.deferred
    return RebalanceStatus(
        phase=state_name(group),
        since_ms=min(consumers.since_ms(group), now),
        generation=group.epoch,
        now_ms=now,
        why=known.why,
        counts=dict(Counter(states.values())),
        members=[_consumer_member(deadlines, group, m, states[m], now) for m in first],
        group_type="consumer",
        assignment_epoch=group.assignment_epoch,
        assignor=targets.assignor_name(group),
        held_back=deferred.why if deferred is not None else "",
        held_until_ms=deferred.until_ms if deferred is not None else None,
        held_partitions=deferred.partitions if deferred is not None else 0,
    )


def _consumer_member(
    deadlines: Deadlines[tuple[str, str, str]], group: ConsumerGroup, member_id: str, state: str, now: Millis
) -> MemberStatus:
    member, current = group.members[member_id], group.state_of(member_id)
    status = MemberStatus(
        member_id=cut(member_id),
        state=state,
        instance_id=None if member.instance_id is None else cut(member.instance_id),
        client_id=cut(member.client_id),
        host=cut(member.client_host),
        session_remaining_ms=until(deadlines.get((SESSION, group.group_id, member_id)), now),
    )
    if state in AWAITED:
        due = deadlines.get((AWAITED[state], group.group_id, member_id))
        status.remaining_ms = until(due, now)
        status.waited_ms = None if due is None else max(now - (due - member.rebalance_timeout_ms), 0)
        status.partitions = len(current.revoking)
    elif state == WAITS_FOR_PARTITIONS:
        missing = missing_of(group, member_id)
        status.partitions, status.waits_for = len(missing), list(map(cut, owners_of(group, missing)))
    return status


def _consumer_state(deadlines: Deadlines[tuple[str, str, str]], group: ConsumerGroup, member_id: str) -> str:
    for state in (AWAITED_TO_JOIN, AWAITED_TO_SYNC):
        if (AWAITED[state], group.group_id, member_id) in deadlines:
            return state
    if group.is_reconciled(member_id):
        return MEMBER
    match group.state_of(member_id).state:
        case Reconciliation.UNREVOKED_PARTITIONS:
            return AWAITED_TO_REVOKE
        case Reconciliation.UNRELEASED_PARTITIONS:
            return WAITS_FOR_PARTITIONS
        case _:
            return ON_ITS_WAY
