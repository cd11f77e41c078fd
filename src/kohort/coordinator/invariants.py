"""Invariants between two events, for tests, the simulator and debugging."""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.classic.group import Group, Member, Phase
from kohort.coordinator.classic.protocol_vote import candidates
from kohort.coordinator.classic.protocols import size_of
from kohort.coordinator.consumer.classic_fields import is_classic, protocols_of
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.group import size_of_member as size_of_consumer
from kohort.coordinator.consumer.reconciliation import Reconciliation, TopicPartition
from kohort.coordinator.consumer.soft_state import RunningConsumers
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.offsets.sizes import group_bytes
from kohort.coordinator.share_groups.group import ShareGroup
from kohort.coordinator.share_groups.states import STATES
from kohort.coordinator.soft_state import Running


def check(running: Running, consuming: RunningConsumers, hard: HardState, *, serving: bool) -> None:
    """Raises AssertionError with the name of the group. Deadlines exist only while the shard serves requests."""
    for group_id, group in running.groups.items():
        assert group_id == group.group_id, group_id
        _check_members(running, group)
        _check_phase(running, group)
        for member in group.members.values():
            _check_member(running, group, member)
        stored = hard.groups.get(group_id)
        assert stored is None or stored.generation <= group.generation_id, f"{group_id}: a later generation is stored"
    for group_id, consumers in hard.consumers.groups.items():
        assert group_id not in running.groups, f"{group_id}: is a classic and a consumer group"
        _check_consumers(consumers)
        if serving:
            _check_consumer_deadlines(running, consuming, consumers)
    for group_id, shares in hard.shares.groups.items():
        assert group_id not in running.groups, f"{group_id}: is a classic and a share group"
        assert group_id not in hard.consumers.groups, f"{group_id}: is a consumer and a share group"
        _check_share_group(shares)
        if serving and (shares.initializing or shares.deleting):
            assert (STATES, group_id, "") in running.deadlines, f"{group_id}: its states are forgotten"
        for member_id in shares.members if serving else ():
            assert ("share session", group_id, member_id) in running.deadlines, f"{group_id}: {member_id}: no session"
    sizes = {group_id: group_bytes(group_id, offsets) for group_id, offsets in hard.offsets.items()}
    assert hard.offset_bytes == sizes, f"counts bytes of offsets {hard.offset_bytes}, but {sizes}"
    counted = Counter((place[0], group_id) for group_id, offsets in hard.offsets.items() for place in offsets)
    indexed = {(topic, group_id): n for topic, of in hard.by_topic.counts.items() for group_id, n in of.items()}
    assert indexed == counted, f"offsets by topic: {indexed}, but {counted}"
    hard.pending.check()
    consuming.check()
    for topic in {topic for consumers in hard.consumers.groups.values() for topic in consumers.subscribers}:
        found = [group_id for group_id, consumers in hard.consumers.groups.items() if topic in consumers.subscribers]
        assert hard.consumers.subscribed_to([topic]) == [hard.consumers.groups[i] for i in sorted(found)], topic
    for request_id, (group_id, member_id) in running.parked.items():
        if group_id in hard.consumers.groups:
            assert member_id in hard.consumers.groups[group_id].members, f"{group_id}: holds a heartbeat of no member"
            assert ("consumer hold", group_id, member_id) in running.deadlines, f"{group_id}: a hold without a deadline"
            continue
        parked = running.groups[group_id].members[member_id]
        held = (parked.join, parked.sync, parked.heartbeat)
        assert request_id in held, f"{group_id}: request {request_id} is parked, but no member has it"
    for (kind, group_id, armed_for), _ in running.deadlines.items():
        if kind.startswith(("consumer ", "share ")):
            continue  # checked with their groups; an outdated one does nothing
        of = running.groups[group_id]
        match kind:
            case "pending":
                assert armed_for in of.pending, f"{group_id}: a pending deadline of an unknown member id"
            case "session" | "hold":
                assert armed_for in of.members, f"{group_id}: a {kind} deadline of an unknown member"
            case _:
                assert armed_for == str(of.generation_id), f"{group_id}: a {kind} deadline of an old generation"


def _check_consumers(group: ConsumerGroup) -> None:
    name = group.group_id
    assert group.assignment_epoch <= group.epoch, f"{name}: its target is ahead of its epoch"
    assert set(group.targets) <= set(group.members), f"{name}: a target of nobody"
    assert set(group.current) <= set(group.members), f"{name}: partitions of an unknown member"
    owned: dict[TopicPartition, str] = {}
    for member_id, state in group.current.items():
        assert state.member_epoch <= group.assignment_epoch, f"{name}: {member_id} is ahead of the target"
        for partition in (*state.assigned, *state.revoking):
            other = owned.setdefault(partition, member_id)
            assert other == member_id, f"{name}: {partition} belongs to {other} and {member_id}"
    assert owned == group.owners, f"{name}: owners {group.owners}, but {owned}"
    classic = [protocols_of(member) for member in group.members.values() if is_classic(member)]
    support = Counter(protocol for protocols in classic for protocol in {name for name, _ in protocols})
    counted = (group.classic_members, group.classic_support, group.classic_bytes)
    assert counted == (len(classic), support, sum(map(size_of, classic))), f"{name}: counts classic members {counted}"
    targets = [partition for target in group.targets.values() for partition in target]
    assert len(targets) == len(set(targets)), f"{name}: a target has a partition twice"
    sizes = sum(size_of_consumer(member_id, member) for member_id, member in group.members.items())
    assert group.members_size == sizes, f"{name}: counts {group.members_size} bytes of members, but {sizes}"
    users = Counter(m.subscribed_topic_regex for m in group.members.values() if m.subscribed_topic_regex)
    assert group.pattern_users == users, f"{name}: counts {group.pattern_users} members with patterns, but {users}"
    subscribed = Counter(topic for member in group.members.values() for topic in member.subscribed_topic_names)
    subscribed.update(topic for pattern in group.patterns.values() for topic in pattern.topics)
    assert group.subscribers == subscribed, f"{name}: counts subscribers {group.subscribers}, but {subscribed}"


def _check_share_group(group: ShareGroup) -> None:
    name = group.group_id
    assert group.assignment_epoch <= group.epoch, f"{name}: its target is ahead of its epoch"
    assert set(group.targets) <= set(group.members), f"{name}: a target of nobody"
    assert set(group.current) <= set(group.members), f"{name}: partitions of an unknown member"
    for member_id, state in group.current.items():
        assert state.epoch <= group.assignment_epoch, f"{name}: {member_id} is ahead of the target"
    subscribed = Counter(topic for member in group.members.values() for topic in member.subscribed_topic_names)
    assert group.subscribers == subscribed, f"{name}: counts subscribers {group.subscribers}, but {subscribed}"


def _check_consumer_deadlines(running: Running, consuming: RunningConsumers, group: ConsumerGroup) -> None:
    name = group.group_id
    assert group.patterns.keys() <= group.pattern_users.keys(), f"{name}: unused patterns: {group.patterns}"
    is_asked = consuming.of(group).target.asked_epoch is not None
    is_lazy = not running.deviations.departure_target
    waits = ("consumer assign", name, "") in running.deadlines or is_asked or is_lazy
    assert group.epoch == group.assignment_epoch or waits, f"{name}: no target is due"
    for member_id in group.members:
        assert ("consumer session", name, member_id) in running.deadlines, f"{name}: {member_id} has no session"
        revokes = group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS
        armed = ("consumer revoke", name, member_id) in running.deadlines
        assert revokes == armed, f"{name}: {member_id} and its revoke deadline"


def _check_members(running: Running, group: Group) -> None:
    name = group.group_id
    assert all(key == m.member_id for key, m in group.members.items()), name
    supported = Counter(protocol for m in group.members.values() for protocol in set(m.protocol_names))
    assert +group.support == supported, f"{name}: counts protocols {group.support}, but {supported}"
    size = sum(m.protocol_bytes for m in group.members.values())
    assert group.protocol_bytes == size, f"{name}: counts {group.protocol_bytes} bytes of protocols, but {size}"
    sizes = sum(m.size for m in group.members.values())
    assert group.members_size == sizes, f"{name}: counts {group.members_size} bytes of members, but {sizes}"
    joined = sum(1 for m in group.members.values() if m.join is not None)
    assert group.parked_joins == joined, f"{name}: counts {group.parked_joins} joined, but {joined}"
    instances = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert instances == group.instances, f"{name}: static members {group.instances}, but {instances}"
    assert group.leader in group.members if group.members else group.leader is None, f"{name}: leader {group.leader}"
    assert group.pending.keys().isdisjoint(group.members), f"{name}: pending and member"
    assert set(group.awaiting_sync) <= set(group.members), f"{name}: waits for the sync of a former member"
    assert all(("pending", name, member_id) in running.deadlines for member_id in group.pending), name


def _check_phase(running: Running, group: Group) -> None:
    name = group.group_id

    def armed(kind: str) -> bool:
        return (kind, name, str(group.generation_id)) in running.deadlines

    assert armed("initial") == (group.phase is Phase.PREPARING and group.initial), f"{name}: initial window"
    assert armed("join") == (group.phase is Phase.PREPARING and not group.initial), f"{name}: join deadline"
    assert armed("settle") == group.settling, f"{name}: settle deadline"
    assert armed("sync") == bool(group.awaiting_sync), f"{name}: sync deadline"
    match group.phase:
        case Phase.EMPTY:
            assert not group.members, f"{name}: empty, with members"
            assert group.protocol is None, f"{name}: empty, with a protocol"
        case Phase.PREPARING:
            waits_for_one = bool(group.pending) and not running.deviations.pending_alone
            assert group.initial or group.members or waits_for_one, f"{name}: rebalances without members"
            late = any(member.join is None for member in group.members.values())
            may_be_full = not running.deviations.full_group
            waits = group.initial or group.settling or group.pending or late or may_be_full
            assert waits, f"{name}: all have joined, but it waits"
        case Phase.COMPLETING:
            assert group.leader in group.awaiting_sync, f"{name}: the leader has synced, but it waits"
    if group.phase in (Phase.COMPLETING, Phase.STABLE):
        assert group.members, f"{name}: {group.phase.value}, without members"
        assert group.protocol in candidates(group), f"{name}: {group.protocol} is not common to all"
        assert not group.settling, f"{name}: {group.phase.value}, but it waits for more members"
    else:
        assert not group.awaiting_sync, f"{name}: waits for SyncGroups"


def _check_member(running: Running, group: Group, member: Member) -> None:
    name = f"{group.group_id}, {member.member_id}"
    parked = member.join in running.parked or member.sync in running.parked
    assert ("session", group.group_id, member.member_id) in running.deadlines or parked, f"{name}: has no session"
    assert member.join is None or group.phase is Phase.PREPARING, f"{name}: a join in {group.phase.value}"
    held = ("hold", group.group_id, member.member_id) in running.deadlines
    assert held == (member.heartbeat in running.parked), f"{name}: a held heartbeat and its deadline"
    assert member.heartbeat is None or group.phase is Phase.STABLE, f"{name}: a heartbeat held in {group.phase.value}"
    assert member.sync is None or group.phase is Phase.COMPLETING, f"{name}: a sync in {group.phase.value}"
    assert not (member.is_new and group.phase is not Phase.PREPARING), f"{name}: still new"
