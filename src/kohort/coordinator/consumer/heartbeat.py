"""ConsumerGroupHeartbeat (KIP-848): members say what they want, the coordinator says what they get.

    heartbeat ──► member record ──► group epoch ──► target assignment ──► reconciliation ──► answer

A heartbeat says what has changed for the member. Every change of the group (a join, a departure, another
subscription, other topics) raises the group epoch. A new epoch needs a new target (target.py). Each member is led to
its part of the target by itself (reconciliation.py), so only partitions that move ever pause. An answer without news
may be held (held_heartbeats.py).

All of this is hard state: every decision is a record. A record is applied at once, because what follows in the same
step builds on it. The caller applies the step's records again, which changes nothing.

Fencing: a member epoch above the known one is fenced (110). A lower epoch is fenced, with one exception: the member
sent this epoch last or has received it since, and reports only its own partitions. Then an answer was lost, or a
heartbeat arrived twice. So a correct member is never fenced, however many answers it misses and however far the group
has moved on.

Source: GroupMetadataManager.java, ConsumerGroup.java; rows N of the conformance list.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.config import Config
from kohort.coordinator.classic.responses import heartbeat_error
from kohort.coordinator.consumer.checks import (
    Refusal,
    bytes_added,
    check_epoch,
    check_epoch_as_kafka,
    check_heartbeat,
    check_known,
    check_names,
    check_static,
    partitions_added,
)
from kohort.coordinator.consumer.classic_fields import is_classic
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, epoch_value
from kohort.coordinator.consumer.leave import Departures
from kohort.coordinator.consumer.members import Members
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition, has_nothing
from kohort.coordinator.consumer.soft_state import SESSION, RunningMember
from kohort.coordinator.events import GroupRequested, Millis, Reply
from kohort.coordinator.member_bytes import PARTITION_BYTES
from kohort.coordinator.migration.conversion import Conversions
from kohort.coordinator.migration.upgrade import NoUpgrade, UpgradePlan
from kohort.coordinator.records import consumer_group_record
from kohort.coordinator.steady_answer import SteadyAnswer
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

STABLE = Reconciliation.STABLE
"""A member of an enumeration takes long to look up (Python 3.11)."""


class Heartbeats:
    def __init__(
        self,
        config: Config,
        members: Members,
        departures: Departures,
        conversions: Conversions,
        assignors: Collection[str],
    ) -> None:
        self._config = config
        self._deviations = config.deviations
        self._members = members
        self._departures = departures
        self._conversions = conversions
        self._assignors = assignors
        self._consumers = members.consumers
        self._holds = members.holds
        self._running = members.consumers.running
        self._groups = members.consumers.hard.consumers.groups

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        group = self._groups.get(event.body.group_id)
        if group is not None and self._changes_nothing(group, event):
            return self._keep_alive(group, event, now)
        refused = self._take_full(event, now)
        if refused is not None:
            self._running.out.replies.append(Reply(event.request_id, heartbeat_error(*refused)))
        return None

    def _take_full(self, event: GroupRequested, now: Millis) -> Refusal | None:
        request: ConsumerGroupHeartbeatRequest = event.body
        refused = check_heartbeat(request, event.version, self._assignors, self._deviations)
        if refused is not None:
            return refused
        upgrade = self._conversions.plan_upgrade(request)
        refused = self._check_group(event, upgrade)
        if refused is not None:
            return refused
        if request.member_epoch < 0:
            return self._departures.leave(self._groups[request.group_id], event, now)
        refused = self._check_pattern(request)
        if refused is not None:
            return refused
        if isinstance(upgrade, UpgradePlan):
            self._conversions.upgrade(upgrade, now)
        elif request.member_epoch == 0:
            self._found(request.group_id)
        group = self._groups[request.group_id]
        member_id = request.member_id or event.nonce
        former = self._consumers.find_member(group.group_id, member_id)
        if former is not None:
            self._holds.release(group, former, now)
        refused = self._admit(group, request, member_id)
        if refused is not None:
            self._remove_if_unused(group)
            return refused
        epoch = group.epoch
        former_value = group.members.get(member_id)
        # A member that joins, for the first time or again, sends every field that it has.
        if request.member_epoch == 0 and self._deviations.rejoin_tells_all:
            former_value = None
        value = _member_value(former_value, request, event)
        is_changed = value != group.members.get(member_id)
        self._members.update(group, member_id, value, now)
        self._members.targets.heartbeat(group, now)
        if isinstance(upgrade, UpgradePlan) and not upgrade.is_settled and group.epoch == epoch:
            self._members.targets.bump(group, now, "it was upgraded in the middle of a rebalance", member_id)
        before = group.state_of(member_id)
        member = self._consumers.of(group).member(member_id)
        self._holds.notice_client(member, event)
        # If a join comes twice, the client may go on with the epoch of an earlier answer.
        member.epoch_sent = request.member_epoch or before.previous_member_epoch or before.member_epoch
        # A member that missed an answer gets its assignment again, and takes no further step: it could not acknowledge
        # that it gave up partitions which it never received. A repeated join of a member without partitions may get
        # its first ones: the new epoch shows whether the client has received this answer.
        state = before
        if request.member_epoch == before.member_epoch or self._trusts_report(request):
            state = self._members.reconcile(group, member_id, now, _owned(request), changed=True)
        elif request.member_epoch == 0 and has_nothing(before) and before.member_epoch < group.assignment_epoch:
            state = self._members.reconcile(group, member_id, now, None, changed=True)
        self._members.arm_session(group, member_id, now)
        self._answer(event, group, member, before, state, now, is_changed=is_changed)
        self._members.wake(group, now)
        return None

    def _trusts_report(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        """True if this report of owned partitions counts although the epoch is not the member's present one, as in
        Kafka."""
        return not (self._deviations.stale_epoch if request.member_epoch else self._deviations.join_acknowledges)

    def _changes_nothing(self, group: ConsumerGroup, event: GroupRequested) -> bool:
        """True if a member that has reached its target only says that it is alive, as nearly all heartbeats do."""
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
        self._holds.release(group, member, now)
        self._holds.notice_client(member, event)
        member.epoch_sent = event.body.member_epoch
        self._members.arm_session(group, member.member_id, now)
        state = group.current[member.member_id]
        self._answer(event, group, member, state, state, now, is_changed=False)

    def take(self, event: GroupRequested, now: Millis) -> SteadyAnswer | None:
        """`heartbeat` when nothing changes and nothing is held. Otherwise None, and nothing has changed.

        The answer does not last where heartbeats may be held: it depends on the other members and on the time."""
        group = self._groups.get(event.body.group_id)
        if group is None or not self._changes_nothing(group, event):
            return None
        member_id: str = event.body.member_id
        member = self._consumers.of(group).member(member_id)
        state = group.current[member_id]
        self._holds.notice_client(member, event)  # `heartbeat` may do it again
        if member.held is not None or self._holds.time_for(group, member, state, event) > 0:
            return None
        settings = self._consumers.settings(group)
        session = self._running.deadlines.find((SESSION, group.group_id, member_id))
        if session is None or not session.postpone(now + settings.session_timeout_ms):
            return None
        member.epoch_sent = state.member_epoch
        interval = self._holds.next_interval(group, member, state, now, tell=False, may_hold=event.hold_ms > 0)
        return SteadyAnswer(interval, session, settings.session_timeout_ms, lasts=not settings.heartbeat_hold_enable)

    def _answer(
        self,
        event: GroupRequested,
        group: ConsumerGroup,
        member: RunningMember,
        before: MemberState,
        state: MemberState,
        now: Millis,
        *,
        is_changed: bool,
    ) -> None:
        """Answer a heartbeat, or hold it when there is nothing to say. One that changes what the group knows of the
        member (`is_changed`), as its subscription, is answered at once: the client may wait for the answer."""
        request: ConsumerGroupHeartbeatRequest = event.body
        owned = _owned(request)
        is_full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1 and request.subscribed_topic_names is not None and owned is not None
        )
        missed = request.member_epoch != before.member_epoch and self._deviations.stale_epoch
        tell = is_full or missed or state.assigned.keys() != before.assigned.keys()
        # The acknowledged assignment may be older than the one in the last answer: an answer lets the member go on.
        goes_on = owned is not None and owned != state.assigned.keys()
        joins = request.member_epoch == 0 and bool(request.member_id)
        hold_ms = 0
        if joins:
            hold_ms = self._holds.time_for_join(group, state, event.hold_ms)
        elif not tell and not goes_on and not is_changed:
            hold_ms = self._holds.time_for(group, member, state, event)
        if hold_ms > 0:
            self._holds.hold(group, member, event.request_id, now + hold_ms, joins=joins)
        else:
            may_hold = event.hold_ms > 0
            self._holds.answer(event.request_id, group, member, state, now, tell=tell, may_hold=may_hold)

    def _check_group(self, event: GroupRequested, upgrade: UpgradePlan | NoUpgrade | None) -> Refusal | None:
        request: ConsumerGroupHeartbeatRequest = event.body
        group = self._groups.get(request.group_id)
        if group is None and request.member_epoch != 0:
            is_classic = request.group_id in self._running.groups or self._consumers.hard.has_offsets(request.group_id)
            unknown = "Group {} is not a consumer group." if is_classic else "Consumer group {} not found."
            # Of a member whose group has changed its protocol or is gone. After 69, librdkafka's and Java's consumers
            # end for good; after 25 they join again, which upgrades or founds the group (N6).
            is_former = request.member_epoch > 0 and self._deviations.former_group
            error = ErrorCode.UNKNOWN_MEMBER_ID if is_former else ErrorCode.GROUP_ID_NOT_FOUND
            return error, unknown.format(request.group_id)
        if isinstance(upgrade, NoUpgrade):
            why = f"Cannot upgrade classic group {request.group_id} to consumer group because {upgrade.why}"
            if upgrade.advice and self._deviations.upgrade_advice:
                why += f" {upgrade.advice}"
            return ErrorCode.GROUP_ID_NOT_FOUND, why
        if refused := check_names(group, request, self._config.group_max_bytes):
            return refused
        more = bytes_added(group, request, event.client.client_id)
        soon = PARTITION_BYTES * partitions_added(group, request, self._consumers.topics)
        if request.subscribed_topic_regex:
            more += self._running.pattern_matches.size_of_new(request.subscribed_topic_regex)
        if not self._running.member_bytes.has_room(more, soon):
            limit = self._config.group_max_total_bytes
            full = f"The members of all groups would be too large: group.max.total.bytes is {limit}."
            return ErrorCode.GROUP_MAX_SIZE_REACHED, full
        keeps_places = self._deviations.full_group
        if request.member_epoch < 0 or (request.member_epoch and keeps_places):
            return None
        known = upgrade or group
        if known is None or request.member_id in known.members:
            return None
        if keeps_places and request.instance_id in known.instances:
            return None
        if len(known.members) >= self._config.group_consumer_max_size:
            limit = self._config.group_consumer_max_size
            full = f"The consumer group has reached its maximum capacity of {limit} members."
            return ErrorCode.GROUP_MAX_SIZE_REACHED, full
        return None

    def _check_pattern(self, request: ConsumerGroupHeartbeatRequest) -> Refusal | None:
        if not request.subscribed_topic_regex:
            return None
        group = self._groups.get(request.group_id)
        problem = self._members.patterns.problem_of(group, request.member_id, request.subscribed_topic_regex)
        if not problem:
            return None
        if group is not None:
            self._consumers.note(group, "subscription refused", problem, request.member_id)
        return ErrorCode.INVALID_REGULAR_EXPRESSION, problem

    def _found(self, group_id: str) -> None:
        """Found a consumer group, or turn a classic group without members into one. Its offsets stay."""
        if group_id in self._groups:
            return
        classic = self._running.groups.get(group_id)
        if classic is not None:
            self._running.delete(classic, "it becomes a consumer group")
        # Epochs go on from the highest that a group of this name ever had (docs/decisions/0002).
        epoch = max(self._consumers.highest_epoch(group_id), 0 if self._deviations.first_epoch else 1)
        self._consumers.emit(consumer_group_record(group_id, epoch_value(epoch, 0)))

    def _remove_if_unused(self, group: ConsumerGroup) -> None:
        if not group.members and group.assignment_epoch == 0 and not self._consumers.hard.has_offsets(group.group_id):
            self._consumers.emit(consumer_group_record(group.group_id, None))
            self._consumers.drop(group.group_id)

    def _admit(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str) -> Refusal | None:
        """Why the member may not heartbeat or join, or None. A static member that returns takes its former place."""
        owned = _owned(request)
        if request.instance_id is None:
            if request.member_epoch == 0:
                if member_id in group.members and is_classic(group.members[member_id]):
                    self._members.take_over(group, member_id, member_id)
                return None
            refused = check_known(group, member_id)
            return refused or self._check_epoch(group, member_id, request.member_epoch, owned)
        holder = group.instances.get(request.instance_id)
        if request.member_epoch != 0:
            refused = check_static(holder, member_id, request.instance_id) or check_known(group, member_id)
            return refused or self._check_epoch(group, member_id, request.member_epoch, owned)
        if holder is None:
            return None
        if group.state_of(holder).member_epoch == LEFT_FOR_A_WHILE or is_classic(group.members[holder]):
            self._members.take_over(group, holder, member_id)
        elif holder != member_id or not self._deviations.static_rejoin:
            text = (
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {holder} member."
            )
            return ErrorCode.UNRELEASED_INSTANCE_ID, text
        return None

    def _check_epoch(
        self, group: ConsumerGroup, member_id: str, epoch: int, owned: frozenset[TopicPartition] | None
    ) -> Refusal | None:
        check = check_epoch if self._deviations.stale_epoch else check_epoch_as_kafka
        return check(group.state_of(member_id), epoch, owned)


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _member_value(
    former: ConsumerGroupMemberMetadataValue | None, request: ConsumerGroupHeartbeatRequest, event: GroupRequested
) -> ConsumerGroupMemberMetadataValue:
    """The member's new record. A field that the heartbeat leaves out stays as in the former one."""

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
