"""The classic group: what each request does in each state; rebalance.py goes on from there
(GroupMetadataManager.java, classic/ClassicGroup.java).

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

A group that is deleted or unloaded is no longer there; there is no Dead group that a request could meet.

Records: a group's metadata is written when the leader's assignment arrives, when the group becomes empty, and when a
static member takes over from its former self. Between the end of a join and the leader's sync the log holds only that
the generation is taken (docs/decisions/0002): after a crash there the group goes on with the rebalance, to a number
above the lost one.

Sessions: every accepted request of a member re-arms its session. While a request of it is parked, it is the server
that keeps the member waiting, and its session does not count (H11), unless the member is new (J23) or its connection
is gone.

Held heartbeats: where the broker allows it (`hold_ms`), the heartbeat of a member that has its assignment is parked in
Stable and answered with 27 the moment a rebalance starts, so that the member need not find out with its next one. It
is answered with 0 when its time is up or when the broker says that another request waits behind it (AnswerHeld). Some
clients (franz-go) count their interval from the answer on, so the hold and the interval that the member has shown must
leave a third of its session.

Where it differs from Kafka on purpose: a request that a newer one of the same member replaces is answered with 27 and
not forgotten; a pending member that leaves starts no rebalance; a static member that returns before it synced keeps
its place among those who have yet to sync; a refused JoinGroup founds no group; a group has a size in bytes, beyond
which joins get 81.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import LONGEST_NAME, check_join, check_member, check_sync
from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.classic.group_record import group_of, value_of
from kohort.coordinator.classic.protocol_vote import supports, vote
from kohort.coordinator.classic.protocols import Protocols, size_of
from kohort.coordinator.classic.rebalance import Rebalances
from kohort.coordinator.classic.responses import join_error, joined, sync_error, synced
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.effects import stories_of
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import group_record
from kohort.coordinator.soft_state import Key, Running
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest

REBALANCING, PREPARING = int(ErrorCode.REBALANCE_IN_PROGRESS), Phase.PREPARING
"""To look a member of an enumeration up takes longer than the rest of a heartbeat (Python 3.11)."""
HOLD_STEP_MS = 100
"""Heartbeats are held until a multiple of this, so that many are answered in one turn."""


class ClassicGroups:
    """Takes the requests of classic groups."""

    def __init__(self, config: Config, hard: HardState, running: Running) -> None:
        self._config = config
        self._hard = hard
        self._running = running
        self._rebalances = Rebalances(config, hard, running)

    # -- JoinGroup

    def join(self, event: GroupRequested, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        error = check_join(request, self._config)
        if error:
            return self._refuse_join(event, error)
        group = self._running.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            generation = self._hard.generations.get(request.group_id, self._hard.forgotten)
            group = Group(request.group_id, since=now, generation_id=generation)
        elif not self._has_room(group, request):
            return self._turn_away(group, event, now)
        protocols: Protocols = tuple((p.name, p.metadata) for p in request.protocols)
        if not supports(group, request.protocol_type, protocols):
            return self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._bytes_with(group, request, protocols) > self._config.group_max_bytes:
            return self._turn_away(group, event, now)
        if request.member_id:
            return self._join_known(group, event, protocols, now)
        return self._join_new(group, event, protocols, now)

    def _has_room(self, group: Group, request: JoinGroupRequest) -> bool:
        """Whether a member may join, by group.max.size (J26).

        A rebalance counts who is back, so the late ones go; late static members stay, and count. A static member that
        returns has its place, whatever id it comes with.
        """
        limit = self._config.group_max_size
        if group.phase is Phase.EMPTY or request.group_instance_id in group.instances:
            return True
        member = group.members.get(request.member_id)
        if group.phase is not Phase.PREPARING:
            return member is not None or len(group.members) < limit
        if member is not None and member.join is not None:
            return True
        if group.parked_joins + len(group.instances) < limit:
            return True
        late = sum(1 for member_id in group.instances.values() if group.members[member_id].join is None)
        return group.parked_joins + late < limit

    def _bytes_with(self, group: Group, request: JoinGroupRequest, protocols: Protocols) -> int:
        """What the leader would be sent at most, and what the group's record would hold: they need a limit (R5)."""
        former = group.members.get(request.member_id or group.instances.get(request.group_instance_id or "", ""))
        return group.protocol_bytes + size_of(protocols) - (former.protocol_bytes if former is not None else 0)

    def _turn_away(self, group: Group, event: GroupRequested, now: Millis) -> None:
        member_id = event.body.member_id
        if member_id in group.members:
            member = self._rebalances.remove(group, member_id, now, "the group is full")
            self._rebalances.start(group, now, "a member was removed: the group is full", member)
        elif self._running.forget_pending(group, member_id):
            self._rebalances.complete_if_all_joined(group, now)
        return self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")

    def _join_new(self, group: Group, event: GroupRequested, protocols: Protocols, now: Millis) -> None:
        """Somebody without a member id: a new member, or a static one that is back."""
        request: JoinGroupRequest = event.body
        instance = request.group_instance_id
        is_new_group = group.group_id not in self._running.groups
        self._running.groups[group.group_id] = group
        if instance is not None:
            member_id = f"{instance}-{event.nonce}"
            if instance in group.instances:
                return self._replace_static(group, group.instances[instance], member_id, event, protocols, now)
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        member_id = f"{event.client.client_id[:LONGEST_NAME]}-{event.nonce}"
        if event.version < 4:
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        if is_new_group:
            self._running.persist(group)  # J37
        if len(group.pending) >= self._config.group_max_pending_members:
            self._running.forget_pending(group, next(iter(group.pending)))
        group.pending[member_id] = request.session_timeout_ms
        self._running.deadlines.set(("pending", group.group_id, member_id), now + request.session_timeout_ms)
        return self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)

    def _join_known(self, group: Group, event: GroupRequested, protocols: Protocols, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        member_id = request.member_id
        if member_id in group.pending:
            if request.group_instance_id is not None:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            self._running.forget_pending(group, member_id)
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        error = check_member(group, member_id, request.group_instance_id)
        if error:
            return self._refuse_join(event, error)
        member = group.members[member_id]
        unchanged = member.protocols == protocols
        is_leader = member_id == group.leader
        if not unchanged:
            self._running.out.note(
                group, "subscription changed", _why_changed(member, protocols, request.reason), member
            )
        if group.phase is Phase.PREPARING:
            return self._update_and_rebalance(group, member, event, protocols, now, "a member rejoined")
        if unchanged and (group.phase is Phase.COMPLETING or not is_leader):
            # It missed the answer to its last JoinGroup, or asks without need (J18, J20).
            self._running.arm_session(group, member, now)
            self._running.out.replies.append(Reply(event.request_id, joined(group, member, with_members=is_leader)))
            return None
        if unchanged:
            self._running.out.note(group, "leader rejoined", request.reason or "", member)
        why = "the leader rejoined" if unchanged else "a member's protocols changed"
        return self._update_and_rebalance(group, member, event, protocols, now, why)

    def _add_and_rebalance(
        self, group: Group, member_id: str, event: GroupRequested, protocols: Protocols, now: Millis
    ) -> None:
        request: JoinGroupRequest = event.body
        member = Member(
            member_id,
            request.group_instance_id,
            event.client,
            request.session_timeout_ms,
            _rebalance_timeout(event),
            protocols,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if member.instance_id is not None:
            group.instances[member.instance_id] = member_id
        if group.leader is None:
            group.leader = member_id
        if group.initial:
            group.joined_in_window = True
        self._running.park_join(group, member, event, now)
        # It may not know its id yet, and then cannot heartbeat while it is parked.
        self._running.deadlines.set(
            ("session", group.group_id, member_id), now + self._config.group_new_member_join_timeout_ms
        )
        self._running.out.note(group, "member joined", request.reason or "", member)
        self._rebalances.start(group, now, "a member joined", member)

    def _update(self, group: Group, member: Member, event: GroupRequested, protocols: Protocols) -> None:
        group.change_protocols(member, protocols)
        member.client = event.client
        member.session_timeout_ms = event.body.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout(event)

    def _update_and_rebalance(
        self, group: Group, member: Member, event: GroupRequested, protocols: Protocols, now: Millis, why: str
    ) -> None:
        self._update(group, member, event, protocols)
        self._running.park_join(group, member, event, now)
        self._rebalances.start(group, now, why, member, same_members=True)

    def _replace_static(
        self, group: Group, former_id: str, member_id: str, event: GroupRequested, protocols: Protocols, now: Millis
    ) -> None:
        """A static member is back under a new id; its former self is fenced (J30-J32)."""
        member = group.members[former_id]
        self._running.answer_join(
            group, member, join_error(ErrorCode.FENCED_INSTANCE_ID, member.join_version, former_id)
        )
        self._running.answer_sync(member, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        self._running.answer_heartbeat(group, member, ErrorCode.FENCED_INSTANCE_ID)
        was_leader = group.leader == former_id
        self._rename(group, member, member_id)
        self._update(group, member, event, protocols)
        self._running.arm_session(group, member, now)
        self._running.out.note(group, "static member returned", event.body.reason or "", member)
        if group.phase is not Phase.STABLE:
            self._running.park_join(group, member, event, now)
            return self._rebalances.start(group, now, "a static member returned", member, same_members=True)
        record = group_record(group.group_id, value_of(group))
        if vote(group) != group.protocol or self._rebalances.is_too_large(record):
            self._running.park_join(group, member, event, now)
            why = "a static member returned with other protocols"
            return self._rebalances.start(group, now, why, member, same_members=True)
        self._running.out.records.append(record)
        # Below version 9 a leader would compute an assignment that nobody takes: it is told of its old id.
        skip = was_leader and event.version >= 9
        leader = former_id if was_leader and not skip else None
        response = joined(group, member, with_members=skip, leader=leader, skip_assignment=skip)
        self._running.out.replies.append(Reply(event.request_id, response))
        return None

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        """Give a static member its new id, in its old place: the order of the members decides who leads next."""
        former_id = member.member_id
        group.members = {(member_id if key == former_id else key): value for key, value in group.members.items()}
        if former_id in group.awaiting_sync:
            del group.awaiting_sync[former_id]
            group.awaiting_sync[member_id] = None
        if group.leader == former_id:
            group.leader = member_id
        if member.instance_id is not None:
            group.instances[member.instance_id] = member_id
        member.member_id = member_id
        member.is_new = False
        self._running.deadlines.clear(("session", group.group_id, former_id))

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
            self._running.arm_session(group, member, now)
            self._running.out.replies.append(Reply(event.request_id, synced(group, member)))
        else:
            self._running.answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))  # S12: the one it replaces
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
        """Whether the answer waits for a rebalance. Only that of a member that owes nothing, and never so long that it
        could cost a session; it was re-armed when the heartbeat came, and is not again."""
        group = self._running.groups[event.body.group_id]
        member = group.members[event.body.member_id]
        # The next heartbeat may come this long after the answer to this one.
        interval_ms = now - max(member.heartbeat_ms, member.synced_ms)
        member.heartbeat_ms = now
        hold_ms = min(event.hold_ms, member.session_timeout_ms // 3, member.session_timeout_ms * 2 // 3 - interval_ms)
        if hold_ms <= 0 or group.phase is not Phase.STABLE or member.member_id in group.awaiting_sync:
            return False
        self._running.answer_heartbeat(group, member, ErrorCode.NONE)  # a former one, on another connection
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
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        error = check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
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
        """All that leave in one request cost one rebalance (L8)."""
        group = self._running.groups.get(group_id)
        members = 0 if group is None else len(group.members)
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
        elif group is not None:
            self._rebalances.complete_if_all_joined(group, now)
        return results

    def _leave_one(self, group: Group, identity: MemberIdentity, now: Millis) -> int:
        member_id = identity.member_id
        instance = identity.group_instance_id
        by_operator = not member_id and instance is not None
        if not member_id and instance is not None:
            member_id = group.instances.get(instance, "")  # an operator removes a static member (L4)
        elif self._running.forget_pending(group, member_id):
            return ErrorCode.NONE
        error = check_member(group, member_id, instance)
        if error:
            return error
        reason = identity.reason or ""
        if by_operator:
            self._rebalances.remove(
                group, member_id, now, f"an operator removed it: {reason}" if reason else "by an operator"
            )
        else:
            self._rebalances.remove(group, member_id, now, reason, "member left")
        return ErrorCode.NONE

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
                self._rebalances.complete_if_all_joined(group, now)
            case _ if of == str(group.generation_id):
                self._rebalances.phase_overdue(kind, group, now)

    def _session_ended(self, group: Group, member: Member, now: Millis) -> None:
        if (member.join in self._running.parked and not member.is_new) or member.sync is not None:
            return  # the answer to what is parked re-arms it
        silent_ms = member.session_timeout_ms
        why = f"no request in {silent_ms} ms"
        if member.join in self._running.parked:
            silent_ms = self._config.group_new_member_join_timeout_ms
            why = "it was new and parked for too long"
        self._rebalances.remove(group, member.member_id, now, why, "session expired", silent_ms)
        self._rebalances.start(group, now, "a member's session expired", member)

    # -- load, unload, vanished connections

    def load(self, now: Millis) -> None:
        """Build the running groups from the hard state; sessions start afresh (R3)."""
        for group_id, value in self._hard.groups.items():
            group = self._running.groups[group_id] = group_of(group_id, value)
            for member in group.members.values():
                self._running.arm_session(group, member, now)
            if group.members:
                self._running.out.note(group, "group loaded", members=stories_of(group))
            if len(group.members) > self._config.group_max_size:
                self._rebalances.start(group, now, "the group is over group.max.size")
            elif group.members and self._hard.generations.get(group_id, 0) > group.generation_id:
                # A later one was announced and never synced. Nobody may be told of this one again.
                self._rebalances.start(group, now, "a generation was lost")

    def unload(self) -> None:
        """Parked requests are answered: the coordinator is elsewhere (R1)."""
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
        """The client of a parked request is gone: from now on its session counts again.

        Its join or sync still counts: it comes back under its id, or does not sync, or its session ends.
        """
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
        self._running.arm_session(group, member, now)

    def _refuse_join(self, event: GroupRequested, error: int, member_id: str | None = None) -> None:
        told = event.body.member_id if member_id is None else member_id
        self._running.out.replies.append(Reply(event.request_id, join_error(error, event.version, told)))


def _why_changed(member: Member, protocols: Protocols, reason: str | None) -> str:
    if reason:
        return reason
    if len(member.protocols) == 1 and member.protocols[0] in protocols:
        return "after a restart only the protocol in use was known of it"  # J36
    return ""


def _rebalance_timeout(event: GroupRequested) -> Millis:
    """Version 0 has none of its own (J27)."""
    request: JoinGroupRequest = event.body
    return max(request.rebalance_timeout_ms, 0) if event.version >= 1 else request.session_timeout_ms
