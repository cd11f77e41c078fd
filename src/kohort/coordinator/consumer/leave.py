"""Members that leave a consumer group: by a heartbeat with a negative epoch, or because a deadline passed.

A static member may leave for a while (-2). It keeps its partitions until its session ends; its successor inherits them
without a rebalance. When the last member of the consumer protocol leaves, the group becomes a classic one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator.consumer.assignment_records import current_value
from kohort.coordinator.consumer.checks import Refusal, check_known, check_static
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup
from kohort.coordinator.consumer.members import Members
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation
from kohort.coordinator.consumer.responses import heartbeat_answer
from kohort.coordinator.consumer.soft_state import REVOKE
from kohort.coordinator.events import GroupRequested, Millis, Reply, What
from kohort.coordinator.migration.conversion import Conversions
from kohort.coordinator.records import current_record
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Departures:
    def __init__(self, members: Members, conversions: Conversions) -> None:
        self._members = members
        self._consumers = members.consumers
        self._conversions = conversions

    def leave(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> Refusal | None:
        request: ConsumerGroupHeartbeatRequest = event.body
        member_id = request.member_id
        if request.instance_id is not None:
            refused = check_static(group.instances.get(request.instance_id), member_id, request.instance_id)
            if refused is not None:
                return refused
        refused = check_known(group, member_id)
        if refused is not None:
            return refused
        self._members.holds.release(group, self._consumers.of(group).member(member_id), now)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            state = group.state_of(member_id)
            away = MemberState(LEFT_FOR_A_WHILE, state.member_epoch, Reconciliation.STABLE, state.assigned, {})
            self._consumers.emit(current_record(group.group_id, member_id, current_value(away)))
            self._consumers.running.deadlines.clear((REVOKE, group.group_id, member_id))
        else:
            self._consumers.note(group, "member left", "", member_id)
            self._members.targets.departs(group, member_id, now, is_dead=False)
            self.remove(group, (member_id,), now, "a member left")
        # No heartbeat follows, so the interval is 0.
        answer = heartbeat_answer(member_id, request.member_epoch, interval_ms=0)
        self._consumers.running.out.replies.append(Reply(event.request_id, answer))
        self._members.wake(group, now)
        return None

    def expire(
        self, group: ConsumerGroup, member_id: str, now: Millis, what: What, why: str, waited_ms: Millis
    ) -> None:
        self._members.holds.refuse(group.group_id, member_id, ErrorCode.UNKNOWN_MEMBER_ID, why)
        self._consumers.note(group, what, why, member_id, waited_ms)
        self._members.targets.departs(group, member_id, now, is_dead=True)
        self.remove(group, (member_id,), now, why)
        self._members.wake(group, now)

    def remove(self, group: ConsumerGroup, member_ids: Sequence[str], now: Millis, why: str) -> None:
        """Forget these members. The others get a new target, or become a classic group."""
        formers = [group.members[member_id] for member_id in member_ids]
        for member_id, former in zip(member_ids, formers, strict=True):
            self._members.forget(group, member_id)
            self._members.patterns.changed(group, former.subscribed_topic_regex, None, now)
        if all(map(is_classic, formers)) or not self._conversions.may_downgrade(group):
            self._members.targets.bump(group, now, why, member_ids[0] if len(member_ids) == 1 else "")
        else:
            self._conversions.downgrade(group, now, why)
