"""The classic group's machine: every transition, in one place (GroupMetadataManager.java, classic/ClassicGroup.java).

    Empty ──join──► PreparingRebalance ──all joined, or time is up──► CompletingRebalance ──leader's sync──► Stable
      ▲                  │  ▲   ▲                                          │                                   │
      └──nobody left─────┘  │   └──── a join that changes something ───────┘                                   │
                            └──── join, leave, expiry ─────────────────────────────────────────────────────────┘
    any ──deleted, expired, unloaded──► Dead

| state | JoinGroup | SyncGroup | Heartbeat | OffsetCommit |
| --- | --- | --- | --- | --- |
| Empty | starts the initial rebalance | 25 | 25 | generation -1 only |
| PreparingRebalance | parked | 27 | 27, session re-armed | accepted |
| CompletingRebalance | same metadata: current generation; else a new rebalance | parked until the leader's | 0 | 27 |
| Stable | leader or changed metadata: rebalance; else current generation | own assignment | 0 | accepted |
| Dead | 15 | 15 | 15 | 15 |

Records: a group's metadata is written when the leader's assignment arrives, when the group becomes empty, and when a
static member takes over from its former self. Between the end of a join and the leader's sync the log holds only that
the generation is taken (docs/decisions/0002): a crash there leaves the last synced generation, and no member can
mistake the lost one for it.
"""

from __future__ import annotations

from collections import Counter

from kohort.config import Config
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.events import Client, GroupRequested, JournalEntry, Millis, Record, Reply, RequestId
from kohort.coordinator.records import generation_record, group_record
from kohort.coordinator.state import Group, HardState, Member, Phase, Protocols
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import GroupMetadataValue, MemberMetadata
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

Key = tuple[str, str, str]
"""Of a deadline: kind (session, pending, join, initial, sync), group id, member id or ""."""


class Outbox:
    """The effects of the step that is under way."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.journal: list[JournalEntry] = []


class ClassicGroups:
    """The running classic groups of a shard."""

    def __init__(self, config: Config, hard: HardState) -> None:
        self._config = config
        self._hard = hard
        self.groups: dict[str, Group] = {}
        self.deadlines: Deadlines[Key] = Deadlines()
        self.parked: dict[RequestId, tuple[str, str]] = {}
        """Parked requests: group and member."""
        self.out = Outbox()

    # -- JoinGroup

    def join(self, event: GroupRequested, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        config = self._config
        if not request.group_id:
            return self._refuse_join(event, ErrorCode.INVALID_GROUP_ID)
        if not (
            config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            return self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            if not request.protocol_type or not request.protocols:
                return self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = self.groups[request.group_id] = Group(
                request.group_id, since=now, generation_id=self._hard.generations.get(request.group_id, 0)
            )
            if event.version >= 4 and request.group_instance_id is None:
                self._persist(group)  # J37
        if not self._has_room(group, request.member_id):
            if request.member_id in group.members:
                self._remove(group, request.member_id, now, "group is full")
                self._after_removal(group, now, "a member was removed: the group is full")
            group.pending.pop(request.member_id, None)
            return self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
        protocols: Protocols = tuple((p.name, p.metadata) for p in request.protocols)
        if not _supports(group, request.protocol_type, protocols):
            return self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            return self._join_new(group, event, protocols, now)
        return self._join_known(group, event, protocols, now)

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._config.group_max_size
        match group.phase:
            case Phase.EMPTY | Phase.DEAD:
                return True
            case Phase.PREPARING:
                member = group.members.get(member_id)
                return (member is not None and member.join is not None) or group.parked_joins < limit
            case _:
                return member_id in group.members or len(group.members) < limit

    def _join_new(self, group: Group, event: GroupRequested, protocols: Protocols, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        instance = request.group_instance_id
        if instance is not None:
            member_id = f"{instance}-{event.nonce}"
            former = group.instances.get(instance)
            if former is None:
                return self._add_and_rebalance(group, member_id, event, protocols, now)
            return self._replace_static(group, former, member_id, event, protocols, now)
        member_id = f"{event.client.client_id}-{event.nonce}"
        if event.version < 4:
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        group.pending[member_id] = request.session_timeout_ms
        self.deadlines.set(("pending", group.group_id, member_id), now + request.session_timeout_ms)
        return self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)

    def _join_known(self, group: Group, event: GroupRequested, protocols: Protocols, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        member_id = request.member_id
        if member_id in group.pending:
            if request.group_instance_id is not None:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            del group.pending[member_id]
            self.deadlines.clear(("pending", group.group_id, member_id))
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        error = check_member(group, member_id, request.group_instance_id)
        if error:
            return self._refuse_join(event, error)
        member = group.members[member_id]
        unchanged = member.protocols == protocols
        match group.phase:
            case Phase.PREPARING:
                return self._update_and_rebalance(group, member, event, protocols, now, "")
            case Phase.COMPLETING if unchanged:
                return self._reply_current(group, member, event, with_members=member_id == group.leader, now=now)
            case Phase.STABLE if unchanged and member_id != group.leader:
                return self._reply_current(group, member, event, with_members=False, now=now)
            case Phase.COMPLETING | Phase.STABLE:
                why = "the leader rejoined" if unchanged else "a member's subscription changed"
                return self._update_and_rebalance(group, member, event, protocols, now, why)
            case _:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)

    def _add_and_rebalance(
        self, group: Group, member_id: str, event: GroupRequested, protocols: Protocols, now: Millis
    ) -> None:
        request: JoinGroupRequest = event.body
        rebalance_timeout = request.rebalance_timeout_ms
        member = Member(
            member_id,
            request.group_instance_id,
            event.client,
            request.session_timeout_ms,
            rebalance_timeout if event.version >= 1 else request.session_timeout_ms,
            protocols,
            is_new=True,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members[member_id] = member
        if member.instance_id is not None:
            group.instances[member.instance_id] = member_id
        if group.leader is None:
            group.leader = member_id
        if group.initial:
            group.joined_in_window = True
        self._park_join(group, member, event)
        # A new member does not know its id and cannot heartbeat while it is parked (J23).
        self.deadlines.set(("session", group.group_id, member_id), now + self._config.group_new_member_join_timeout_ms)
        self._note(group, "member joined", request.reason or "", member_id)
        self._rebalance(group, now, "a member joined")

    def _update_and_rebalance(
        self, group: Group, member: Member, event: GroupRequested, protocols: Protocols, now: Millis, why: str
    ) -> None:
        request: JoinGroupRequest = event.body
        member.protocols = protocols
        member.client = event.client
        member.session_timeout_ms = request.session_timeout_ms
        if event.version >= 1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._park_join(group, member, event)
        self._rebalance(group, now, why)

    def _replace_static(
        self, group: Group, former_id: str, member_id: str, event: GroupRequested, protocols: Protocols, now: Millis
    ) -> None:
        """A static member is back under a new id; its former self is fenced (J30-J32)."""
        request: JoinGroupRequest = event.body
        former = group.members[former_id]
        self._answer_join(former, _join_error(ErrorCode.FENCED_INSTANCE_ID, former.join_version, former_id))
        self._answer_sync(former, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, assignment=b""))
        was_leader = group.leader == former_id
        # The order of members decides who leads next; the newcomer takes its former self's place in it.
        group.members = {(member_id if key == former_id else key): value for key, value in group.members.items()}
        if former_id in group.awaiting_sync:
            del group.awaiting_sync[former_id]
            group.awaiting_sync[member_id] = None
        former.member_id = member_id
        group.instances[request.group_instance_id or ""] = member_id
        if was_leader:
            group.leader = member_id
        self.deadlines.clear(("session", group.group_id, former_id))
        self._note(group, "static member returned", request.reason or "", member_id)
        member = former
        if group.phase is not Phase.STABLE:
            self._arm_session(group, member, now)
            return self._update_and_rebalance(group, member, event, protocols, now, "a static member returned")
        member.protocols = protocols
        member.client = event.client
        member.session_timeout_ms = request.session_timeout_ms
        if event.version >= 1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._arm_session(group, member, now)
        if _vote(group) != group.protocol:
            self._park_join(group, member, event)
            return self._rebalance(group, now, "a static member returned with other protocols")
        self._persist(group)
        is_leader = group.leader == member_id
        skip = is_leader and event.version >= 9
        response = self._current(group, member, with_members=skip)
        self.out.replies.append(
            Reply(
                event.request_id,
                JoinGroupResponse(
                    error_code=0,
                    generation_id=response.generation_id,
                    protocol_type=response.protocol_type,
                    protocol_name=response.protocol_name,
                    # Below version 9 a leader would compute an assignment that nobody takes: it is told of its old id.
                    leader=former_id if is_leader and not skip else response.leader,
                    skip_assignment=skip,
                    member_id=member_id,
                    members=response.members,
                ),
            )
        )
        return None

    # -- the rebalance

    def _rebalance(self, group: Group, now: Millis, why: str) -> None:
        if group.phase is Phase.PREPARING:
            return self._complete_join_if_all_joined(group, now)
        if group.phase is Phase.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
        self.deadlines.clear(("sync", group.group_id, ""))
        group.awaiting_sync.clear()
        was_empty = group.phase is Phase.EMPTY
        self._enter(group, Phase.PREPARING, now)
        self._note(group, "rebalance started", why)
        if was_empty:
            delay = self._config.group_initial_rebalance_delay_ms
            group.initial = True
            group.joined_in_window = False
            group.window_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
            self.deadlines.set(("initial", group.group_id, ""), now + delay)
            return None
        return self._complete_join_if_all_joined(group, now)

    def _window_ended(self, group: Group, now: Millis) -> None:
        """The initial window is over; joins in it earn one more (J11)."""
        if group.joined_in_window and group.window_remaining_ms > 0:
            group.joined_in_window = False
            delay = min(self._config.group_initial_rebalance_delay_ms, group.window_remaining_ms)
            group.window_remaining_ms = max(group.window_remaining_ms - delay, 0)
            self.deadlines.set(("initial", group.group_id, ""), now + delay)
            return
        self._complete_join(group, now)

    def _complete_join_if_all_joined(self, group: Group, now: Millis) -> None:
        if group.initial:
            return
        if not group.pending and all(m.join is not None for m in group.members.values()):
            self._complete_join(group, now)
        elif ("join", group.group_id, "") not in self.deadlines:
            self.deadlines.set(("join", group.group_id, ""), now + group.rebalance_timeout_ms)

    def _complete_join(self, group: Group, now: Millis) -> None:
        """Everybody joined, or the time is up: the next generation begins with those that are here (J13-J16)."""
        self.deadlines.clear(("join", group.group_id, ""))
        self.deadlines.clear(("initial", group.group_id, ""))
        group.initial = False
        late = [m for m in group.members.values() if m.join is None]
        for member in late:
            if member.instance_id is None:
                self._note(group, "member removed", "it did not rejoin in time", member.member_id)
                self._remove(group, member.member_id, now, "")
        joined = [m for m in group.members.values() if m.join is not None]
        if group.members and not joined:
            # Only static members that are away: wait on, until they come or their sessions end.
            self.deadlines.set(("join", group.group_id, ""), now + group.rebalance_timeout_ms)
            return
        if joined and (group.leader is None or group.members[group.leader].join is None):
            group.leader = joined[0].member_id
        group.generation_id = max(group.generation_id, self._hard.generations.get(group.group_id, 0)) + 1
        self.out.records.append(generation_record(group.group_id, group.generation_id))
        if not group.members:
            group.protocol = None
            group.leader = None
            self._enter(group, Phase.EMPTY, now)
            self._persist(group)
            self._note(group, "group is empty", "")
            return
        group.protocol = _vote(group)
        self._enter(group, Phase.COMPLETING, now)
        self._note(group, "generation began", "")
        for member in group.members.values():
            group.awaiting_sync[member.member_id] = None
            member.is_new = False
            self._arm_session(group, member, now)
            self._answer_join(member, self._current(group, member, with_members=member.member_id == group.leader))
        self.deadlines.set(("sync", group.group_id, ""), now + group.rebalance_timeout_ms)

    def _sync_overdue(self, group: Group, now: Millis) -> None:
        """Members that were told of their generation and never synced hold up everybody: they go (KAFKA-12890)."""
        overdue = list(group.awaiting_sync)
        if not overdue or group.phase not in (Phase.COMPLETING, Phase.STABLE):
            return
        for member_id in overdue:
            self._note(group, "member removed", "it did not sync in time", member_id)
            self._remove(group, member_id, now, "")
        self._rebalance(group, now, f"{len(overdue)} members did not sync in time")

    # -- SyncGroup, Heartbeat, LeaveGroup

    def sync(self, event: GroupRequested, now: Millis) -> None:
        request: SyncGroupRequest = event.body
        group = self.groups.get(request.group_id)
        error = _check_sync(group, request, event.version)
        if error or group is None:
            self.out.replies.append(Reply(event.request_id, SyncGroupResponse(error_code=error, assignment=b"")))
            return
        member = group.members[request.member_id]
        group.awaiting_sync.pop(member.member_id, None)
        if group.phase is Phase.STABLE:
            self._arm_session(group, member, now)
            self.out.replies.append(Reply(event.request_id, self._synced(group, member)))
            if not group.awaiting_sync:
                self.deadlines.clear(("sync", group.group_id, ""))
            return
        if member.sync is not None:
            self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, assignment=b""))
        member.sync = event.request_id
        self.parked[event.request_id] = (group.group_id, member.member_id)
        if member.member_id == group.leader:
            self._take_assignment(group, request, now)

    def _take_assignment(self, group: Group, request: SyncGroupRequest, now: Millis) -> None:
        given = {a.member_id: a.assignment for a in request.assignments}
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
        self._enter(group, Phase.STABLE, now)
        self._persist(group)
        self._note(group, "group is stable", "")
        for member in group.members.values():
            if member.sync is not None:
                self._arm_session(group, member, now)
                self._answer_sync(member, self._synced(group, member))
        if not group.awaiting_sync:
            self.deadlines.clear(("sync", group.group_id, ""))

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        request: HeartbeatRequest = event.body
        error = self._heartbeat(request, now)
        self.out.replies.append(Reply(event.request_id, HeartbeatResponse(error_code=error)))

    def _heartbeat(self, request: HeartbeatRequest, now: Millis) -> int:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._arm_session(group, group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is Phase.PREPARING else ErrorCode.NONE

    def leave(self, event: GroupRequested, now: Millis) -> None:
        request: LeaveGroupRequest = event.body
        identities = request.members if event.version >= 3 else (MemberIdentity(member_id=request.member_id),)
        if not request.group_id:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        else:
            group = self.groups.get(request.group_id)
            results = tuple(self._leave_one(group, identity, now) for identity in identities)
            if group is not None and any(r.error_code == 0 for r in results):
                self._after_removal(group, now, "a member left")
            if event.version >= 3:
                response = LeaveGroupResponse(error_code=0, members=results)
            else:
                response = LeaveGroupResponse(error_code=results[0].error_code)
        self.out.replies.append(Reply(event.request_id, response))

    def _leave_one(self, group: Group | None, identity: MemberIdentity, now: Millis) -> MemberResponse:
        member_id = identity.member_id
        instance = identity.group_instance_id
        if group is None:
            error: int = ErrorCode.UNKNOWN_MEMBER_ID
        elif not member_id and instance is not None:
            member_id = group.instances.get(instance, "")
            error = 0 if member_id else ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending:
            error = 0
        else:
            error = check_member(group, member_id, instance)
        if not error and group is not None:
            if member_id in group.pending:
                del group.pending[member_id]
                self.deadlines.clear(("pending", group.group_id, member_id))
            else:
                self._note(group, "member left", identity.reason or "", member_id)
                self._remove(group, member_id, now, "")
        return MemberResponse(member_id=identity.member_id, group_instance_id=instance, error_code=error)

    # -- members

    def touch(self, group: Group, member_id: str, now: Millis) -> None:
        self._arm_session(group, group.members[member_id], now)

    def _arm_session(self, group: Group, member: Member, now: Millis) -> None:
        self.deadlines.set(("session", group.group_id, member.member_id), now + member.session_timeout_ms)

    def _remove(self, group: Group, member_id: str, now: Millis, why: str) -> None:
        member = group.members.pop(member_id)
        if member.instance_id is not None and group.instances.get(member.instance_id) == member_id:
            del group.instances[member.instance_id]
        group.awaiting_sync.pop(member_id, None)
        self.deadlines.clear(("session", group.group_id, member_id))
        self._answer_join(member, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.join_version, ""))
        self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, assignment=b""))
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)
        if why:
            self._note(group, "member removed", why, member_id)

    def _after_removal(self, group: Group, now: Millis, why: str) -> None:
        match group.phase:
            case Phase.STABLE | Phase.COMPLETING | Phase.PREPARING:
                self._rebalance(group, now, why)
            case _:
                pass

    # -- time

    def deadline_reached(self, key: Key, now: Millis) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return
        match kind:
            case "pending":
                if group.pending.pop(member_id, None) is not None and group.phase is Phase.PREPARING:
                    self._complete_join_if_all_joined(group, now)
            case "session":
                self._session_ended(group, member_id, now)
            case "initial":
                self._window_ended(group, now)
            case "join":
                self._complete_join(group, now)
            case "sync":
                self._sync_overdue(group, now)

    def _session_ended(self, group: Group, member_id: str, now: Millis) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if (member.join is not None and not member.is_new) or member.sync is not None:
            # Parked: it is the server that keeps it waiting (H11).
            self._arm_session(group, member, now)
            return
        silence = member.session_timeout_ms
        self._note(group, "session expired", f"{silence} ms of silence", member_id)
        self._remove(group, member_id, now, "")
        self._after_removal(group, now, "a member's session expired")

    # -- load, unload, deletion

    def load(self, now: Millis) -> None:
        """Build the running groups from the hard state; sessions start afresh (R3)."""
        for group_id, value in self._hard.groups.items():
            group = Group(
                group_id,
                Phase.STABLE if value.members else Phase.EMPTY,
                since=value.current_state_timestamp,
                protocol_type=value.protocol_type or None,
                protocol=value.protocol,
                generation_id=value.generation,
                leader=value.leader,
            )
            for stored in value.members:
                member = Member(
                    stored.member_id,
                    stored.group_instance_id,
                    Client(stored.client_id, stored.client_host),
                    stored.session_timeout,
                    stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
                    ((value.protocol or "", stored.subscription),),
                    stored.assignment,
                )
                group.members[member.member_id] = member
                if member.instance_id is not None:
                    group.instances[member.instance_id] = member.member_id
                self._arm_session(group, member, now)
            self.groups[group_id] = group

    def unload(self) -> None:
        """Parked requests are answered: the coordinator is elsewhere (R1)."""
        for group in self.groups.values():
            for member in group.members.values():
                self._answer_join(member, _join_error(ErrorCode.NOT_COORDINATOR, member.join_version, member.member_id))
                self._answer_sync(member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, assignment=b""))
            group.phase = Phase.DEAD
        self.groups.clear()
        self.parked.clear()
        self.deadlines = Deadlines()

    def delete(self, group: Group) -> None:
        """Forget a group that is empty. Its highest generation stays in the log."""
        for member_id in group.pending:
            self.deadlines.clear(("pending", group.group_id, member_id))
        group.phase = Phase.DEAD
        del self.groups[group.group_id]
        if group.group_id in self._hard.groups:
            self.out.records.append(group_record(group.group_id, None))

    def abandon(self, request_id: RequestId) -> None:
        """The client of a parked request is gone; its member stays until its session ends."""
        found = self.parked.pop(request_id, None)
        if found is None:
            return
        group = self.groups.get(found[0])
        member = group.members.get(found[1]) if group is not None else None
        # A parked join still counts as joined: the member comes back, or does not sync, or its session ends.
        if member is not None and member.sync == request_id:
            member.sync = None

    # -- what leaves

    def _enter(self, group: Group, phase: Phase, now: Millis) -> None:
        group.phase = phase
        group.since = now

    def _persist(self, group: Group) -> None:
        value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol,
            leader=group.leader,
            current_state_timestamp=group.since,
            members=tuple(
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client.client_id,
                    client_host=m.client.host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.metadata_of(group.protocol),
                    assignment=m.assignment,
                )
                for m in group.members.values()
            ),
        )
        self.out.records.append(group_record(group.group_id, value))

    def _park_join(self, group: Group, member: Member, event: GroupRequested) -> None:
        if member.join is not None:
            self._answer_join(member, _join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.join_version, member.member_id))
        member.join = event.request_id
        member.join_version = event.version
        self.parked[event.request_id] = (group.group_id, member.member_id)

    def _answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        request_id, member.join = member.join, None
        if request_id is not None and self.parked.pop(request_id, None) is not None:
            self.out.replies.append(Reply(request_id, response))

    def _answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        request_id, member.sync = member.sync, None
        if request_id is not None and self.parked.pop(request_id, None) is not None:
            self.out.replies.append(Reply(request_id, response))

    def _refuse_join(self, event: GroupRequested, error: int, member_id: str | None = None) -> None:
        told = event.body.member_id if member_id is None else member_id
        self.out.replies.append(Reply(event.request_id, _join_error(error, event.version, told)))

    def _current(self, group: Group, member: Member, *, with_members: bool) -> JoinGroupResponse:
        members: tuple[JoinGroupResponseMember, ...] = ()
        if with_members:
            members = tuple(
                JoinGroupResponseMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    metadata=m.metadata_of(group.protocol),
                )
                for m in group.members.values()
            )
        return JoinGroupResponse(
            error_code=0,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or "",
            member_id=member.member_id,
            members=members,
        )

    def _reply_current(
        self, group: Group, member: Member, event: GroupRequested, *, with_members: bool, now: Millis
    ) -> None:
        self._arm_session(group, member, now)
        self.out.replies.append(Reply(event.request_id, self._current(group, member, with_members=with_members)))

    def _synced(self, group: Group, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            assignment=member.assignment,
        )

    def _note(self, group: Group, what: str, cause: str, member_id: str = "") -> None:
        self.out.journal.append(JournalEntry(group.group_id, what, cause, group.generation_id, member_id))


def _join_error(error: int, version: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=(),
    )


def check_member(group: Group, member_id: str, instance_id: str | None) -> int:
    """25 for somebody unknown, 82 for one whose instance id belongs to another."""
    if group.phase is Phase.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if instance_id is not None:
        owner = group.instances.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _check_sync(group: Group | None, request: SyncGroupRequest, version: int) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = check_member(group, request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol_name is not None and request.protocol_name != group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.phase is Phase.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _candidates(group: Group) -> list[str]:
    """Protocols that every member supports, in the order of the first member."""
    members = list(group.members.values())
    common = set(members[0].protocol_names).intersection(*(m.protocol_names for m in members[1:]))
    return [name for name in members[0].protocol_names if name in common]


def _vote(group: Group) -> str:
    """Each member votes for its first protocol among those that all support; most votes win (J16)."""
    candidates = _candidates(group)
    votes = Counter(next(n for n in m.protocol_names if n in candidates) for m in group.members.values())
    return max(candidates, key=lambda name: votes[name])


def _supports(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    if not protocol_type or not protocols:
        return False
    if group.phase is Phase.EMPTY or not group.members:
        return True
    return protocol_type == group.protocol_type and bool({n for n, _ in protocols}.intersection(_candidates(group)))
