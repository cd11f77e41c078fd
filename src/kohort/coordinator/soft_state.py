"""The soft state of a shard: its running classic groups, parked requests, deadlines, and the effects of the step.

The operations here are those that several parts of the coordinator share: park a request, answer it, arm a deadline,
persist a group. The soft state of consumer groups is in consumer/soft_state.py.
"""

from __future__ import annotations

from kohort.config import LONG_MAX, Deviations
from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.classic.protocol_vote import CONSUMER, subscribed_topics
from kohort.coordinator.classic.responses import join_error
from kohort.coordinator.deadlines import Deadlines
from kohort.coordinator.effects import Outbox
from kohort.coordinator.events import GroupRequested, Millis, Reply, RequestId
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.member_bytes import (
    INDEX_BYTES,
    MEMBER_BYTES,
    PARTITION_BYTES,
    PENDING_BYTES,
    SUBSCRIBED_BYTES,
    MemberBytes,
    text_bytes,
)
from kohort.coordinator.patterns.pattern_matches import PatternMatches
from kohort.coordinator.records import generation_record, group_record
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupResponse
from kohort.wire.schemas.sync_group import SyncGroupResponse

Key = tuple[str, str, str]
"""The key of a deadline: kind, group id, and the member or generation for which it was armed.

session, pending, hold: a member id. join, initial, settle, sync: the generation, as text; a deadline of another
generation than the group's is out of date and does nothing.
"""
DEADLINES_OF_MEMBERS = frozenset(("session", "pending", "join", "sync"))
"""Those that members must meet with a request."""


class Running:
    def __init__(self, hard: HardState, deviations: Deviations, limit: int = LONG_MAX) -> None:
        """`limit`: group.max.total.bytes."""
        self._hard = hard
        self.deviations = deviations
        self.groups: dict[str, Group] = {}
        self.unseen: set[str] = set()
        """Groups that a refused commit has founded, since the last step with records. Kafka's answers show the state of
        the last record that is committed (TimelineHashMap), so these are not listed or described yet."""
        self.deadlines: Deadlines[Key] = Deadlines()
        self.parked: dict[RequestId, tuple[str, str]] = {}
        """Parked requests: group and member."""
        self.member_bytes = MemberBytes(lambda: self.held_bytes, limit)
        """The size of the members of all groups. The shards of a server share it."""
        self.assigned_partitions = 0
        """Partitions in the targets of all consumer groups."""
        self.pattern_matches = PatternMatches()
        """The topics that the regular expressions of consumer groups match."""
        self.out = Outbox()
        """The effects of the step under way."""

    @property
    def held_bytes(self) -> int:
        """Bytes of this shard's groups and members, of their assignments, and of what their regular expressions
        match."""
        size = self.pattern_matches.size + PARTITION_BYTES * self.assigned_partitions
        size += INDEX_BYTES * self._hard.consumers.subscribed_names
        offsets = self._hard.offset_bytes
        for name, group in self.groups.items():  # there may be ten thousand groups
            if group.members:
                size += group.own_size + group.members_size + group.assignment_bytes
            elif name not in offsets:
                size += group.own_size
            if group.pending:
                size += PENDING_BYTES * len(group.pending)
            if group.protocol_type != CONSUMER:
                size += text_bytes(group.protocol_type)
        for name, consumers in self._hard.consumers.groups.items():
            if consumers.members:
                size += consumers.own_size + consumers.members_size + SUBSCRIBED_BYTES * len(consumers.subscribers)
            elif name not in offsets:
                size += consumers.own_size
        for shares in self._hard.shares.groups.values():
            size += shares.size + MEMBER_BYTES * len(shares.members)
        return size

    # -- deadlines

    def arm_session(self, group: Group, member: Member, now: Millis) -> None:
        self.deadlines.set(("session", group.group_id, member.member_id), now + member.session_timeout_ms)

    def arm(self, kind: str, group: Group, when: Millis) -> None:
        self.deadlines.set((kind, group.group_id, str(group.generation_id)), when)

    def disarm(self, kind: str, group: Group) -> None:
        self.deadlines.clear((kind, group.group_id, str(group.generation_id)))

    # -- groups

    def enter(self, group: Group, phase: Phase, now: Millis) -> None:
        group.phase = phase
        group.since = now

    def persist(self, group: Group) -> None:
        self.out.records.append(group_record(group.group_id, value_of(group)))

    def highest_generation(self, group_id: str) -> int:
        """The highest number that was written for this name; 0 for none."""
        return self._hard.generations.get(group_id, 0) if self.deviations.numbers_go_on else 0

    def former_generation(self, group_id: str) -> int:
        """The number from which a new group of this name counts on."""
        return self._hard.generations.get(group_id, self._hard.forgotten) if self.deviations.numbers_go_on else 0

    def generation_used(self, group_id: str, generation: int) -> None:
        if self.deviations.numbers_go_on:
            self.out.records.append(generation_record(group_id, generation))

    def generation_began(self, group: Group) -> None:
        """Keep what decides in Kafka, during the next rebalance, which offsets cannot be deleted (O24)."""
        if not self.deviations.subscribed_in_rebalance:
            group.generation_topics = subscribed_topics(group)

    def forget_pending(self, group: Group, member_id: str) -> bool:
        if group.pending.pop(member_id, None) is None:
            return False
        self.deadlines.clear(("pending", group.group_id, member_id))
        return True

    def delete(self, group: Group, why: str) -> None:
        """Forget a group that is empty, and member ids that it gave out. Its highest generation stays in the log."""
        for member_id in list(group.pending):
            self.forget_pending(group, member_id)
        del self.groups[group.group_id]
        self.unseen.discard(group.group_id)
        if group.group_id in self._hard.groups:
            if self.highest_generation(group.group_id) < group.generation_id:
                # Written by another coordinator (a log taken over from Kafka): so far only the group's record shows it.
                self.generation_used(group.group_id, group.generation_id)
            self.out.records.append(group_record(group.group_id, None))
        self.out.note(group, "group deleted", why)

    # -- parked requests

    def park_join(self, group: Group, member: Member, event: GroupRequested, now: Millis) -> None:
        # J22: the one it replaces; with 25 its client would give up the member id that waits here.
        self.answer_join(
            group, member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.join_version, member.member_id)
        )
        member.join = event.request_id
        member.joined_ms = now
        group.parked_joins += 1
        member.join_version = event.version
        self.parked[event.request_id] = (group.group_id, member.member_id)

    def answer_join(self, group: Group, member: Member, response: JoinGroupResponse) -> None:
        request_id, member.join = member.join, None
        if request_id is None:
            return
        group.parked_joins -= 1
        if self.parked.pop(request_id, None) is not None:
            self.out.replies.append(Reply(request_id, response))

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        request_id, member.sync = member.sync, None
        if request_id is not None and self.parked.pop(request_id, None) is not None:
            self.out.replies.append(Reply(request_id, response))

    def answer_heartbeat(self, group: Group, member: Member, error: int) -> None:
        request_id, member.heartbeat = member.heartbeat, None
        if request_id is None:
            return
        self.deadlines.clear(("hold", group.group_id, member.member_id))
        if self.parked.pop(request_id, None) is not None:
            self.out.replies.append(Reply(request_id, HeartbeatResponse(error_code=error)))
