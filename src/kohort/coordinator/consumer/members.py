"""Events of a consumer group's members, for both protocols.

The requests of both protocols (consumer/heartbeat.py, migration/classic_requests.py) and the deadlines (lifecycle.py)
use these operations: keep what a member says of itself, reconcile it with the target, wake held heartbeats, forget it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kohort.config import Config
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.consumer.assignment_records import current_value, target_value
from kohort.coordinator.consumer.classic_fields import is_classic, session_timeout_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.held_heartbeats import Holds
from kohort.coordinator.consumer.journal_notes import note_steps, subscription_change
from kohort.coordinator.consumer.pattern_subscriptions import Patterns
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition, reconcile
from kohort.coordinator.consumer.soft_state import (
    JOIN,
    REVOKE,
    SESSION,
    SYNC,
    WAKE,
    RunningConsumers,
    RunningMember,
)
from kohort.coordinator.consumer.target import Targets
from kohort.coordinator.events import Millis
from kohort.coordinator.migration.classic_side import must_rejoin
from kohort.coordinator.records import current_record, member_record, target_record
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

WAKES = 50
"""Members with held heartbeats that one step looks at: some three milliseconds."""


class Members:
    def __init__(self, config: Config, consumers: RunningConsumers, assignors: Mapping[str, Assignor]) -> None:
        self.consumers = consumers
        self.holds = Holds(consumers)
        self.targets = Targets(consumers, assignors)
        self.patterns = Patterns(config, consumers, self.targets)
        self._running = consumers.running
        self._note = consumers.note
        self._emit = consumers.emit

    # -- come and go

    def update(
        self, group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue, now: Millis
    ) -> None:
        """Keep what a member says of itself. A new member, or another subscription, raises the group epoch."""
        former = group.members.get(member_id)
        if value != former:
            self._emit(member_record(group.group_id, member_id, value))
        pattern_before = former.subscribed_topic_regex if former is not None else None
        if former is None or value.subscribed_topic_regex != pattern_before:
            self.patterns.changed(group, pattern_before, value.subscribed_topic_regex, now)
        names_before = former.subscribed_topic_names if former is not None else ()
        # The matches of a new pattern may not be known yet: then the epoch rises when they are.
        nothing_new = value.subscribed_topic_names == names_before and (
            group.is_pending(member_id) or not (value.subscribed_topic_regex or self._running.deviations.first_epoch)
        )
        if former is None:
            self._note(group, "member joined", "", member_id)
            self.targets.joined(group, member_id, now)
            if nothing_new:
                self.targets.give_epoch(group)
            else:
                self.targets.bump(group, now, "a member joined", member_id)
        elif subscription_of(value) != subscription_of(former):
            self._note(group, "subscription changed", subscription_change(former, value), member_id)
            if not nothing_new:
                self.targets.bump(group, now, "a member's subscription changed", member_id)

    def take_over(self, group: ConsumerGroup, former_id: str, member_id: str) -> None:
        """A member returns, under a new id or its own, perhaps with the other protocol. It keeps its partitions, but
        uses none of them yet."""
        value, target, state = group.members[former_id], group.targets.get(former_id), group.state_of(former_id)
        for kind in (REVOKE, JOIN, SYNC):
            self._running.deadlines.clear((kind, group.group_id, former_id))
        if former_id != member_id:
            self.fence(group, former_id, member_id)
            self.consumers.of(group).replace_member(former_id, member_id)
            self.forget(group, former_id)
            self._emit(member_record(group.group_id, member_id, value))
            if target is not None:
                self._emit(target_record(group.group_id, member_id, target_value(target)))
        state = MemberState(0, 0, Reconciliation.STABLE, state.assigned, {})
        self._emit(current_record(group.group_id, member_id, current_value(state)))
        self._note(group, "static member returned", "", member_id)

    def fence(self, group: ConsumerGroup, former_id: str, member_id: str) -> None:
        """Answer the held heartbeat of a static member that another member replaces."""
        why = f"Instance {group.members[former_id].instance_id} is member {member_id} now."
        self.holds.refuse(group.group_id, former_id, ErrorCode.FENCED_INSTANCE_ID, why)

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        for record in (current_record, target_record, member_record):
            self._emit(record(group.group_id, member_id, None))
        self.clear_deadlines(group, member_id)
        self.consumers.drop_member(group, member_id)

    # -- reconciliation

    def reconcile(
        self,
        group: ConsumerGroup,
        member_id: str,
        now: Millis,
        owned: frozenset[TopicPartition] | None,
        *,
        changed: bool = False,
        pushed: bool = False,
    ) -> MemberState:
        before = group.state_of(member_id)
        after = reconcile(
            before,
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, frozenset()),
            owned=owned,
            current_epoch_of=group.epoch_of,
            subscribed=None if group.is_pending(member_id) else _Subscribed(group, member_id, self.consumers.topics),
            subscription_changed=changed,
        )
        if after is not before:
            # This answer may be lost like the last one: then the member comes back with the epoch it sent.
            tolerant = self._running.deviations.stale_epoch
            sent = self.consumers.of(group).member(member_id).epoch_sent if tolerant else None
            previous = before.member_epoch if sent is None else sent
            after = replace(after, previous_member_epoch=previous)
            self._emit(current_record(group.group_id, member_id, current_value(after)))
            key = (REVOKE, group.group_id, member_id)
            if after.state is not Reconciliation.UNREVOKED_PARTITIONS:
                self._running.deadlines.clear(key)
            elif after.revoking.keys() != before.revoking.keys():
                self._running.deadlines.set(key, now + group.members[member_id].rebalance_timeout_ms)
            note_steps(self.consumers, group, member_id, before, after, pushed=pushed)
        moving = self.consumers.of(group).moving
        if group.is_reconciled(member_id) and moving.pop(member_id, self) is None:
            self.consumers.settle(group, now)
        return after

    def wake(self, group: ConsumerGroup, now: Millis) -> None:
        """Answer the held heartbeats of members that have partitions to give up or to take; that may free partitions
        for others. A new epoch alone does not end a hold: after an answer the member is out of reach.

        A group may have thousands of members: WAKES of them are looked at now, and the others in the steps of a
        deadline, which is due at once."""
        known = self.consumers.find(group.group_id)
        if known is None or not (self.holds.count and self.consumers.running.out.records):
            return
        if (WAKE, group.group_id, "") in self._running.deadlines:
            known.wakes_again = True
        else:
            self.wake_more(group, now)

    def wake_more(self, group: ConsumerGroup, now: Millis) -> None:
        """The next members of those that are woken."""
        known = self.consumers.of(group)
        left = WAKES
        while True:
            for member_id in sorted(known.moving):
                member = known.members.get(member_id)
                if member is None or member.held is None or member_id <= known.woken_to:
                    continue
                if not left:
                    self._running.deadlines.set((WAKE, group.group_id, ""), now)
                    return
                left -= 1
                known.woken_to = member_id
                known.wakes_again |= self._wake_member(group, member, now)
            known.woken_to = ""
            if not known.wakes_again:
                return
            known.wakes_again = False

    def _wake_member(self, group: ConsumerGroup, member: RunningMember, now: Millis) -> bool:
        """True if its partitions have changed."""
        member_id = member.member_id
        if is_classic(group.members[member_id]):
            if must_rejoin(group, member_id):
                self.expect_join(group, member_id, now)
                self.holds.release(group, member, now)
            return False
        before = group.state_of(member_id)
        state = self.reconcile(group, member_id, now, None, pushed=True)
        if state.assigned.keys() == before.assigned.keys():
            return False
        self.holds.partitions_changed(group, member, state, now)
        return True

    # -- deadlines

    def arm_session(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        self._running.deadlines.set((SESSION, group.group_id, member_id), now + self.session_ms(group, member_id))

    def lengthen_sessions(self, group: ConsumerGroup, now: Millis) -> None:
        """A longer session counts at once. A shorter one counts from each member's next heartbeat, because the
        earlier answer may allow the member to send that heartbeat later."""
        for member_id, member in group.members.items():
            key = (SESSION, group.group_id, member_id)
            armed = self._running.deadlines.get(key)
            if armed is not None and not is_classic(member):
                self._running.deadlines.set(key, max(armed, now + self.session_ms(group, member_id)))

    def session_ms(self, group: ConsumerGroup, member_id: str) -> Millis:
        member = group.members[member_id]
        return session_timeout_of(member) if is_classic(member) else self.consumers.settings(group).session_timeout_ms

    def expect_join(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        """A member of the classic protocol has been asked to join again: it has its rebalance timeout to do so."""
        key = (JOIN, group.group_id, member_id)
        if key not in self._running.deadlines:
            self._running.deadlines.set(key, now + group.members[member_id].rebalance_timeout_ms)

    def clear_deadlines(self, group: ConsumerGroup, member_id: str) -> None:
        for kind in (SESSION, REVOKE, JOIN, SYNC):
            self._running.deadlines.clear((kind, group.group_id, member_id))


class _Subscribed:
    """The ids of the present topics that a member is subscribed to. There may be thousands, so they are looked up when
    asked for."""

    def __init__(self, group: ConsumerGroup, member_id: str, topics: Topics) -> None:
        self._group = group
        self._member_id = member_id
        self._topics = topics
        self._names: frozenset[str] | None = None

    def __contains__(self, topic_id: object) -> bool:
        if self._names is None:
            self._names = self._group.names_of(self._member_id)
        topic = self._topics.by_id.get(topic_id) if isinstance(topic_id, bytes) else None
        return topic is not None and topic.name in self._names


def subscription_of(member: ConsumerGroupMemberMetadataValue) -> tuple[tuple[str, ...], str]:
    return member.subscribed_topic_names, member.subscribed_topic_regex or ""
