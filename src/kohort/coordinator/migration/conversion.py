"""A running group changes its protocol: a classic one becomes a consumer group, and the other way round.

    classic ──the first member of the consumer protocol joins──► consumer; its other members speak the classic protocol
    consumer ──the last member of the consumer protocol is gone──► classic, if others are left

Each conversion is a frozen plan (upgrade.py, downgrade.py) that is carried out here: end the group's soft state under
the one protocol, write the plan's records, begin under the other protocol. Both numbers are counted on, so no number
comes twice (docs/decisions/0002). A group that converts in the middle of a rebalance, or with an assignment that is not
whole, gets a new target at once, or goes on with a rebalance. (Kafka leaves such a group as it is.)

On an upgrade parked JoinGroups and SyncGroups are answered with 27, and so are held heartbeats if the others have to
join again.
"""

from __future__ import annotations

from kohort.config import Config
from kohort.coordinator.classic.group import Group, Phase
from kohort.coordinator.classic.rebalance import Rebalances
from kohort.coordinator.classic.responses import join_error, joined, sync_error
from kohort.coordinator.consumer.classic_fields import is_classic, protocols_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.members import Members, subscription_of
from kohort.coordinator.consumer.soft_state import SYNC
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.migration.classic_side import joint_bytes, joint_protocols
from kohort.coordinator.migration.downgrade import DowngradePlan, Returning, is_at_rest, plan_downgrade
from kohort.coordinator.migration.upgrade import NoUpgrade, UpgradePlan, established, plan_upgrade
from kohort.coordinator.records import group_record
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
"""Values of group.consumer.migration.policy."""


class Conversions:
    def __init__(self, config: Config, members: Members) -> None:
        self._config = config
        self._members = members
        self._consumers = members.consumers
        self._hard = members.consumers.hard
        self._running = members.consumers.running
        self._rebalances = Rebalances(config, self._hard, self._running)

    # -- classic → consumer

    def plan_upgrade(self, request: ConsumerGroupHeartbeatRequest) -> UpgradePlan | NoUpgrade | None:
        """The plan if the request joins a classic group with members, or why that stays a classic group. None for
        every other request."""
        group = self._running.groups.get(request.group_id)
        if group is None or group.phase is Phase.EMPTY or request.member_epoch != 0:
            return None
        if self._config.group_consumer_migration_policy not in UPGRADES:
            return NoUpgrade("online upgrade is disabled.", "See group.consumer.migration.policy.")
        if sum(1 for _ in established(group)) > self._config.group_consumer_max_size:
            why = "the group size exceeds the consumer group maximum size."
            return NoUpgrade(why, "See group.consumer.max.size.")
        epoch = self._consumers.highest_epoch(request.group_id)
        return plan_upgrade(group, self._consumers.topics, epoch=epoch, joiner=request.instance_id)

    def upgrade(self, plan: UpgradePlan, now: Millis) -> None:
        group_id = plan.group_id
        classic = self._running.groups[group_id]
        self._running.out.note(classic, "group upgraded", "a member of the consumer protocol joins")
        self._end_classic(classic, rejoin=plan.rejoin)
        if group_id in self._hard.groups:
            self._consumers.emit(group_record(group_id, None))
        for record in plan.records():
            self._consumers.emit(record)
        group = self._consumers.groups[group_id]
        for member_id, member in group.members.items():
            self._members.arm_session(group, member_id, now)
            if member_id in plan.awaiting_sync:
                self._running.deadlines.set((SYNC, group_id, member_id), now + member.rebalance_timeout_ms)

    def _end_classic(self, group: Group, *, rejoin: bool) -> None:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            self._running.answer_join(group, member, join_error(error, member.join_version, member.member_id))
            self._running.answer_sync(member, sync_error(error))
            self._running.answer_heartbeat(group, member, error if rejoin else ErrorCode.NONE)
            self._running.deadlines.clear(("session", group.group_id, member.member_id))
        for member_id in list(group.pending):
            self._running.forget_pending(group, member_id)
        for kind in ("initial", "join", "settle", "sync"):
            self._running.disarm(kind, group)
        del self._running.groups[group.group_id]

    # -- consumer → classic

    def may_downgrade(
        self,
        group: ConsumerGroup,
        former_id: str | None = None,
        value: ConsumerGroupMemberMetadataValue | None = None,
    ) -> bool:
        """True if these members can be a classic group: all speak its protocol, and its limits hold. A member of this
        value replaces `former_id`."""
        if self._config.group_consumer_migration_policy not in DOWNGRADES:
            return False
        former = group.members.get(former_id or "")
        new = protocols_of(value) if value is not None else ()
        size = len(group.members) - (former is not None) + (value is not None)
        classic = group.classic_members - (former is not None and is_classic(former)) + (value is not None)
        if not 0 < size <= self._config.group_max_size or classic < size or not joint_protocols(group, former, new):
            return False
        return joint_bytes(group, former, new) <= self._config.group_max_bytes

    def downgrade(self, group: ConsumerGroup, now: Millis, why: str) -> None:
        """The last member of the consumer protocol is gone: the others go on as a classic group, and rebalance."""
        deviations = self._running.deviations
        plan = plan_downgrade(
            group,
            self._consumers.topics,
            now,
            rebalance=True,
            of_target=not deviations.downgrade_assignment,
            vote_tie=deviations.vote_tie,
        )
        self._become_classic(group, plan, now, why)
        self._rebalances.start(plan.classic, now, why)

    def downgrade_for(
        self,
        group: ConsumerGroup,
        former_id: str,
        member_id: str,
        value: ConsumerGroupMemberMetadataValue,
        event: GroupRequested,
        now: Millis,
    ) -> bool:
        """A member of the consumer protocol returns with the classic one. If it was the last of its kind, the group
        becomes a classic one, and the JoinGroup is answered at once. If the group has to rebalance, no leader is
        named, and the SyncGroup that follows is 27. Returns whether."""
        if not self.may_downgrade(group, former_id, value):
            return False
        former, state = group.members[former_id], group.state_of(former_id)
        last_generation = self._running.highest_generation(group.group_id)
        at_rest = is_at_rest(group, former_id, last_generation=last_generation)
        rebalance = not at_rest or subscription_of(former) != subscription_of(value)
        if former_id == member_id:
            self._members.holds.release(group, self._consumers.of(group).member(member_id), now)
        else:
            self._members.fence(group, former_id, member_id)
        self._members.forget(group, former_id)
        self._members.patterns.changed(group, former.subscribed_topic_regex, None, now)
        returning = Returning(member_id, value, state)
        plan = plan_downgrade(
            group,
            self._consumers.topics,
            now,
            rebalance=rebalance,
            returning=returning,
            vote_tie=self._running.deviations.vote_tie,
        )
        why = "its last member of the consumer protocol came back with the classic one"
        self._become_classic(group, plan, now, why)
        classic, joiner = plan.classic, plan.classic.members[member_id]
        self._running.out.note(classic, "static member returned", event.body.reason or "", joiner)
        if rebalance:
            response = joined(classic, joiner, with_members=False, leader="")
            self._running.out.replies.append(Reply(event.request_id, response))
            self._rebalances.start(classic, now, why, joiner, same_members=True)
            return True
        # As for any static member that returns (J30): it need not assign anything, even if it leads.
        leads = classic.leader == member_id
        skip = leads and event.version >= 9
        response = joined(
            classic, joiner, with_members=skip, leader=former_id if leads and not skip else None, skip_assignment=skip
        )
        self._running.out.replies.append(Reply(event.request_id, response))
        return True

    def _become_classic(self, group: ConsumerGroup, plan: DowngradePlan, now: Millis, why: str) -> None:
        error = ErrorCode.REBALANCE_IN_PROGRESS if plan.rebalance else ErrorCode.NONE
        for member_id in group.members:
            self._members.holds.refuse(group.group_id, member_id, error, None)
            self._members.clear_deadlines(group, member_id)
        self._members.targets.deleted(group)
        self._members.patterns.deleted(group)
        self._consumers.drop(group.group_id)
        self._running.out.note(plan.classic, "group downgraded", why)
        self._running.groups[group.group_id] = plan.classic
        self._running.generation_began(plan.classic)
        for record in plan.records(numbers_go_on=self._running.deviations.numbers_go_on):
            self._consumers.emit(record)
        for member in plan.classic.members.values():
            self._running.arm_session(plan.classic, member, now)
