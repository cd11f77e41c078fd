"""A running group changes its protocol: a classic one becomes a consumer group, and the other way round.

    classic ──the first member of the consumer protocol joins──► consumer, its other members speak the classic one
    consumer ──the last member of the consumer protocol is gone──► classic, if others are left

What the members have they keep, under the number that they know: the generation becomes the epoch, the epoch the
generation. Both are counted on, so no number comes twice (docs/decisions/0002). A group that converts in the middle of
a rebalance, or with an assignment that is not whole, gets a new target at once, or goes on with a rebalance.

To a consumer group: parked JoinGroups and SyncGroups are answered with 27, and so are held heartbeats if the others
have to rejoin. A member has what it was last assigned and what it said in its JoinGroup that it owns: a cooperative
member uses partitions that its leader has taken from it until it has heard so. Members that have not been through a
generation have nothing that could be kept; they join again.

To a classic group: a member has what it had. If one leaves, the others rebalance. If the last member of the consumer
protocol is a static one that comes back as a classic one, it takes its place without a rebalance, if the group was at
rest, if it subscribes to the same, and if no classic generation had this number: its leader would not be the same.

Where it differs from Kafka on purpose: it upgrades groups of librdkafka's sticky assignors, which Kafka takes for
custom ones; it adds what members say they own; it makes a new target where Kafka leaves a group as it found it in the
middle of a rebalance; it stores, with the end of a consumer group, that a rebalance is due, so that a crash does not
lose it, and the first generation after that is one higher for it.

Source: GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup, ConsumerGroup.fromClassicGroup,
ClassicGroup.fromConsumerGroup; row N18 of the conformance list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kohort.config import Config
from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.classic.group_record import value_of
from kohort.coordinator.classic.protocol_vote import vote
from kohort.coordinator.classic.rebalance import Rebalances
from kohort.coordinator.classic.responses import join_error, joined, sync_error
from kohort.coordinator.consumer.assignment_records import current_value, target_value
from kohort.coordinator.consumer.classic_fields import classic_value, is_classic, protocols_of, session_timeout_of
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, epoch_value, target_epoch_value
from kohort.coordinator.consumer.reconciliation import MemberState, Reconciliation, TopicPartition
from kohort.coordinator.consumer.soft_state import RunningConsumers
from kohort.coordinator.events import Client, GroupRequested, Millis, Reply
from kohort.coordinator.migration.classic_side import (
    assignment_for,
    joint_bytes,
    joint_protocols,
    owned_in,
    partitions_in,
)
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    group_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.topics import Topics, hash_of
from kohort.wire.embedded import CONSUMER_PROTOCOL, assignment_of, subscription_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

USUAL_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Clients bring these along, and none reads the data that may stand in their assignments: librdkafka's sticky ones send
each member what it said itself. Any other assignor's data might mean something."""

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
"""Values of group.consumer.migration.policy."""


class Upgrade(msgspec.Struct):
    """What a classic group is as a consumer group."""

    members: dict[str, ConsumerGroupMemberMetadataValue] = msgspec.field(default_factory=dict)
    owned: dict[str, dict[TopicPartition, int]] = msgspec.field(default_factory=dict)
    """By member: what it has, and the epoch since which it is known to."""
    instances: dict[str, str] = msgspec.field(default_factory=dict)
    awaiting_sync: frozenset[str] = frozenset()
    is_settled: bool = True
    """Nothing is to be done: the group is at rest, and every partition of its topics belongs to one subscriber."""

    @property
    def topics(self) -> set[str]:
        return {name for member in self.members.values() for name in member.subscribed_topic_names}


def established(group: Group) -> Iterator[Member]:
    """Members that have been through a generation."""
    return (member for member in group.members.values() if not member.is_new)


def upgrade_of(group: Group, topics: Topics) -> Upgrade | str:
    """The group as a consumer group, or why it cannot be one."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        return f"its members do not speak the protocol of consumers, but {group.protocol_type!r}"
    found = Upgrade(awaiting_sync=frozenset(group.awaiting_sync), is_settled=group.phase is Phase.STABLE)
    said: list[tuple[int, str, frozenset[TopicPartition]]] = []
    owners: dict[TopicPartition, str] = {}
    for member in established(group):
        subscription = _subscription(group, member)
        assigned = _assigned(group, member, topics)
        if subscription is None or assigned is None:
            return f"what member {member.member_id[:100]} carries is not the protocol of consumers"
        if isinstance(assigned, str):
            return assigned
        found.members[member.member_id] = classic_value(
            member.instance_id,
            member.client,
            subscription,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        if member.instance_id is not None:
            found.instances[member.instance_id] = member.member_id
        said.append((subscription.generation_id, member.member_id, owned_in(subscription, topics)))
        for partition in sorted(assigned):
            found.is_settled &= owners.setdefault(partition, member.member_id) == member.member_id
    for _, member_id, owned in sorted(said, key=lambda one: -one[0]):
        for partition in sorted(owned):
            if partition not in owners:
                owners[partition] = member_id
                found.is_settled = False
    found.owned = {member_id: {} for member_id in found.members}
    for partition, owner in owners.items():
        found.owned[owner][partition] = group.generation_id
    found.is_settled &= _is_whole(found, owners, topics)
    return found


def _subscription(group: Group, member: Member) -> ConsumerProtocolSubscription | None:
    """By the protocol in use; of a member that has just given that up, by its first."""
    names = member.protocol_names
    return subscription_of(member.metadata_of(group.protocol if group.protocol in names else names[0]))


def _assigned(group: Group, member: Member, topics: Topics) -> frozenset[TopicPartition] | str | None:
    if not member.assignment:
        return frozenset()
    assignment = assignment_of(member.assignment)
    if assignment is None:
        return None
    if assignment.user_data and group.protocol not in USUAL_ASSIGNORS:
        return "its assignor sends data of its own to the members, which would be lost; use one of the usual assignors"
    return partitions_in(((row.topic, row.partitions) for row in assignment.assigned_partitions), topics)


def _is_whole(found: Upgrade, owners: dict[TopicPartition, str], topics: Topics) -> bool:
    """Whether each partition of the subscribed topics belongs to a subscriber of its topic, and no other to anybody."""
    specs = [topics.by_name[name] for name in found.topics if name in topics.by_name]
    wanted = {(spec.topic_id, index) for spec in specs for index in range(spec.partitions)}
    return wanted == owners.keys() and all(
        topics.by_id[partition[0]].name in found.members[owner].subscribed_topic_names
        for partition, owner in owners.items()
    )


class Conversions:
    """The two conversions of a shard's groups."""

    def __init__(self, config: Config, consumers: RunningConsumers) -> None:
        self._config = config
        self._consumers = consumers
        self._running = consumers.running
        self._generations = consumers.hard.generations
        self._emit = consumers.emit
        self._rebalances = Rebalances(config, consumers.hard, consumers.running)

    # -- classic → consumer

    def plan_upgrade(self, request: ConsumerGroupHeartbeatRequest) -> Upgrade | str | None:
        """The classic group that the member joins as a consumer group, or why it stays a classic one. None for any
        other group. Changes nothing."""
        group = self._running.groups.get(request.group_id)
        if group is None or group.phase is Phase.EMPTY or request.member_epoch != 0:
            return None
        if self._config.group_consumer_migration_policy not in UPGRADES:
            return "group.consumer.migration.policy forbids an upgrade"
        if sum(1 for _ in established(group)) > self._config.group_consumer_max_size:
            return "it has more members than group.consumer.max.size"
        return upgrade_of(group, self._consumers.topics)

    def upgrade(self, group_id: str, plan: Upgrade, *, rejoin: bool) -> None:
        """The group is a consumer group from now on. `rejoin`: its members are told to join again."""
        group = self._running.groups[group_id]
        generation = group.generation_id
        self._running.out.note(group, "group upgraded", "a member of the consumer protocol joins")
        self._end_classic(group, rejoin)
        if group_id in self._consumers.hard.groups:
            self._emit(group_record(group_id, None))
        # A generation may have been announced and lost (docs/decisions/0002): then the epoch is that, and the members
        # are behind it.
        epoch = self._consumers.highest_epoch(group_id)
        for member_id, value in plan.members.items():
            self._emit(member_record(group_id, member_id, value))
        topics_hash = hash_of(self._consumers.topics, plan.topics)
        self._emit(consumer_group_record(group_id, epoch_value(max(epoch, generation), topics_hash)))
        for member_id, owned in plan.owned.items():
            self._emit(target_record(group_id, member_id, target_value(owned)))
        self._emit(target_epoch_record(group_id, target_epoch_value(max(epoch, generation), 0)))
        for member_id, owned in plan.owned.items():
            state = MemberState(generation, generation, Reconciliation.STABLE, owned, {})
            self._emit(current_record(group_id, member_id, current_value(state)))

    def _end_classic(self, group: Group, rejoin: bool) -> None:
        told = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            self._running.answer_join(group, member, join_error(told, member.join_version, member.member_id))
            self._running.answer_sync(member, sync_error(told))
            self._running.answer_heartbeat(group, member, told if rejoin else ErrorCode.NONE)
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
        """Whether these members can be a classic group: all speak its protocol, and its limits hold. `former_id` is
        replaced by a member of that value."""
        if self._config.group_consumer_migration_policy not in DOWNGRADES:
            return False
        former = group.members.get(former_id or "")
        new = protocols_of(value) if value is not None else ()
        size = len(group.members) - (former is not None) + (value is not None)
        classic = group.classic_members - (former is not None and is_classic(former)) + (value is not None)
        if not 0 < size <= self._config.group_max_size or classic < size or not joint_protocols(group, former, new):
            return False
        return joint_bytes(group, former, new) <= self._config.group_max_bytes

    def is_at_rest(self, group: ConsumerGroup, former_id: str) -> bool:
        """Whether everybody has its target, and the group's epoch can be the number of a classic generation."""
        away = group.state_of(former_id)
        former_has_all = group.is_reconciled(former_id) or (
            away.member_epoch == LEFT_FOR_A_WHILE and away.assigned.keys() == group.targets.get(former_id, frozenset())
        )
        return (
            group.epoch == group.assignment_epoch
            and former_has_all
            and all(group.is_reconciled(member_id) for member_id in group.members if member_id != former_id)
            and self._generations.get(group.group_id, 0) < group.epoch
        )

    def downgrade(self, group: ConsumerGroup, now: Millis, why: str) -> None:
        """The group is a classic one from now on, and rebalances: somebody is gone."""
        classic = self._classic(group, now)
        self._begin_classic(group, classic, now, why, rebalance=True)
        self._rebalances.start(classic, now, why)

    def replace(
        self,
        group: ConsumerGroup,
        former_id: str,
        member_id: str,
        value: ConsumerGroupMemberMetadataValue,
        had: Iterable[TopicPartition],
        event: GroupRequested,
        now: Millis,
        *,
        rebalance: bool,
    ) -> None:
        """The group is a classic one from now on, with a new member in the place of one that is gone already; its
        JoinGroup is answered now, or when the rebalance is over."""
        why = "its last member of the consumer protocol came back with the classic one"
        joiner = _member(member_id, value)
        joiner.joined_ms = now
        classic = self._classic(group, now, joiner)
        joiner.assignment = assignment_for(had, self._consumers.topics, joiner.metadata_of(classic.protocol))
        self._begin_classic(group, classic, now, why, rebalance=rebalance)
        self._running.out.note(classic, "static member returned", event.body.reason or "", joiner)
        if rebalance:
            self._running.park_join(classic, joiner, event, now)
            return self._rebalances.start(classic, now, why, joiner, same_members=True)
        # As any static member that returns (J30): it need not assign anything, even if it leads.
        leads = classic.leader == member_id
        skip = leads and event.version >= 9
        response = joined(
            classic, joiner, with_members=skip, leader=former_id if leads and not skip else None, skip_assignment=skip
        )
        self._running.out.replies.append(Reply(event.request_id, response))
        return None

    def _classic(self, group: ConsumerGroup, now: Millis, joiner: Member | None = None) -> Group:
        classic = Group(
            group.group_id, Phase.STABLE, since=now, protocol_type=CONSUMER_PROTOCOL, generation_id=group.epoch
        )
        for member_id, value in sorted(group.members.items()):
            classic.add(_member(member_id, value))
        if joiner is not None:
            classic.add(joiner)
        classic.instances = {m.instance_id: m.member_id for m in classic.members.values() if m.instance_id is not None}
        classic.leader = next(iter(classic.members))
        classic.protocol = vote(classic)
        for member_id in group.members:
            member, state = classic.members[member_id], group.state_of(member_id)
            had = (*state.assigned, *state.revoking)
            member.assignment = assignment_for(had, self._consumers.topics, member.metadata_of(classic.protocol))
        return classic

    def _begin_classic(self, group: ConsumerGroup, classic: Group, now: Millis, why: str, *, rebalance: bool) -> None:
        self._running.out.note(classic, "group downgraded", why)
        members = list(group.members)
        for record in (current_record, target_record):
            for member_id in members:
                self._emit(record(group.group_id, member_id, None))
        self._emit(target_epoch_record(group.group_id, None))
        for member_id in members:
            self._emit(member_record(group.group_id, member_id, None))
        self._emit(consumer_group_record(group.group_id, None))
        self._running.groups[classic.group_id] = classic
        # A number above the group's says to whoever loads it that its next generation is due.
        self._emit(generation_record(classic.group_id, classic.generation_id + (1 if rebalance else 0)))
        self._emit(group_record(classic.group_id, value_of(classic)))
        for member in classic.members.values():
            self._running.arm_session(classic, member, now)


def _member(member_id: str, value: ConsumerGroupMemberMetadataValue) -> Member:
    return Member(
        member_id,
        value.instance_id,
        Client(value.client_id, value.client_host),
        session_timeout_of(value),
        value.rebalance_timeout_ms,
        protocols_of(value),
    )
