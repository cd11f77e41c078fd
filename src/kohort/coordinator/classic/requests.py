"""The classic group: what each request does in each state (GroupMetadataManager.java, classic/ClassicGroup.java).

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance ──leader's sync──► Stable
      ▲                  │  ▲   ▲                                          │                                   │
      └──nobody left─────┘  │   └──── a join that changes something ───────┘                                   │
                            └──── join, leave, expiry ─────────────────────────────────────────────────────────┘

| state | JoinGroup | SyncGroup | Heartbeat | OffsetCommit |
| --- | --- | --- | --- | --- |
| Empty | starts the initial rebalance | 25 | 25 | generation -1 only |
| PreparingRebalance | parked | 27 | 27, session re-armed | accepted, session re-armed |
| CompletingRebalance | same metadata: current generation; else a new rebalance | parked until the leader's | 0 | 27 |
| Stable | leader or changed metadata: rebalance; else current generation | own assignment | 0, may be held | accepted |

A deleted or unloaded group does not exist; no request meets a group in the state Dead.

Records: a group's metadata is written when the leader's assignment arrives, when the group becomes empty, and when a
static member returns under a new id. Between the end of a join and the leader's sync, the log only holds that the
generation number is taken (docs/decisions/0002): after a crash there the rebalance continues with a higher number.

Sessions: every accepted request of a member re-arms its session. While a request of the member is parked, the server
keeps the member waiting and its session does not count (H11), unless the member is new (J23) or its connection is gone.

Held heartbeats: if the broker allows it (`hold_ms`), the heartbeat of a member with an assignment is parked in Stable
and answered with 27 when a rebalance starts, so the member does not have to wait for its next heartbeat. It is answered
with 0 when its time is up or when another request arrives on the connection (AnswerHeld). Some clients (franz-go) count
their interval from the answer on: the hold and the interval seen so far leave a third of the session.

Deliberate differences from Kafka: a request that a newer one of the same member replaces is answered with 27, not
dropped; a pending member that leaves starts no rebalance; a static member that returns before it synced is still
expected to sync; a refused JoinGroup creates no group; a group has a size limit in bytes, beyond which joins get 81.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import check_generation, check_member, check_sync, is_operators, operators_reason
from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.classic.group_record import group_of
from kohort.coordinator.classic.join import Joins
from kohort.coordinator.classic.rebalance import Rebalances
from kohort.coordinator.classic.responses import join_error, sync_error, synced
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.effects import stories_of
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.soft_state import Key, Running
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest

REBALANCING, PREPARING = int(ErrorCode.REBALANCE_IN_PROGRESS), Phase.PREPARING
"""Constants, because an enumeration look-up takes longer than the rest of a heartbeat (Python 3.11)."""
HOLD_STEP_MS = 100
"""Holds end at multiples of this, so that one turn answers many."""


class ClassicGroups:
    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._config = config
        self._deviations = config.deviations
        self._hard = hard
        self._running = running
        self._rebalances = Rebalances(config, hard, running)
        self.joins = Joins(config, hard, running, self._rebalances)

    # -- SyncGroup

    def sync(self, event: GroupRequested, now: Millis) -> None:
        request: SyncGroupRequest = event.body
        group = self._running.groups.get(request.group_id)
        error = check_sync(group, request, event.version)
        if error or group is None:
            self._running.out.replies.append(Reply(event.request_id, sync_error(error)))
            return
        member = group.members[request.member_id]
        if member.member_id in group.awaiting_sync:
            del group.awaiting_sync[member.member_id]
            member.synced_ms = now
        if group.phase is Phase.STABLE:
            if self._deviations.rejoin_keeps_session:
                self._running.arm_session(group, member, now)
            self._running.out.replies.append(Reply(event.request_id, synced(group, member)))
        else:
            self._running.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))  # S12: the earlier SyncGroup
            member.sync = event.request_id
            self._running.parked[event.request_id] = (group.group_id, member.member_id)
            if member.member_id == group.leader:
                self._rebalances.take_assignment(group, request, now)
        if not group.awaiting_sync:
            self._running.disarm("sync", group)

    # -- Heartbeat

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        request: HeartbeatRequest = event.body
        error = self._heartbeat(request, now)
        if event.hold_ms > 0 and not error and self._hold(event, now):
            return
        self._running.out.replies.append(Reply(event.request_id, HeartbeatResponse(error_code=error)))

    def take_heartbeat(self, group_id: str, member_id: str, generation_id: int, now: Millis) -> SteadyAnswer | None:
        """Take a heartbeat that only postpones the end of its session. None, and nothing done, for any other."""
        group = self._running.groups.get(group_id)
        if group is None or generation_id != group.generation_id:
            return None
        member = group.members.get(member_id)
        if member is None:
            return None
        session = self._running.deadlines.find(("session", group_id, member_id))
        if session is None or not session.postpone(now + member.session_timeout_ms):
            return None
        return SteadyAnswer(REBALANCING if group.phase is PREPARING else 0, session, member.session_timeout_ms)

    def _hold(self, event: GroupRequested, now: Millis) -> bool:
        """Hold the answer until a rebalance starts; False if it cannot be held. Only for a member that has synced. The
        session was re-armed when the heartbeat arrived; the hold is short enough not to cost it."""
        group = self._running.groups[event.body.group_id]
        member = group.members[event.body.member_id]
        # The next heartbeat may arrive this long after the answer to this one.
        interval_ms = now - max(member.heartbeat_ms, member.synced_ms)
        member.heartbeat_ms = now
        hold_ms = min(event.hold_ms, member.session_timeout_ms // 3, member.session_timeout_ms * 2 // 3 - interval_ms)
        if hold_ms <= 0 or group.phase is not Phase.STABLE or member.member_id in group.awaiting_sync:
            return False
        self._running.answer_heartbeat(group, member, ErrorCode.NONE)  # an earlier one, on another connection
        member.heartbeat = event.request_id
        self._running.parked[event.request_id] = (group.group_id, member.member_id)
        until = now + hold_ms
        until -= until % min(hold_ms, HOLD_STEP_MS)
        self._running.deadlines.set(("hold", group.group_id, member.member_id), until)
        return True

    def answer_held(self, request_id: RequestId) -> None:
        found = self._running.parked.get(request_id)
        if found is not None:
            group = self._running.groups[found[0]]
            member = group.members[found[1]]
            if member.heartbeat == request_id:
                self._running.answer_heartbeat(group, member, ErrorCode.NONE)

    def _heartbeat(self, request: HeartbeatRequest, now: Millis) -> int:
        group = self._running.groups.get(request.group_id)
        error = check_generation(group, request)
        if error or group is None:
            return error
        self._running.arm_session(group, group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE

    # -- LeaveGroup

    def leave(self, event: GroupRequested, now: Millis) -> None:
        request: LeaveGroupRequest = event.body
        if not request.group_id:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        elif event.version >= 3:
            response = LeaveGroupResponse(error_code=0, members=self._leave(request.group_id, request.members, now))
        else:
            only = self._leave(request.group_id, (MemberIdentity(member_id=request.member_id),), now)[0]
            response = LeaveGroupResponse(error_code=only.error_code)
        self._running.out.replies.append(Reply(event.request_id, response))

    def _leave(self, group_id: str, identities: tuple[MemberIdentity, ...], now: Millis) -> tuple[MemberResponse, ...]:
        """All members that leave in one request cause one rebalance (L8)."""
        group = self._running.groups.get(group_id)
        members, pending = (0, 0) if group is None else (len(group.members), len(group.pending))
        results = tuple(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, identity, now),
            )
            for identity in identities
        )
        if group is not None and len(group.members) < members:
            self._rebalances.start(group, now, f"{members - len(group.members)} left")
        elif group is not None and len(group.pending) < pending:
            self._pending_gone(group, now)
        elif group is not None:
            self._rebalances.complete_if_all_joined(group, now)
        return results

    def _leave_one(self, group: Group, identity: MemberIdentity, now: Millis) -> int:
        member_id = identity.member_id
        instance = identity.group_instance_id
        by_operator = is_operators(identity)
        if not member_id and instance is not None:
            member_id = group.instances.get(instance, "")  # an operator removes a static member (L4)
        elif self._running.forget_pending(group, member_id):
            return ErrorCode.NONE
        error = check_member(group, member_id, instance)
        if error:
            return error
        if by_operator:
            self._rebalances.remove(group, member_id, now, operators_reason(identity))
        else:
            self._rebalances.remove(group, member_id, now, identity.reason or "", "member left")
        return ErrorCode.NONE

    def _pending_gone(self, group: Group, now: Millis) -> None:
        """A member id that was given out is not used any more."""
        if group.members and not self._deviations.pending_leaves:
            self._rebalances.start(group, now, "a member that had not joined is gone")
        else:
            self._rebalances.complete_if_all_joined(group, now)

    # -- time

    def deadline_reached(self, key: Key, now: Millis) -> None:
        kind, group_id, of = key
        group = self._running.groups.get(group_id)
        if group is None:
            return
        match kind:
            case "session" if of in group.members:
                self._session_ended(group, group.members[of], now)
            case "hold" if of in group.members:
                self._running.answer_heartbeat(group, group.members[of], ErrorCode.NONE)
            case "pending":
                group.pending.pop(of, None)
                self._pending_gone(group, now)
            case _ if of == str(group.generation_id):
                self._rebalances.phase_overdue(kind, group, now)

    def _session_ended(self, group: Group, member: Member, now: Millis) -> None:
        waits = member.join in self._running.parked or not (member.join is None or self._deviations.vanished_connection)
        if (waits and not member.is_new) or member.sync is not None:
            return  # answering the parked request re-arms it
        silent_ms = member.session_timeout_ms
        why = f"no request in {silent_ms} ms"
        if member.join in self._running.parked:
            silent_ms = self._config.group_new_member_join_timeout_ms
            why = "it was new and parked for too long"
        self._rebalances.remove(group, member.member_id, now, why, "session expired", silent_ms)
        self._rebalances.start(group, now, "a member's session expired", member)

    # -- load, unload, vanished connections

    def load(self, now: Millis) -> None:
        if not self._deviations.empty_group:
            known = self._hard.offsets.keys() | self._hard.pending.groups.keys()
            for group_id in known - self._hard.consumers.groups.keys() - {""}:
                self._running.groups[group_id] = Group(group_id)
        """Build the running groups from the hard state; sessions start with their full timeout (R3)."""
        for group_id, value in self._hard.groups.items():
            group = self._running.groups[group_id] = group_of(group_id, value)
            self._running.generation_began(group)
            for member in group.members.values():
                self._running.arm_session(group, member, now)
            if group.members:
                self._running.out.note(group, "group loaded", members=stories_of(group))
            if len(group.members) > self._config.group_max_size:
                self._rebalances.start(group, now, "the group is over group.max.size")
            elif group.members and self._running.highest_generation(group_id) > group.generation_id:
                # A later generation was announced and never synced; this one must not be announced again.
                self._rebalances.start(group, now, "a generation was lost")

    def unload(self) -> None:
        """Answer parked requests with NOT_COORDINATOR (R1)."""
        for group in self._running.groups.values():
            for member in group.members.values():
                self._running.answer_join(
                    group, member, join_error(ErrorCode.NOT_COORDINATOR, member.join_version, member.member_id)
                )
                self._running.answer_sync(member, sync_error(ErrorCode.NOT_COORDINATOR))
                self._running.answer_heartbeat(group, member, ErrorCode.NOT_COORDINATOR)
            if group.members:
                self._running.out.note(group, "group unloaded")
        self._running.groups.clear()
        self._running.parked.clear()
        self._running.deadlines = Deadlines()

    def abandon(self, request_id: RequestId, now: Millis) -> None:
        """The connection of a parked request is closed: the member's session counts again.

        Its join or sync stays valid: the member returns under its id, fails to sync, or its session ends."""
        found = self._running.parked.pop(request_id, None)
        if found is None:
            return
        group = self._running.groups[found[0]]
        member = group.members[found[1]]
        if member.heartbeat == request_id:
            member.heartbeat = None
            self._running.deadlines.clear(("hold", group.group_id, member.member_id))
            return
        if member.sync == request_id:
            member.sync = None
        if self._deviations.vanished_connection:
            self._running.arm_session(group, member, now)
