"""JoinGroup of classic groups: who may join, under which id, and whether the join starts a rebalance."""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.checks import check_join, check_member
from kohort.coordinator.classic.group import Group, Member, Phase, size_of_member
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.classic.protocol_vote import supports, vote
from kohort.coordinator.classic.protocols import Protocols, size_of
from kohort.coordinator.classic.rebalance import Rebalances
from kohort.coordinator.classic.responses import join_error, joined, sync_error
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.member_bytes import CLASSIC_GROUP_BYTES, text_bytes
from kohort.coordinator.records import group_record
from kohort.coordinator.soft_state import Running
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.join_group import JoinGroupRequest

LONGEST_PREFIX = 256
"""Characters of its client id that a member's id begins with. A group gives out thousands of ids."""


class Joins:
    def __init__(self, config: Config, hard: HardState, running: Running, rebalances: Rebalances) -> None:
        self._config = config
        self._deviations = config.deviations
        self._hard = hard
        self._running = running
        self._rebalances = rebalances

    def join(self, event: GroupRequested, now: Millis) -> None:
        request: JoinGroupRequest = event.body
        error = check_join(request, self._config)
        if error:
            return self._refuse_join(event, error)
        group = self._running.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            group = Group(request.group_id, since=now, generation_id=self._running.former_generation(request.group_id))
        elif not self._has_room(group, request):
            return self._refuse_full(group, event, now)
        protocols: Protocols = tuple((p.name, p.metadata) for p in request.protocols)
        if not supports(group, request.protocol_type, protocols):
            if not self._deviations.refused_join_founds:
                self._running.groups[group.group_id] = group
            return self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        former = group.members.get(request.member_id or group.instances.get(request.group_instance_id or "", ""))
        more = size_of(protocols) - (former.protocol_bytes if former is not None else 0)
        # The size of all protocols bounds the leader's response and the group's record (R5).
        is_too_large = group.protocol_bytes + more > self._config.group_max_bytes
        if is_too_large or not self._running.member_bytes.has_room(_bytes_added(group, event, protocols, former)):
            return self._refuse_full(group, event, now)
        if request.member_id:
            return self._join_known(group, event, protocols, now)
        return self._join_new(group, event, protocols, now)

    def _has_room(self, group: Group, request: JoinGroupRequest) -> bool:
        """True if group.max.size lets a member join (J26).

        During a rebalance only members that have rejoined count, because late ones will be removed; late static members
        stay and count too. A returning static member keeps its place under any member id."""
        limit = self._config.group_max_size
        if not self._deviations.full_group:
            return self._has_room_as_kafka(group, request.member_id, limit)
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

    @staticmethod
    def _has_room_as_kafka(group: Group, member_id: str, limit: int) -> bool:
        member = group.members.get(member_id)
        if group.phase is Phase.PREPARING:
            return (member is not None and member.join is not None) or group.parked_joins < limit
        return group.phase is Phase.EMPTY or member is not None or len(group.members) < limit

    def _refuse_full(self, group: Group, event: GroupRequested, now: Millis) -> None:
        member_id = event.body.member_id
        # In Kafka, the others wait for it until the end of the rebalance (full-group).
        others_wait = not self._deviations.full_group and group.phase is Phase.PREPARING
        if member_id in group.members:
            member = self._rebalances.remove(group, member_id, now, "the group is full")
            if not (others_wait and group.members):
                self._rebalances.start(group, now, "a member was removed: the group is full", member)
        elif self._running.forget_pending(group, member_id) and not (others_wait and group.members):
            self._rebalances.complete_if_all_joined(group, now)
        return self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")

    def _join_new(self, group: Group, event: GroupRequested, protocols: Protocols, now: Millis) -> None:
        """A join without a member id: a new member, or a static one that returns."""
        request: JoinGroupRequest = event.body
        instance = request.group_instance_id
        is_new_group = group.group_id not in self._running.groups
        self._running.groups[group.group_id] = group
        if instance is not None:
            member_id = f"{instance}-{event.nonce}"
            if instance in group.instances:
                return self._replace_static(group, group.instances[instance], member_id, event, protocols, now)
            return self._add_and_rebalance(group, member_id, event, protocols, now)
        member_id = f"{event.client.client_id[:LONGEST_PREFIX]}-{event.nonce}"
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
                if not self._deviations.pending_static:
                    return self._refuse_join(event, ErrorCode.UNKNOWN_SERVER_ERROR, member_id="")
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
            # The answer to its last JoinGroup was lost, or the join is needless (J18, J20).
            if self._deviations.rejoin_keeps_session:
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
        # It may not know its id yet, and cannot heartbeat while it is parked.
        self._running.deadlines.set(
            ("session", group.group_id, member_id), now + self._config.group_new_member_join_timeout_ms
        )
        self._running.out.note(group, "member joined", request.reason or "", member)
        self._rebalances.start(group, now, "a member joined", member)

    def _update(self, group: Group, member: Member, event: GroupRequested, protocols: Protocols) -> None:
        if self._deviations.client_of_member:
            member.client = event.client
        group.change_protocols(member, protocols)
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
        """A static member returns under a new id; its old id is fenced (J30-J32)."""
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
        chosen = vote(group, vote_tie=self._deviations.vote_tie)
        if chosen != group.protocol or self._rebalances.is_too_large(record):
            self._running.park_join(group, member, event, now)
            why = "a static member returned with other protocols"
            return self._rebalances.start(group, now, why, member, same_members=True)
        self._running.out.records.append(record)
        # Below version 9 a leader would compute an assignment that is not used; so the leader is its old id.
        skip = was_leader and event.version >= 9
        leader = former_id if was_leader and not skip else None
        response = joined(group, member, with_members=skip, leader=leader, skip_assignment=skip)
        self._running.out.replies.append(Reply(event.request_id, response))
        return None

    def _rename(self, group: Group, member: Member, member_id: str) -> None:
        """Give a static member its new id in its old position, because the order of the members decides which one
        leads next."""
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

    def _refuse_join(self, event: GroupRequested, error: int, member_id: str | None = None) -> None:
        answered_id = event.body.member_id if member_id is None else member_id
        self._running.out.replies.append(Reply(event.request_id, join_error(error, event.version, answered_id)))


def _bytes_added(group: Group, event: GroupRequested, protocols: Protocols, former: Member | None) -> int:
    """What the member would add to the memory of groups."""
    instance = event.body.group_instance_id
    if former is not None:
        return size_of_member(former.member_id, instance, event.client, protocols) - former.size
    prefix = event.client.client_id[:LONGEST_PREFIX] if instance is None else instance
    more = size_of_member(prefix, instance, event.client, protocols)
    return more if group.members else more + CLASSIC_GROUP_BYTES + text_bytes(group.group_id, event.body.protocol_type)


def _why_changed(member: Member, protocols: Protocols, reason: str | None) -> str:
    if reason:
        return reason
    if len(member.protocols) == 1 and member.protocols[0] in protocols:
        return "after a restart only the protocol in use was known of it"  # J36
    return ""


def _rebalance_timeout(event: GroupRequested) -> Millis:
    """Version 0 has only the session timeout (J27)."""
    request: JoinGroupRequest = event.body
    return max(request.rebalance_timeout_ms, 0) if event.version >= 1 else request.session_timeout_ms
