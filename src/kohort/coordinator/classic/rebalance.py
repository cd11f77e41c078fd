"""The rebalance of a classic group: how it starts, which members it waits for, how it ends (states: requests.py).

    start ──► join phase ──all joined, or time is up──► a new generation ──leader's assignment──► stable

The join phase of a group's first members lasts until its window ends (KIP-134); in a storm of rebalances it stays open
for a while; otherwise it ends when all have joined. Members that do not join or sync in time are removed, no
others: a generation is never completed without assignments.

Storms: members that come and go all the time would cause one rebalance after the other. From the fifth rebalance on
that begins soon after the one before because members came or went, the join phase stays open for a while, so that one
rebalance serves many members. The more members the group has, the longer: a rebalance of a large group costs more, and
in a small group each member notices the wait. The group is looked at again every QUIET_MS, because it grows and
shrinks meanwhile.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import GATHERING
from kohort.coordinator.classic.group import Group, Member, Phase, size_of_assignments
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.classic.protocol_vote import vote
from kohort.coordinator.classic.responses import join_error, joined, sync_error, synced
from kohort.coordinator.effects import stories_of
from kohort.coordinator.events import Millis, Record, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import group_record
from kohort.coordinator.soft_state import Running
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.sync_group import SyncGroupRequest

STORM = 5
"""This many rebalances in a row, each right after the previous one, are a storm."""
QUIET_MS = 250
"""How long the join phase of a handful of members stays open in a storm."""
HANDFUL = 10
QUIET_PER_MEMBER_MS = 50
"""How much longer it stays open for each member beyond a handful."""

LEAST_WAIT_MS = 1_000
"""The shortest time between two attempts to complete a join phase that no member has joined."""


class Rebalances:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._config = config
        self._hard = hard
        self._running = running

    def start(
        self, group: Group, now: Millis, why: str, member: Member | None = None, *, same_members: bool = False
    ) -> None:
        """Start a rebalance or continue the running one; it completes when all have joined.

        `same_members`: no member came or went. The second step of a cooperative rebalance is no sign of a storm."""
        if group.phase is Phase.PREPARING:
            if group.settling and member is not None:
                self._settle_until(group, group.began_ms + member.rebalance_timeout_ms // 2)
            return self.complete_if_all_joined(group, now)
        self._call_off(group, now)
        group.initial = group.phase is Phase.EMPTY
        group.cause, group.began_ms = why, now
        self._running.out.note(group, "rebalance started", why, member, waited_ms=now - group.since)
        self._running.enter(group, Phase.PREPARING, now)
        if group.initial:
            delay = self._initial_delay_ms(group)
            group.joined_in_window = False
            group.window_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
            self._running.arm("initial", group, now + delay)
            return None
        if not same_members:
            self._detect_storm(group, now)
        return self.complete_if_all_joined(group, now)

    def _call_off(self, group: Group, now: Millis) -> None:
        """Answer what the members of this generation wait for with 27, so that they join."""
        completing = group.phase is Phase.COMPLETING
        for member in group.members.values():
            if completing:
                member.assignment = b""
            if member.sync is not None:
                self._running.arm_session(group, member, now)
                self._running.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
            self._running.answer_heartbeat(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
            if member.join is None:
                member.joined_ms = -1
        self._running.disarm("sync", group)
        group.awaiting_sync.clear()

    def _detect_storm(self, group: Group, now: Millis) -> None:
        delay = self._config.group_storm_rebalance_delay_ms
        hasty = group.ended_ms >= 0 and now - group.ended_ms < delay
        group.hasty = group.hasty + 1 if hasty else 0
        if group.hasty >= STORM:
            group.settling = True
            self._settle(group, now)

    def _settle(self, group: Group, now: Millis) -> None:
        """Keep the join phase open, or end that if it has been open for as long as the group's size allows."""
        beyond = max(len(group.members) - HANDFUL, 0)
        shortest = min((member.rebalance_timeout_ms for member in group.members.values()), default=0)
        quiet_ms = min(QUIET_MS + QUIET_PER_MEMBER_MS * beyond, self._config.group_storm_rebalance_delay_ms)
        until = group.began_ms + min(quiet_ms, shortest // 2)
        if now < until:
            self._running.arm("settle", group, min(until, now + QUIET_MS))
            return
        group.settling = False
        self.complete_if_all_joined(group, now)

    def _settle_until(self, group: Group, when: Millis) -> None:
        """Look at the group again at this time or earlier."""
        key = ("settle", group.group_id, str(group.generation_id))
        due = self._running.deadlines.get(key)
        if due is not None and when < due:
            self._running.deadlines.set(key, when)

    def _initial_delay_ms(self, group: Group) -> Millis:
        """Only consumers and Connect wait for more members. The first one of an election begins to work at once."""
        waits = group.protocol_type in GATHERING or not self._config.deviations.soon_again
        return self._config.group_initial_rebalance_delay_ms if waits else 0

    def _window_ended(self, group: Group, now: Millis) -> None:
        """The initial window is over; if members joined in it, another one begins (J11)."""
        if group.joined_in_window and group.window_remaining_ms > 0:
            group.joined_in_window = False
            delay = min(self._initial_delay_ms(group), group.window_remaining_ms)
            group.window_remaining_ms -= delay
            self._running.arm("initial", group, now + delay)
            return
        self._complete_join(group, now)

    def complete_if_all_joined(self, group: Group, now: Millis) -> None:
        if group.phase is not Phase.PREPARING or group.initial:
            return
        all_joined = group.parked_joins == len(group.members) and not group.pending and not group.settling
        waits = ("join", group.group_id, str(group.generation_id)) in self._running.deadlines
        # An empty group has no timeout to wait for; in Kafka, it goes on with the one of members that have left (L10).
        is_empty = not group.members and (self._config.deviations.pending_alone or not waits)
        if all_joined or is_empty:
            self._complete_join(group, now)
        elif not waits:
            self._running.arm("join", group, now + group.rebalance_timeout_ms)

    def _complete_join(self, group: Group, now: Millis) -> None:
        """All joined, or the time is up: the next generation begins with the members that joined (J13-J16)."""
        for kind in ("join", "initial", "settle"):
            self._running.disarm(kind, group)
        group.initial = group.settling = False
        late = [m for m in group.members.values() if m.join is None]
        for member in late:
            if member.instance_id is None:
                self.remove(group, member.member_id, now, "it did not rejoin in time", waited_ms=now - group.since)
        present = [m for m in group.members.values() if m.join is not None]
        if group.members and not present:
            # Only static members that have not rejoined: wait until they do or their sessions end.
            wait = max(group.rebalance_timeout_ms, LEAST_WAIT_MS)
            self._running.arm("join", group, now + wait)
            return
        if group.leader is not None and group.members[group.leader].join is None:
            group.leader = present[0].member_id
        group.generation_id = max(group.generation_id, self._running.highest_generation(group.group_id)) + 1
        self._running.generation_used(group.group_id, group.generation_id)
        group.ended_ms = now
        if not group.members:
            group.protocol = None
            self._running.out.note(group, "group is empty", "nobody is left", waited_ms=now - group.since)
            self._running.enter(group, Phase.EMPTY, now)
            group.assignment_bytes = 0
            self._running.persist(group)
            return
        group.protocol = vote(group, vote_tie=self._config.deviations.vote_tie)
        self._running.generation_began(group)
        self._running.out.note(
            group, "generation began", "time was up" if late else "all joined", waited_ms=now - group.since
        )
        self._running.enter(group, Phase.COMPLETING, now)
        for member in group.members.values():
            group.awaiting_sync[member.member_id] = None
            member.is_new = False
            member.synced_ms = -1
            self._running.arm_session(group, member, now)
            self._running.answer_join(
                group, member, joined(group, member, with_members=member.member_id == group.leader)
            )
        self._running.arm("sync", group, now + group.rebalance_timeout_ms)

    def _sync_overdue(self, group: Group, now: Millis) -> None:
        """Remove members that joined the generation and did not sync: the others wait for them (S10)."""
        overdue = list(group.awaiting_sync)
        for member_id in overdue:
            self.remove(group, member_id, now, "it did not sync in time", waited_ms=now - group.ended_ms)
        self.start(group, now, f"{len(overdue)} did not sync in time")

    # -- the leader's assignment

    def take_assignment(self, group: Group, request: SyncGroupRequest, now: Millis) -> None:
        given = {a.member_id: a.assignment for a in request.assignments}
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
        leader = group.members[request.member_id]
        record = group_record(group.group_id, value_of(group, since=now))
        size = size_of_assignments([member.assignment for member in group.members.values()])
        if why := self._why_too_large(group, record, size):
            self._refuse_assignment(group, why, leader, now)
            return
        group.assignment_bytes = size
        took = now - group.since
        self._running.enter(group, Phase.STABLE, now)
        self._running.out.records.append(record)
        self._running.out.note(group, "group is stable", "the leader's assignment", leader, took, stories_of(group))
        for member in group.members.values():
            if member.sync is not None:
                self._running.arm_session(group, member, now)
                self._running.answer_sync(member, synced(group, member))

    def is_too_large(self, record: Record) -> bool:
        return len(record.value or b"") > self._config.group_max_bytes

    def _why_too_large(self, group: Group, record: Record, size: int) -> str:
        """Why an assignment of this size is refused; "" if it is not."""
        if self.is_too_large(record):
            stored, limit = len(record.value or b""), self._config.group_max_bytes
            return f"the group's record would have {stored} bytes, and group.max.bytes is {limit}"
        if not self._running.member_bytes.has_room(size - group.assignment_bytes):
            return f"its assignments are too large: group.max.total.bytes is {self._config.group_max_total_bytes}"
        return ""

    def _refuse_assignment(self, group: Group, why: str, leader: Member, now: Millis) -> None:
        """The assignment cannot be stored, so it cannot be handed out; the members start again (R5)."""
        self._running.out.note(group, "assignment refused", why, leader)
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                self._running.arm_session(group, member, now)
                self._running.answer_sync(member, sync_error(ErrorCode.UNKNOWN_SERVER_ERROR))
        self.start(group, now, "the assignment was too large to be stored", leader)

    # -- removal, time

    def remove(
        self,
        group: Group,
        member_id: str,
        now: Millis,
        why: str,
        what: What = "member removed",
        waited_ms: Millis = -1,
    ) -> Member:
        """Remove a member. The caller starts the rebalance, one for all members that it removes."""
        member = group.take_out(member_id)
        if member.instance_id is not None:
            del group.instances[member.instance_id]
        group.awaiting_sync.pop(member_id, None)
        self._running.deadlines.clear(("session", group.group_id, member_id))
        self._running.answer_join(group, member, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.join_version, ""))
        self._running.answer_sync(member, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        self._running.answer_heartbeat(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)
        self._running.out.note(group, what, why, member, waited_ms)
        return member

    def phase_overdue(self, kind: str, group: Group, now: Millis) -> None:
        match kind, group.phase:
            case "initial", Phase.PREPARING if group.initial:
                self._window_ended(group, now)
            case "settle", Phase.PREPARING:
                self._settle(group, now)
            case "join", Phase.PREPARING:
                self._complete_join(group, now)
            case "sync", Phase.COMPLETING | Phase.STABLE:
                self._sync_overdue(group, now)
