"""ShareGroupHeartbeat (KIP-932): joins, leaves, keeps a member alive, and tells it where to look for records.

Source: GroupMetadataManager.java; rows SH3 and SH15 to SH24.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.events import GroupRequested, Millis, Reply, What
from kohort.coordinator.member_bytes import MEMBER_BYTES
from kohort.coordinator.share_groups.checks import Refusal, check_epoch, check_heartbeat, check_known
from kohort.coordinator.share_groups.group import GROUP_BYTES, INITIALIZED_BYTES, ShareGroup
from kohort.coordinator.share_groups.records import share_current_record, share_member_record, share_target_record
from kohort.coordinator.share_groups.responses import LEFT, share_heartbeat_answer, share_heartbeat_error
from kohort.coordinator.share_groups.targets import SESSION, ShareTargets
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from kohort.wire.schemas.share_group_records import ShareGroupMemberMetadataValue


class ShareHeartbeats:
    def __init__(self, config: Config, targets: ShareTargets) -> None:
        self._config = config
        self._targets = targets
        self._running = targets.running
        self._groups = targets.hard.shares.groups

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        refused = self._take(event, now)
        if refused is not None:
            self._running.out.replies.append(Reply(event.request_id, share_heartbeat_error(*refused)))

    def _take(self, event: GroupRequested, now: Millis) -> Refusal | None:
        request: ShareGroupHeartbeatRequest = event.body
        group = self._groups.get(request.group_id)
        refused = check_heartbeat(request) or self._check_group(request, group) or self._check_room(request, group)
        if refused is not None:
            return refused
        if request.member_epoch == LEFT:
            assert group is not None
            self.remove(group, request.member_id, now)
            # No heartbeat follows, so the interval is 0.
            answer = share_heartbeat_answer(request.member_id, LEFT, 0, None)
            self._running.out.replies.append(Reply(event.request_id, answer))
            return None
        group = self._targets.found(request.group_id)
        member_id = request.member_id
        before = group.state_of(member_id)
        former = group.members.get(member_id)
        value = _member_value(former, event)
        if value != former:
            self._targets.emit(share_member_record(group.group_id, member_id, value))
        if former is None:
            self._targets.note(group, "member joined", "", member_id, value)
        if former is None or value.subscribed_topic_names != former.subscribed_topic_names:
            self._targets.refresh(group, now, bump=True)
        elif group.epoch != group.assignment_epoch:
            self._targets.make(group, now)
        state = self._targets.reconcile(group, member_id)
        settings = self._targets.settings(group)
        self._running.deadlines.set((SESSION, group.group_id, member_id), now + settings.share_session_timeout_ms)
        # A member that missed an answer gets its assignment again.
        missed = request.member_epoch != before.epoch
        tell = missed or request.subscribed_topic_names is not None or state.assigned != before.assigned
        interval = self._targets.next_interval(group, now)
        answer = share_heartbeat_answer(member_id, state.epoch, interval, state.assigned if tell else None)
        self._running.out.replies.append(Reply(event.request_id, answer))
        return None

    def _check_group(self, request: ShareGroupHeartbeatRequest, group: ShareGroup | None) -> Refusal | None:
        if group is None:
            hard = self._targets.hard
            name = request.group_id
            if name in self._running.groups or name in hard.consumers.groups or hard.has_offsets(name):
                return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} is not a share group."
            if request.member_epoch != 0:
                return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."
            return None
        if request.member_epoch == 0:
            return None
        refused = check_known(group, request.member_id)
        if refused is None and request.member_epoch > 0:
            refused = check_epoch(group, request.member_id, request.member_epoch)
        return refused

    def _check_room(self, request: ShareGroupHeartbeatRequest, group: ShareGroup | None) -> Refusal | None:
        """81 for a member that the group has no room for (SH24)."""
        if request.member_epoch == LEFT or (request.member_epoch > 0 and not request.subscribed_topic_names):
            return None
        former = group.members.get(request.member_id) if group is not None else None
        members = len(group.members) if group is not None else 0
        if former is None and members >= self._config.group_share_max_size:
            most = self._config.group_share_max_size
            return ErrorCode.GROUP_MAX_SIZE_REACHED, (
                f"The share group has reached its maximum capacity of {most} members."
            )
        names = request.subscribed_topic_names or ()
        more = sum(map(len, names)) + INITIALIZED_BYTES * self._targets.states.count_missing(set(names), group)
        more += MEMBER_BYTES if former is None else -sum(map(len, former.subscribed_topic_names))
        more += GROUP_BYTES + len(request.group_id) if group is None else 0
        size = group.names_size if group is not None else 0
        if size + sum(map(len, names)) > self._config.group_max_bytes or not self._running.member_bytes.has_room(more):
            return ErrorCode.GROUP_MAX_SIZE_REACHED, "The members of groups use all of group.max.total.bytes."
        return None

    def remove(self, group: ShareGroup, member_id: str, now: Millis, silent_ms: Millis = -1) -> None:
        """A member leaves, or its session is over: it was silent so long. Its records are given back when its share
        session ends."""
        what: What = "member left" if silent_ms < 0 else "session expired"
        cause = "it left" if silent_ms < 0 else ""
        self._targets.note(group, what, cause, member_id, group.members[member_id], silent_ms)
        self._running.deadlines.clear((SESSION, group.group_id, member_id))
        name = group.group_id
        if member_id in group.current:
            self._targets.emit(share_current_record(name, member_id, None))
        if member_id in group.targets:
            self._targets.emit(share_target_record(name, member_id, None))
        self._targets.emit(share_member_record(name, member_id, None))
        self._targets.refresh(group, now, bump=True)


def _member_value(former: ShareGroupMemberMetadataValue | None, event: GroupRequested) -> ShareGroupMemberMetadataValue:
    request: ShareGroupHeartbeatRequest = event.body
    rack = former.rack_id if former is not None else None
    names = former.subscribed_topic_names if former is not None else ()
    if request.subscribed_topic_names is not None:
        names = tuple(sorted(set(request.subscribed_topic_names)))
    return ShareGroupMemberMetadataValue(
        rack_id=request.rack_id if request.rack_id is not None else rack,
        client_id=event.client.client_id,
        client_host=event.client.host,
        subscribed_topic_names=names,
    )
