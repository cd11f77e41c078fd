"""Consumer groups (KIP-848): members say what they want, the coordinator says what they get.

    heartbeat ──► the member as it is now ──► group epoch ──► target assignment ──► reconciliation ──► answer

A heartbeat tells what has changed for the member. What changes the group (a join, a departure, another subscription,
other topics) raises the group epoch; a new epoch asks for a new target (consumer_targets.py); each member is led to its
part of the target by itself (reconciliation.py), so only partitions that move ever pause. An answer with nothing to say
may wait (consumer_holds.py).

All of this is hard state: every decision is a record. A record is applied at once, because what follows in the same
step builds on it; the caller applies the step's records again, which changes nothing.

Fencing: a member epoch above the known one is fenced (110); one below only when it is not the one that the member said
last, or when it owns what is not its own: otherwise an answer was lost, or a heartbeat came twice. So a member that
behaves is never fenced, however many answers it misses, and however far the group went on meanwhile. A static member
that leaves for a while (-2) keeps its partitions until its session ends; its successor inherits them without a
rebalance.

Source: GroupMetadataManager.java, ConsumerGroup.java; rows N of the conformance list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kohort.config import Config
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.classic.status import RebalanceStatus
from kohort.coordinator.consumer.assignment_records import current_value, target_value
from kohort.coordinator.consumer.checks import check_epoch, check_heartbeat, check_known, check_names, check_static
from kohort.coordinator.consumer.classic_fields import is_classic, session_timeout_of
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, epoch_value
from kohort.coordinator.consumer.held_heartbeats import Holds
from kohort.coordinator.consumer.journal_notes import note_steps, subscription_change, topics_change
from kohort.coordinator.consumer.pattern_subscriptions import Patterns
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition, reconcile
from kohort.coordinator.consumer.responses import heartbeat_answer, heartbeat_error
from kohort.coordinator.consumer.soft_state import JOIN, REVOKE, SESSION, SYNC, RunningConsumers, RunningMember
from kohort.coordinator.consumer.status import consumer_status_of
from kohort.coordinator.consumer.target import Targets
from kohort.coordinator.events import AssignmentMade, GroupRequested, Millis, PatternsResolved, Reply, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.migration.classic_side import must_rejoin
from kohort.coordinator.migration.upgrade import Conversions, Upgrade
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.settings.group_settings import GroupSettings, SettingsOfGroups
from kohort.coordinator.soft_state import Running
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.coordinator.topics import Topics
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

STABLE = Reconciliation.STABLE
"""To look a member of an enumeration up takes as long as the rest of a check (Python 3.11)."""


class ConsumerGroups:
    """The consumer groups of a shard."""

    def __init__(
        self,
        config: Config,
        hard: HardState,
        running: Running,
        settings: SettingsOfGroups,
        assignors: Mapping[str, Assignor],
    ) -> None:
        self._config = config
        self._hard = hard
        self._running = running
        self._assignors = assignors
        self._consumers = RunningConsumers(hard, running, settings)
        self.holds = Holds(self._consumers)
        self.targets = Targets(config, self._consumers, assignors)
        self._conversions = Conversions(config, self._consumers)
        self._former_topics = Topics()
        """Before they changed last."""
        self.patterns = Patterns(config, self._consumers, self.targets)
        self._note = self._consumers.note
        self._emit = self._consumers.emit

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self._hard.consumers.groups

    def status_of(self, group: ConsumerGroup, now: Millis) -> RebalanceStatus:
        return consumer_status_of(self._consumers, self.targets, group, now)

    @property
    def topics(self) -> Topics:
        return self._consumers.topics

    @property
    def shared(self) -> RunningConsumers:
        return self._consumers

    # -- ConsumerGroupHeartbeat

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        request: ConsumerGroupHeartbeatRequest = event.body
        group = self.groups.get(request.group_id)
        if group is not None and self._changes_nothing(group, event):
            return self._keep_alive(group, event, now)
        refused = check_heartbeat(request, event.version, self._assignors)
        if refused is not None:
            return self._refuse(event, *refused)
        upgrade = self._conversions.plan_upgrade(request)
        refused = self._check_group(request, upgrade)
        if refused is not None:
            return self._refuse(event, *refused)
        if request.member_epoch < 0:
            return self._leave(event, now)
        if request.subscribed_topic_regex and (problem := self._problem_of_pattern(request)):
            return self._refuse(event, ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
        if isinstance(upgrade, Upgrade):
            self._upgrade(upgrade, request, now)
        elif request.member_epoch == 0:
            self._found(request.group_id)
        group = self.groups[request.group_id]
        member_id = request.member_id or event.nonce
        former = self._consumers.find_member(group.group_id, member_id)
        if former is not None:
            self.holds.release(group, former, now)
        refused = self._admit(group, request, member_id)
        if refused is not None:
            self._remove_if_unused(group)
            return self._refuse(event, *refused)
        epoch = group.epoch
        self.update(group, member_id, _member_value(group.members.get(member_id), request, event), now)
        if isinstance(upgrade, Upgrade) and not upgrade.is_settled and group.epoch == epoch:
            self.targets.bump(group, now, "it was upgraded in the middle of a rebalance", member_id)
        before = group.state_of(member_id)
        member = self._consumers.of(group).member(member_id)
        self.holds.notice_client(member, event)
        # If a join comes twice, the client may go on with the epoch of the first answer.
        member.epoch_sent = request.member_epoch or before.member_epoch
        # Who missed an answer is told again what it has, and goes on from there. A step further it might have to give
        # up what it never heard of: it would have nothing to acknowledge.
        missed = request.member_epoch != before.member_epoch
        state = before
        if not missed:
            state = self.reconcile(group, member_id, now, _owned(request), changed=True)
        self.arm_session(group, member_id, now)
        self._answer(event, group, member, before, state, now)
        return self.wake(group, now)

    def _changes_nothing(self, group: ConsumerGroup, event: GroupRequested) -> bool:
        """Whether a member that has its target says nothing but that it is there: nearly all heartbeats are so."""
        request: ConsumerGroupHeartbeatRequest = event.body
        member_id = request.member_id
        state = group.current.get(member_id)
        member = group.members.get(member_id)
        return (
            state is not None
            and member is not None
            and request.member_epoch == state.member_epoch == group.assignment_epoch == group.epoch > 0
            and state.state is STABLE
            and request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.rebalance_timeout_ms == -1
            and request.server_assignor is None
            and request.rack_id is None
            and request.instance_id == member.instance_id
            and (member.instance_id is None or group.instances.get(member.instance_id) == member_id)
            and event.client.client_id == member.client_id
            and event.client.host == member.client_host
            and not is_classic(member)
            and not (member.subscribed_topic_regex and group.is_pending(member_id))
            and member_id not in self._consumers.of(group).moving
        )

    def _keep_alive(self, group: ConsumerGroup, event: GroupRequested, now: Millis) -> None:
        """`heartbeat` when nothing changes."""
        member = self._consumers.of(group).member(event.body.member_id)
        self.holds.release(group, member, now)
        self.holds.notice_client(member, event)
        member.epoch_sent = event.body.member_epoch
        self.arm_session(group, member.member_id, now)
        state = group.current[member.member_id]
        self._answer(event, group, member, state, state, now)

    def heard(self, event: GroupRequested, now: Millis) -> SteadyAnswer | None:
        """`_keep_alive`, if that is all, and nothing is held. None otherwise, and nothing is done.

        Where heartbeats may be held, the next one may be, and what it tells depends on the others and on the time."""
        group = self.groups.get(event.body.group_id)
        if group is None or not self._changes_nothing(group, event):
            return None
        member_id: str = event.body.member_id
        member = self._consumers.of(group).member(member_id)
        state = group.current[member_id]
        self.holds.notice_client(member, event)  # the step does it again, if there is one
        if member.held is not None or self.holds.time_for(group, member, state, event) > 0:
            return None
        settings = self._consumers.settings(group)
        session = self._running.deadlines.find((SESSION, group.group_id, member_id))
        if session is None or not session.postpone(now + settings.session_timeout_ms):
            return None
        member.epoch_sent = state.member_epoch
        interval = self.holds.next_interval(group, member, state, now, tell=False, may_hold=event.hold_ms > 0)
        return SteadyAnswer(interval, session, settings.session_timeout_ms, lasts=not settings.heartbeat_hold_enable)

    def _answer(
        self,
        event: GroupRequested,
        group: ConsumerGroup,
        member: RunningMember,
        before: MemberState,
        state: MemberState,
        now: Millis,
    ) -> None:
        """Answer a heartbeat, or hold it when there is nothing to say."""
        request: ConsumerGroupHeartbeatRequest = event.body
        owned = _owned(request)
        is_full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1 and request.subscribed_topic_names is not None and owned is not None
        )
        missed = request.member_epoch != before.member_epoch
        tell = is_full or missed or state.assigned.keys() != before.assigned.keys()
        # What it acknowledges may be older than what it was told last: it goes on to that when it has an answer.
        goes_on = owned is not None and owned != state.assigned.keys()
        joins = request.member_epoch == 0 and bool(request.member_id)
        hold_ms = 0
        if joins:
            hold_ms = self.holds.time_for_join(group, state, event.hold_ms)
        elif not tell and not goes_on:
            hold_ms = self.holds.time_for(group, member, state, event)
        if hold_ms > 0:
            self.holds.hold(group, member, event.request_id, now + hold_ms, joins=joins)
        else:
            may_hold = event.hold_ms > 0
            self.holds.answer(event.request_id, group, member, state, now, tell=tell, may_hold=may_hold)

    def _check_group(
        self, request: ConsumerGroupHeartbeatRequest, upgrade: Upgrade | str | None
    ) -> tuple[ErrorCode, str] | None:
        group = self.groups.get(request.group_id)
        if group is None and request.member_epoch != 0:
            return ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {request.group_id}."
        if isinstance(upgrade, str):
            return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} stays a classic group: {upgrade}."
        if refused := check_names(group, request, self._config.group_max_bytes):
            return refused
        if request.member_epoch != 0:
            return None
        known = upgrade or group
        if known is None or request.member_id in known.members or request.instance_id in known.instances:
            return None
        if len(known.members) >= self._config.group_consumer_max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED, "The group is full: group.consumer.max.size."
        return None

    def _problem_of_pattern(self, request: ConsumerGroupHeartbeatRequest) -> str:
        group = self.groups.get(request.group_id)
        problem = self.patterns.problem_of(group, request.member_id, request.subscribed_topic_regex or "")
        if problem and group is not None:
            self._note(group, "subscription refused", problem, request.member_id)
        return problem

    def _found(self, group_id: str) -> None:
        """A new group, or a classic one without members, which becomes a consumer group; its offsets stay."""
        if group_id in self.groups:
            return
        classic = self._running.groups.get(group_id)
        if classic is not None:
            self._running.delete(classic, "it becomes a consumer group")
        # Epochs go on from the highest that a group of this name ever had (docs/decisions/0002).
        self._emit(consumer_group_record(group_id, epoch_value(self._consumers.highest_epoch(group_id), 0)))

    def _remove_if_unused(self, group: ConsumerGroup) -> None:
        if not group.members and group.assignment_epoch == 0 and group.group_id not in self._hard.offsets:
            self._emit(consumer_group_record(group.group_id, None))
            self._consumers.drop(group.group_id)

    def _admit(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> tuple[ErrorCode, str] | None:
        """Whether the member may heartbeat, or join; a static one that is back takes over from its former self."""
        owned = _owned(request)
        if request.instance_id is None:
            if request.member_epoch == 0:
                if member_id in group.members and is_classic(group.members[member_id]):
                    self.take_over(group, member_id, member_id)
                return None
            refused = check_known(group, member_id)
            return refused or check_epoch(group.state_of(member_id), request.member_epoch, owned)
        holder = group.instances.get(request.instance_id)
        if request.member_epoch != 0:
            refused = check_static(holder, member_id, request.instance_id) or check_known(group, member_id)
            return refused or check_epoch(group.state_of(member_id), request.member_epoch, owned)
        if holder is None:
            return None
        if group.state_of(holder).member_epoch == LEFT_FOR_A_WHILE or is_classic(group.members[holder]):
            self.take_over(group, holder, member_id)
        elif holder != member_id:
            text = f"Instance {request.instance_id} is still in use by member {holder}."
            return ErrorCode.UNRELEASED_INSTANCE_ID, text
        return None

    def take_over(self, group: ConsumerGroup, former_id: str, member_id: str) -> None:
        """A member is back, under a new id or its own, maybe with the other protocol. What it had is kept for it, but
        it uses nothing yet."""
        value, target, state = group.members[former_id], group.targets.get(former_id), group.state_of(former_id)
        for kind in (REVOKE, JOIN, SYNC):
            self._running.deadlines.clear((kind, group.group_id, former_id))
        if former_id != member_id:
            why = f"Instance {value.instance_id} is member {member_id} now."
            self.holds.refuse(group.group_id, former_id, ErrorCode.FENCED_INSTANCE_ID, why)
            self.forget(group, former_id)
            self._emit(member_record(group.group_id, member_id, value))
            if target is not None:
                self._emit(target_record(group.group_id, member_id, target_value(target)))
        state = MemberState(0, 0, Reconciliation.STABLE, state.assigned, {})
        self._emit(current_record(group.group_id, member_id, current_value(state)))
        self._note(group, "static member returned", "", member_id)

    def update(
        self, group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue, now: Millis
    ) -> None:
        """Keep what a member says of itself; a new one, or another subscription, raises the group epoch."""
        former = group.members.get(member_id)
        if value != former:
            self._emit(member_record(group.group_id, member_id, value))
        pattern_before = former.subscribed_topic_regex if former is not None else None
        if former is None or value.subscribed_topic_regex != pattern_before:
            self.patterns.changed(group, pattern_before, value.subscribed_topic_regex, now)
        names_before = former.subscribed_topic_names if former is not None else ()
        # What a new pattern matches may not be known yet: then the epoch rises when it is.
        nothing_new = group.is_pending(member_id) and value.subscribed_topic_names == names_before
        if former is None:
            self._note(group, "member joined", "", member_id)
            self.targets.joined(group, member_id, now)
            if nothing_new:
                self.targets.open(group)
            else:
                self.targets.bump(group, now, "a member joined", member_id)
        elif _subscription(value) != _subscription(former):
            self._note(group, "subscription changed", subscription_change(former, value), member_id)
            if not nothing_new:
                self.targets.bump(group, now, "a member's subscription changed", member_id)

    # -- leaving

    def _leave(self, event: GroupRequested, now: Millis) -> None:
        request: ConsumerGroupHeartbeatRequest = event.body
        group = self.groups[request.group_id]
        member_id = request.member_id
        if request.instance_id is not None:
            refused = check_static(group.instances.get(request.instance_id), member_id, request.instance_id)
            if refused is not None:
                return self._refuse(event, *refused)
        refused = check_known(group, member_id)
        if refused is not None:
            return self._refuse(event, *refused)
        self.holds.release(group, self._consumers.of(group).member(member_id), now)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            state = group.state_of(member_id)
            away = MemberState(LEFT_FOR_A_WHILE, state.member_epoch, Reconciliation.STABLE, state.assigned, {})
            self._emit(current_record(group.group_id, member_id, current_value(away)))
            self._running.deadlines.clear((REVOKE, group.group_id, member_id))
        else:
            self._note(group, "member left", "", member_id)
            self.targets.departs(group, member_id, now, is_dead=False)
            self.go_on_without(group, (member_id,), now, "a member left")
        interval = self._consumers.settings(group).heartbeat_interval_ms
        self._running.out.replies.append(
            Reply(event.request_id, heartbeat_answer(member_id, request.member_epoch, interval))
        )
        return self.wake(group, now)

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        for record in (current_record, target_record, member_record):
            self._emit(record(group.group_id, member_id, None))
        for kind in (SESSION, REVOKE, JOIN, SYNC):
            self._running.deadlines.clear((kind, group.group_id, member_id))
        self._consumers.drop_member(group, member_id)

    def _expire(self, group: ConsumerGroup, member_id: str, now: Millis, what: What, why: str, ms: Millis) -> None:
        self.holds.refuse(group.group_id, member_id, ErrorCode.UNKNOWN_MEMBER_ID, why)
        self._note(group, what, why, member_id, ms)
        self.targets.departs(group, member_id, now, is_dead=True)
        self.go_on_without(group, (member_id,), now, why)
        self.wake(group, now)

    def go_on_without(self, group: ConsumerGroup, member_ids: Sequence[str], now: Millis, why: str) -> None:
        """If they were the last members of the consumer protocol, the others are a classic group from now on."""
        formers = [group.members[member_id] for member_id in member_ids]
        for member_id, former in zip(member_ids, formers, strict=True):
            self.forget(group, member_id)
            self.patterns.changed(group, former.subscribed_topic_regex, None, now)
        if all(map(is_classic, formers)) or not self._conversions.may_downgrade(group):
            return self.targets.bump(group, now, why, member_ids[0] if len(member_ids) == 1 else "")
        self._end_for_classic(group, ErrorCode.REBALANCE_IN_PROGRESS)
        return self._conversions.downgrade(group, now, why)

    # -- from one protocol to the other

    def _upgrade(self, upgrade: Upgrade, request: ConsumerGroupHeartbeatRequest, now: Millis) -> None:
        """A classic group with members becomes a consumer group."""
        replaces = request.instance_id is not None and request.instance_id in upgrade.instances
        self._conversions.upgrade(request.group_id, upgrade, rejoin=not (replaces and upgrade.is_settled))
        group = self.groups[request.group_id]
        for member_id, member in group.members.items():
            self.arm_session(group, member_id, now)
            if member_id in upgrade.awaiting_sync:
                self._running.deadlines.set((SYNC, group.group_id, member_id), now + member.rebalance_timeout_ms)

    def downgrade_for(
        self,
        group: ConsumerGroup,
        former_id: str,
        member_id: str,
        value: ConsumerGroupMemberMetadataValue,
        event: GroupRequested,
        now: Millis,
    ) -> bool:
        """A member of the consumer protocol comes back with the classic one. Whether it was the last of its kind: then
        the group is a classic one now, and the JoinGroup is answered there."""
        if not self._conversions.may_downgrade(group, former_id, value):
            return False
        former, state = group.members[former_id], group.state_of(former_id)
        rebalance = not self._conversions.is_at_rest(group, former_id) or _subscription(former) != _subscription(value)
        if former_id == member_id:
            self.holds.release(group, self._consumers.of(group).member(member_id), now)
        else:
            why = f"Instance {value.instance_id} is member {member_id} now."
            self.holds.refuse(group.group_id, former_id, ErrorCode.FENCED_INSTANCE_ID, why)
        self.forget(group, former_id)
        self.patterns.changed(group, former.subscribed_topic_regex, None, now)
        self._end_for_classic(group, ErrorCode.REBALANCE_IN_PROGRESS if rebalance else ErrorCode.NONE)
        self._conversions.replace(group, former_id, member_id, value, state.assigned, event, now, rebalance=rebalance)
        return True

    def _end_for_classic(self, group: ConsumerGroup, told: ErrorCode) -> None:
        for member_id in group.members:
            self.holds.refuse(group.group_id, member_id, told, None)
            for kind in (SESSION, REVOKE, JOIN, SYNC):
                self._running.deadlines.clear((kind, group.group_id, member_id))
        self.targets.deleted(group)
        self.patterns.deleted(group)
        self._consumers.drop(group.group_id)

    # -- what is told by others than members

    def topics_are(self, topics: Topics, names: Iterable[str] | None) -> None:
        self._former_topics, self._consumers.topics = self._consumers.topics, topics
        self.patterns.topics_are(topics, names)

    def topics_changed(self, now: Millis, names: Iterable[str] | None = None) -> None:
        """Groups whose topics are not what they were get a new target (N19). `names`: what changed, if known."""
        fold = self._hard.consumers
        for group in list(fold.groups.values()) if names is None else fold.subscribed_to(names):
            if group.members and self.targets.hash(group) != group.metadata_hash:
                how = topics_change(self._former_topics, self.topics, group.subscribed_topics)
                if how:
                    self._note(group, "topics changed", how)
                self.targets.bump(group, now, "its topics changed")
                self.wake(group, now)
        for group in self.patterns.topics_changed(now):
            self.wake(group, now)

    def settings_changed(self, group_id: str, former: GroupSettings, now: Millis) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            if self._consumers.settings(group).session_timeout_ms > former.session_timeout_ms:
                self._lengthen_sessions(group, now)
            self.targets.settings_changed(group, now)
            self.wake(group, now)

    def assignment_made(self, event: AssignmentMade, now: Millis) -> None:
        group = self.groups.get(event.group_id)
        if group is not None:
            self.targets.made(group, event, now)
            self.wake(group, now)

    def patterns_resolved(self, event: PatternsResolved, now: Millis) -> None:
        for group in self.patterns.resolved(event, now):
            self.wake(group, now)

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
            subscribed=None if group.is_pending(member_id) else _Subscribed(group, member_id, self.topics),
            subscription_changed=changed,
        )
        if after is not before:
            # It may miss this answer as it missed the last one, so the epoch it may come back with is what it said.
            sent = self._consumers.of(group).member(member_id).epoch_sent
            previous = before.member_epoch if sent is None else sent
            after = replace(after, previous_member_epoch=previous)
            self._emit(current_record(group.group_id, member_id, current_value(after)))
            key = (REVOKE, group.group_id, member_id)
            if after.state is not Reconciliation.UNREVOKED_PARTITIONS:
                self._running.deadlines.clear(key)
            elif after.revoking.keys() != before.revoking.keys():
                timeout = group.members[member_id].rebalance_timeout_ms
                self._running.deadlines.set(key, now + timeout)
            note_steps(self._consumers, group, member_id, before, after, pushed=pushed)
        moving = self._consumers.of(group).moving
        if group.is_reconciled(member_id) and moving.pop(member_id, self) is None:
            self._consumers.settle(group, now)
        return after

    def wake(self, group: ConsumerGroup, now: Millis) -> None:
        """Answer the held heartbeats of members that have something to give up or to take; that may free partitions for
        more. Who only gets another epoch is held on: answered, it could not be reached until its next heartbeat."""
        known = self._consumers.find(group.group_id)
        again = known is not None and bool(self.holds.count and self._running.out.records)
        while again and known is not None:
            again = False
            for member_id in sorted(known.moving):
                member = known.members.get(member_id)
                if member is None or member.held is None:
                    continue
                if is_classic(group.members[member_id]):
                    if must_rejoin(group, member_id):
                        self.expect_join(group, member_id, now)
                        self.holds.release(group, member, now)
                    continue
                before = group.state_of(member_id)
                state = self.reconcile(group, member_id, now, None, pushed=True)
                if state.assigned.keys() != before.assigned.keys():
                    again = True
                    self.holds.partitions_changed(group, member, state, now)

    # -- time, load, unload, deletion

    def deadline_reached(self, key: tuple[str, str, str], now: Millis) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return
        match kind:
            case "consumer assign":
                self.targets.due(group, now)
                self.wake(group, now)
            case "consumer patterns":
                self.patterns.due(group, now)
                self.wake(group, now)
            case "consumer session" if member_id in group.members:
                silent = self._session_ms(group, member_id)
                self._expire(group, member_id, now, "session expired", f"no heartbeat in {silent} ms", silent)
            case "consumer revoke" if member_id in group.members:
                waited = group.members[member_id].rebalance_timeout_ms
                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:
                    why = f"it did not give its partitions up in {waited} ms"
                    self._expire(group, member_id, now, "member removed", why, waited)
            case "consumer join" if member_id in group.members and must_rejoin(group, member_id):
                waited = group.members[member_id].rebalance_timeout_ms
                why = f"it did not rejoin in {waited} ms"
                self._expire(group, member_id, now, "member removed", why, waited)
            case "consumer sync" if member_id in group.members:
                waited = group.members[member_id].rebalance_timeout_ms
                self._expire(group, member_id, now, "member removed", f"it did not sync in {waited} ms", waited)
            case "consumer hold":
                member = self._consumers.find_member(group_id, member_id)
                if member is not None:
                    self.holds.release(group, member, now)

    def load(self, now: Millis) -> None:
        for group in list(self.groups.values()):
            for member_id, member in group.members.items():
                self.arm_session(group, member_id, now)
                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:
                    self._running.deadlines.set((REVOKE, group.group_id, member_id), now + member.rebalance_timeout_ms)
            if group.members:
                self._note(group, "group loaded")
            moving = [member_id for member_id in group.members if not group.is_reconciled(member_id)]
            self._consumers.of(group).moving = dict.fromkeys(moving)
            if moving or group.epoch > group.assignment_epoch:
                self._consumers.of(group).began_ms = now
                self._note(group, "rebalance started", "the coordinator has started and goes on with it")
            self.targets.load(group, now)
        self._former_topics = self.topics
        self.patterns.load()
        self.topics_changed(now)

    def unload(self) -> None:
        self.holds.unload()
        for group in self.groups.values():
            if group.members:
                self._note(group, "group unloaded")
        self.patterns.unload()
        self._consumers.unload()

    def expire(self) -> None:
        """Groups without members and offsets go; the offsets that this sweep lets go of are gone with the next one."""
        for group in list(self.groups.values()):
            if not group.members and group.group_id not in self._hard.offsets:
                self.delete(group, "it has no members and no offsets")

    def delete(self, group: ConsumerGroup, why: str) -> None:
        """Forget a group without members. Its highest epoch stays in the log."""
        assert not group.members, group.group_id
        self._note(group, "group deleted", why)
        self._emit(generation_record(group.group_id, self._consumers.highest_epoch(group.group_id)))
        self._emit(target_epoch_record(group.group_id, None))
        self.patterns.deleted(group)
        self._emit(consumer_group_record(group.group_id, None))
        self.targets.deleted(group)
        self._consumers.drop(group.group_id)

    # -- what leaves

    def arm_session(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        session_ms = self._session_ms(group, member_id)
        self._running.deadlines.set((SESSION, group.group_id, member_id), now + session_ms)

    def _lengthen_sessions(self, group: ConsumerGroup, now: Millis) -> None:
        """A longer session counts at once; a shorter one from each member's next heartbeat, which it was told is due
        later perhaps."""
        for member_id, member in group.members.items():
            key = (SESSION, group.group_id, member_id)
            armed = self._running.deadlines.get(key)
            if armed is not None and not is_classic(member):
                self._running.deadlines.set(key, max(armed, now + self._session_ms(group, member_id)))

    def _session_ms(self, group: ConsumerGroup, member_id: str) -> Millis:
        member = group.members[member_id]
        return session_timeout_of(member) if is_classic(member) else self._consumers.settings(group).session_timeout_ms

    def expect_join(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        """A member of the classic protocol is told that it has to join again."""
        key = (JOIN, group.group_id, member_id)
        if key not in self._running.deadlines:
            self._running.deadlines.set(key, now + group.members[member_id].rebalance_timeout_ms)

    def _refuse(self, event: GroupRequested, error: ErrorCode, message: str) -> None:
        self._running.out.replies.append(Reply(event.request_id, heartbeat_error(error, message)))


class _Subscribed:
    """The ids of the present topics that a member is subscribed to, looked up when asked for: it may be thousands."""

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


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _subscription(member: ConsumerGroupMemberMetadataValue) -> tuple[tuple[str, ...], str]:
    return member.subscribed_topic_names, member.subscribed_topic_regex or ""


def _member_value(
    former: ConsumerGroupMemberMetadataValue | None, request: ConsumerGroupHeartbeatRequest, event: GroupRequested
) -> ConsumerGroupMemberMetadataValue:
    """The member as it is now: what the heartbeat leaves out stays as it was. Who joins, for the first time or again,
    tells everything: what it leaves out it does not have any more."""
    if request.member_epoch == 0:
        former = None

    def now_or_before(told: str | None, name: str) -> str | None:
        return told if told is not None or former is None else getattr(former, name)

    names = request.subscribed_topic_names
    if names is None:
        names = former.subscribed_topic_names if former is not None else ()
    timeout = request.rebalance_timeout_ms
    if timeout < 0 and former is not None:
        timeout = former.rebalance_timeout_ms
    return ConsumerGroupMemberMetadataValue(
        instance_id=now_or_before(request.instance_id, "instance_id"),
        rack_id=now_or_before(request.rack_id, "rack_id"),
        client_id=event.client.client_id,
        client_host=event.client.host,
        subscribed_topic_names=tuple(sorted(set(names))),
        subscribed_topic_regex=now_or_before(request.subscribed_topic_regex, "subscribed_topic_regex"),
        rebalance_timeout_ms=timeout,
        server_assignor=now_or_before(request.server_assignor, "server_assignor"),
        classic_member_metadata=None,
    )
