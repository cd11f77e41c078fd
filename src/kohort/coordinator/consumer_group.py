"""Consumer groups (KIP-848): members say what they want, the coordinator says what they get.

    heartbeat ──► the member as it is now ──► group epoch ──► target assignment ──► reconciliation ──► answer

A heartbeat tells what has changed for the member. What changes the group (a join, a departure, another subscription,
other topics) raises the group epoch; a new epoch asks for a new target, at most one an assignment interval; each member
is led to its part of the target by itself (reconciliation.py), so only partitions that move ever pause.

All of this is hard state: every decision is a record. A record is applied at once, because what follows in the same
step builds on it; the caller applies the step's records again, which changes nothing. Soft are the deadlines and the
heartbeats that are held: an answer with nothing to say waits until something changes for its member, its time is up,
or another request stands behind it. Rules: a member that owes a revocation, joins or leaves is never held.

Fencing: a member epoch above the known one is fenced (110); one below only when it is not the one that the member said
last, or when it owns what is not its own: otherwise an answer was lost, or a heartbeat came twice. So a member that
behaves is never fenced, however many answers it misses, and however far the group went on meanwhile. A static member
that leaves for a while (-2) keeps its partitions until its session ends; its successor inherits them without a
rebalance.

Source: GroupMetadataManager.java, ConsumerGroup.java; rows N of the conformance list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kohort.config import Config
from kohort.coordinator.assignors.check import checked
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec
from kohort.coordinator.consumer_checks import check_epoch, check_heartbeat, check_static
from kohort.coordinator.consumer_responses import heartbeat_answer, heartbeat_error, stories_of
from kohort.coordinator.consumer_state import (
    LEFT_FOR_A_WHILE,
    ConsumerGroup,
    Target,
    epoch_value,
    target_epoch_value,
)
from kohort.coordinator.events import GroupRequested, JournalEntry, Millis, Record, Reply, RequestId, What
from kohort.coordinator.reconciliation import MemberState, Reconciliation, TopicPartition, reconcile
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.running import Running
from kohort.coordinator.state import HardState, Phase
from kohort.coordinator.stored_assignment import by_topic, current_value, target_value
from kohort.coordinator.topics import Topics, hash_of
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.schemas.group_records import ConsumerGroupMemberMetadataValue

SESSION, REVOKE, HOLD, ASSIGN = "consumer session", "consumer revoke", "consumer hold", "consumer assign"
"""Deadlines of consumer groups, by what they are of: a member, and for the last the group ("")."""


WAITING_INTERVAL_MS = 250
"""What a member that waits for partitions is told to heartbeat at: a first heartbeat cannot be held until they come."""


class ConsumerGroups:
    """The consumer groups of a shard."""

    def __init__(
        self, config: Config, hard: HardState, running: Running, assignors: Mapping[str, Assignor] = BUILT_IN
    ) -> None:
        self._config = config
        self._hard = hard
        self._running = running
        self._assignors = assignors
        self.topics = Topics()
        self.held: dict[tuple[str, str], RequestId] = {}
        """Held heartbeats: group and member."""
        self._told: dict[tuple[str, str], Millis] = {}
        """The interval that each member was told last."""
        self._said: dict[tuple[str, str], int] = {}
        """The epoch that each member said last."""
        self._moving: dict[str, dict[str, None]] = {}
        """Groups that are not stable: their members that have not come to the target yet."""
        self._began: dict[str, Millis] = {}

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self._hard.consumers.groups

    def emit(self, record: Record) -> None:
        self._running.out.records.append(record)
        self._hard.apply(record)

    # -- ConsumerGroupHeartbeat

    def heartbeat(self, event: GroupRequested, now: Millis) -> None:
        request: ConsumerGroupHeartbeatRequest = event.body
        refused = check_heartbeat(request, event.version, self._assignors) or self._check_group(request)
        if refused is not None:
            return self._refuse(event, *refused)
        if request.member_epoch < 0:
            return self._leave(event, now)
        if request.member_epoch == 0:
            self._found(request.group_id)
        group = self.groups[request.group_id]
        member_id = request.member_id or event.nonce
        self._let_go(group, member_id)
        refused = self._admit(group, request, member_id)
        if refused is not None:
            self._remove_if_unused(group)
            return self._refuse(event, *refused)
        self._update(group, request, member_id, event, now)
        before = group.state_of(member_id)
        self._said[group.group_id, member_id] = request.member_epoch
        state = self._reconcile(group, member_id, now, self._acknowledged(request, before), changed=True)
        self._arm_session(group, member_id, now)
        is_full = request.member_epoch == 0 or (
            request.rebalance_timeout_ms != -1
            and request.subscribed_topic_names is not None
            and request.topic_partitions is not None
        )
        missed = request.member_epoch != before.member_epoch
        tell = is_full or missed or state.assigned.keys() != before.assigned.keys()
        hold_ms = 0 if tell else self._hold_ms(group, member_id, state, event)
        if hold_ms > 0:
            self._hold(group, member_id, event.request_id, now + hold_ms)
        else:
            self._answer(event.request_id, group, member_id, state, tell)
        return self._wake(group, now)

    def _check_group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ErrorCode, str] | None:
        group = self.groups.get(request.group_id)
        if group is None:
            classic = self._running.groups.get(request.group_id)
            if request.member_epoch != 0:
                return ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {request.group_id}."
            if classic is not None and (classic.phase is not Phase.EMPTY or classic.pending):
                return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is a classic group with members."
            return None
        if request.member_epoch != 0:
            return None
        is_known = request.member_id in group.members or request.instance_id in group.instances
        if not is_known and len(group.members) >= self._config.group_consumer_max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED, "The group is full: group.consumer.max.size."
        return None

    def _found(self, group_id: str) -> None:
        """A new group, or a classic one without members, which becomes a consumer group; its offsets stay."""
        if group_id in self.groups:
            return
        classic = self._running.groups.get(group_id)
        if classic is not None:
            self._running.delete(classic, "it becomes a consumer group")
        # Epochs go on from the highest that a group of this name ever had (docs/decisions/0002).
        self.emit(consumer_group_record(group_id, epoch_value(self._highest_epoch(group_id), 0)))

    def _highest_epoch(self, group_id: str) -> int:
        group = self._running.groups.get(group_id)
        known = self.groups.get(group_id)
        return max(
            self._hard.generations.get(group_id, self._hard.forgotten),
            group.generation_id if group is not None else 0,
            known.epoch if known is not None else 0,
        )

    def _remove_if_unused(self, group: ConsumerGroup) -> None:
        if not group.members and group.assignment_epoch == 0 and group.group_id not in self._hard.offsets:
            self.emit(consumer_group_record(group.group_id, None))

    def _admit(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
    ) -> tuple[ErrorCode, str] | None:
        """Whether the member may heartbeat, or join; a static one that is back takes over from its former self."""
        owned = _owned(request)
        if request.instance_id is None:
            if request.member_epoch == 0:
                return None
            if member_id not in group.members:
                return ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group."
            return check_epoch(group.state_of(member_id), request.member_epoch, owned)
        holder = group.instances.get(request.instance_id)
        if request.member_epoch != 0:
            refused = check_static(holder, member_id, request.instance_id)
            return refused or check_epoch(group.state_of(member_id), request.member_epoch, owned)
        if holder is None:
            return None
        if group.state_of(holder).member_epoch == LEFT_FOR_A_WHILE:
            self._take_over(group, holder, member_id)
        elif holder != member_id:
            text = f"Instance {request.instance_id} is still in use by member {holder}."
            return ErrorCode.UNRELEASED_INSTANCE_ID, text
        return None

    def _take_over(self, group: ConsumerGroup, former_id: str, member_id: str) -> None:
        """A static member is back, under a new id or its own. What it had is kept for it, but it uses nothing yet."""
        value, target, state = group.members[former_id], group.targets.get(former_id), group.state_of(former_id)
        if former_id != member_id:
            self._forget(group, former_id)
            self.emit(member_record(group.group_id, member_id, value))
            if target is not None:
                self.emit(target_record(group.group_id, member_id, target_value(target)))
        state = MemberState(0, 0, Reconciliation.STABLE, state.assigned, {})
        self.emit(current_record(group.group_id, member_id, current_value(state)))
        self._note(group, "static member returned", "", member_id)

    def _update(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        event: GroupRequested,
        now: Millis,
    ) -> None:
        """Keep what the heartbeat says of the member; a new one, or another subscription, raises the group epoch."""
        former = group.members.get(member_id)
        value = _member_value(former, request, event)
        if value != former:
            self.emit(member_record(group.group_id, member_id, value))
        if former is None:
            self._note(group, "member joined", "", member_id)
            self._bump(group, now, "a member joined", member_id)
        elif _subscription(value) != _subscription(former):
            self._note(group, "subscription changed", "", member_id)
            self._bump(group, now, "a member's subscription changed", member_id)

    def _acknowledged(
        self, request: ConsumerGroupHeartbeatRequest, state: MemberState
    ) -> frozenset[TopicPartition] | None:
        """What the member says it owns, if it says so at its present epoch: then it has seen what it was told.

        With a join that is so only as long as it was not told any: a static member that is back.
        """
        return _owned(request) if request.member_epoch == state.member_epoch else None

    # -- leaving

    def _leave(self, event: GroupRequested, now: Millis) -> None:
        request: ConsumerGroupHeartbeatRequest = event.body
        group = self.groups[request.group_id]
        member_id = request.member_id
        if request.instance_id is not None:
            refused = check_static(group.instances.get(request.instance_id), member_id, request.instance_id)
            if refused is not None:
                return self._refuse(event, *refused)
        elif member_id not in group.members:
            return self._refuse(event, ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
        self._let_go(group, member_id)
        if request.member_epoch == LEFT_FOR_A_WHILE:
            state = group.state_of(member_id)
            away = MemberState(LEFT_FOR_A_WHILE, state.member_epoch, Reconciliation.STABLE, state.assigned, {})
            self.emit(current_record(group.group_id, member_id, current_value(away)))
            self._running.deadlines.clear((REVOKE, group.group_id, member_id))
        else:
            self._note(group, "member left", "", member_id)
            self._forget(group, member_id)
            self._bump(group, now, "a member left", member_id)
        self._running.out.replies.append(
            Reply(event.request_id, heartbeat_answer(member_id, request.member_epoch, self._interval_ms(group)))
        )
        return self._wake(group, now)

    def _forget(self, group: ConsumerGroup, member_id: str) -> None:
        for record in (current_record, target_record, member_record):
            self.emit(record(group.group_id, member_id, None))
        for kind in (SESSION, REVOKE):
            self._running.deadlines.clear((kind, group.group_id, member_id))
        self._moving.get(group.group_id, {}).pop(member_id, None)
        self._told.pop((group.group_id, member_id), None)
        self._said.pop((group.group_id, member_id), None)

    def _expire(self, group: ConsumerGroup, member_id: str, now: Millis, what: What, why: str, ms: Millis) -> None:
        held = self.held.get((group.group_id, member_id))
        if held is not None:
            self._release(group.group_id, member_id, held)
            self._reply_error(held, ErrorCode.UNKNOWN_MEMBER_ID, why)
        self._note(group, what, why, member_id, ms)
        self._forget(group, member_id)
        self._bump(group, now, why, member_id)
        self._wake(group, now)

    # -- the group epoch and the target

    def _bump(self, group: ConsumerGroup, now: Millis, why: str, member_id: str = "") -> None:
        epoch = self._highest_epoch(group.group_id) + 1
        self.emit(consumer_group_record(group.group_id, epoch_value(epoch, self._hash(group))))
        if group.group_id not in self._began:
            self._began[group.group_id] = now
        self._note(group, "rebalance started", why, member_id)
        self._retarget(group, now)

    def _hash(self, group: ConsumerGroup) -> int:
        return hash_of(self.topics, group.subscribed_topics)

    def _retarget(self, group: ConsumerGroup, now: Millis) -> None:
        """A new target for the new epoch, at most one an interval."""
        due = group.assigned_ms + self._config.group_consumer_assignment_interval_ms
        if group.members and group.assignment_epoch and now < due:
            if (ASSIGN, group.group_id, "") not in self._running.deadlines:
                self._running.deadlines.set((ASSIGN, group.group_id, ""), due)
            return
        self._running.deadlines.clear((ASSIGN, group.group_id, ""))
        targets = self._assign(group)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.emit(target_record(group.group_id, member_id, target_value(target)))
        self.emit(target_epoch_record(group.group_id, target_epoch_value(group.epoch, now)))
        self._moving[group.group_id] = dict.fromkeys(group.members)
        if not group.members:
            self._settle(group, now)

    def _assign(self, group: ConsumerGroup) -> dict[str, Target]:
        spec = self._spec(group)
        chosen = self._assignor_of(group)
        for assignor in dict.fromkeys((chosen, next(iter(self._assignors.values())))):
            result: Mapping[str, Assignment] | str
            try:
                result = checked(spec, assignor.assign(spec))
            except Exception as error:  # a plug-in's own code
                result = f"{type(error).__name__}: {error}"
            if not isinstance(result, str):
                return {member_id: _flat(assignment) for member_id, assignment in result.items()}
            self._note(group, "assignment refused", f"assignor {assignor.name}: {result}")
        return {member_id: group.targets.get(member_id, frozenset()) for member_id in spec.members}

    def _assignor_of(self, group: ConsumerGroup) -> Assignor:
        """The one that most members ask for; the first of the list when none does."""
        votes: dict[str, int] = {}
        for _, member in sorted(group.members.items()):
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        name = max(votes, key=lambda candidate: votes[candidate], default="")
        return self._assignors.get(name) or next(iter(self._assignors.values()))

    def assignor_name(self, group: ConsumerGroup) -> str:
        return self._assignor_of(group).name

    def _spec(self, group: ConsumerGroup) -> GroupSpec:
        by_name = self.topics.by_name
        members = {}
        subscribed: dict[str, None] = {}
        for member_id, member in sorted(group.members.items()):
            names = [name for name in member.subscribed_topic_names if name in by_name]
            subscribed.update(dict.fromkeys(names))
            members[member_id] = MemberSpec(
                member_id,
                member.instance_id,
                member.rack_id,
                tuple(sorted(by_name[name].topic_id for name in names)),
                dict(by_topic(group.targets.get(member_id, ()))),
            )
        return GroupSpec(members, {by_name[name].topic_id: by_name[name] for name in sorted(subscribed)})

    def topics_changed(self, now: Millis, names: Iterable[str] | None = None) -> None:
        """Groups whose topics are not what they were get a new target (N19). `names`: what changed, if known."""
        fold = self._hard.consumers
        for group in list(fold.groups.values()) if names is None else fold.subscribed_to(names):
            if group.members and self._hash(group) != group.metadata_hash:
                self._bump(group, now, "its topics changed")
                self._wake(group, now)

    # -- reconciliation

    def _reconcile(
        self,
        group: ConsumerGroup,
        member_id: str,
        now: Millis,
        owned: frozenset[TopicPartition] | None,
        *,
        changed: bool = False,
    ) -> MemberState:
        before = group.state_of(member_id)
        names = group.members[member_id].subscribed_topic_names
        by_name = self.topics.by_name
        after = reconcile(
            before,
            target_epoch=group.assignment_epoch,
            target=group.targets.get(member_id, frozenset()),
            owned=owned,
            current_epoch_of=group.epoch_of,
            subscribed={by_name[name].topic_id for name in names if name in by_name},
            subscription_changed=changed,
        )
        if after is not before:
            # It may miss this answer as it missed the last one, so the epoch it may come back with is what it said.
            said = self._said.get((group.group_id, member_id), before.member_epoch)
            after = replace(after, previous_member_epoch=said)
            self.emit(current_record(group.group_id, member_id, current_value(after)))
            key = (REVOKE, group.group_id, member_id)
            if after.state is not Reconciliation.UNREVOKED_PARTITIONS:
                self._running.deadlines.clear(key)
            elif after.revoking.keys() != before.revoking.keys():
                timeout = group.members[member_id].rebalance_timeout_ms
                self._running.deadlines.set(key, now + timeout)
        if group.is_reconciled(member_id) and self._moving.get(group.group_id, {}).pop(member_id, self) is None:
            self._settle(group, now)
        return after

    def _settle(self, group: ConsumerGroup, now: Millis) -> None:
        """Tell the journal when the last member has come to the target."""
        if self._moving.get(group.group_id) or group.epoch != group.assignment_epoch:
            return
        self._moving.pop(group.group_id, None)
        took = now - self._began.pop(group.group_id, now)
        if group.members:
            self._note(group, "group is stable", "everybody has its target", "", took)
        else:
            self._note(group, "group is empty", "nobody is left", "", took)

    # -- held heartbeats

    def _hold_ms(self, group: ConsumerGroup, member_id: str, state: MemberState, event: GroupRequested) -> Millis:
        """How long the answer may be held: not at all for a member that owes a revocation.

        Clients wait for an answer as long as the interval that they were told last. A new epoch alone is no hurry: the
        member's commits are accepted with the old one, and after an answer it is out of reach for an interval.
        """
        if state.state is Reconciliation.UNREVOKED_PARTITIONS:
            return 0
        told = self._told.get((group.group_id, member_id), 0)
        return min(event.hold_ms, told - max(500, told // 10), self._session_ms(group) // 3)

    def _hold(self, group: ConsumerGroup, member_id: str, request_id: RequestId, until: Millis) -> None:
        self.held[group.group_id, member_id] = request_id
        self._running.parked[request_id] = (group.group_id, member_id)
        self._running.deadlines.set((HOLD, group.group_id, member_id), until)

    def _release(self, group_id: str, member_id: str, request_id: RequestId) -> bool:
        """Whether somebody still waits for the answer."""
        del self.held[group_id, member_id]
        self._running.deadlines.clear((HOLD, group_id, member_id))
        return self._running.parked.pop(request_id, None) is not None

    def _let_go(self, group: ConsumerGroup, member_id: str) -> None:
        """Answer the member's held heartbeat with what there is."""
        request_id = self.held.get((group.group_id, member_id))
        if request_id is not None and self._release(group.group_id, member_id, request_id):
            self._answer(request_id, group, member_id, group.state_of(member_id), tell=False)

    def _wake(self, group: ConsumerGroup, now: Millis) -> None:
        """Answer the held heartbeats of members that have something to give up or to take; that may free partitions for
        more. Who only gets another epoch is held on: answered, it could not be reached until its next heartbeat."""
        again = bool(self.held)
        while again:
            again = False
            for member_id in sorted(group.members):
                request_id = self.held.get((group.group_id, member_id))
                if request_id is None:
                    continue
                before = group.state_of(member_id)
                state = self._reconcile(group, member_id, now, None)
                if state.assigned.keys() != before.assigned.keys():
                    again = True
                    if self._release(group.group_id, member_id, request_id):
                        self._answer(request_id, group, member_id, state, tell=True)

    def holds(self, request_id: RequestId) -> bool:
        found = self._running.parked.get(request_id)
        return found is not None and self.held.get(found) == request_id

    def answer_held(self, request_id: RequestId) -> None:
        group_id, member_id = self._running.parked[request_id]
        self._let_go(self.groups[group_id], member_id)

    def abandon(self, request_id: RequestId) -> None:
        """Nobody waits for the held answer any more."""
        self._release(*self._running.parked[request_id], request_id)

    # -- time, load, unload, deletion

    def deadline_reached(self, key: tuple[str, str, str], now: Millis) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return
        match kind:
            case "consumer assign":
                self._retarget(group, now)
                self._wake(group, now)
            case "consumer session" if member_id in group.members:
                silent = self._session_ms(group)
                self._expire(group, member_id, now, "session expired", f"no heartbeat in {silent} ms", silent)
            case "consumer revoke" if member_id in group.members:
                waited = group.members[member_id].rebalance_timeout_ms
                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:
                    why = f"it did not give its partitions up in {waited} ms"
                    self._expire(group, member_id, now, "member removed", why, waited)
            case "consumer hold":
                self._let_go(group, member_id)

    def load(self, now: Millis) -> None:
        for group in list(self.groups.values()):
            for member_id, member in group.members.items():
                self._arm_session(group, member_id, now)
                if group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS:
                    self._running.deadlines.set((REVOKE, group.group_id, member_id), now + member.rebalance_timeout_ms)
            if group.members:
                self._note(group, "group loaded")
            moving = [member_id for member_id in group.members if not group.is_reconciled(member_id)]
            if moving:
                self._moving[group.group_id] = dict.fromkeys(moving)
                self._began[group.group_id] = now
            if group.epoch > group.assignment_epoch:
                self._retarget(group, now)
        self.topics_changed(now)

    def unload(self) -> None:
        for (group_id, member_id), request_id in list(self.held.items()):
            if self._release(group_id, member_id, request_id):
                self._reply_error(request_id, ErrorCode.NOT_COORDINATOR, None)
        for group in self.groups.values():
            if group.members:
                self._note(group, "group unloaded")
        self._told.clear()
        self._said.clear()
        self._moving.clear()
        self._began.clear()

    def expire(self) -> None:
        """Groups without members and offsets go; the offsets that this sweep lets go of are gone with the next one."""
        for group in list(self.groups.values()):
            if not group.members and group.group_id not in self._hard.offsets:
                self.delete(group, "it has no members and no offsets")

    def delete(self, group: ConsumerGroup, why: str) -> None:
        """Forget a group without members. Its highest epoch stays in the log."""
        assert not group.members, group.group_id
        self._note(group, "group deleted", why)
        self.emit(generation_record(group.group_id, self._highest_epoch(group.group_id)))
        self.emit(target_epoch_record(group.group_id, None))
        self.emit(consumer_group_record(group.group_id, None))
        self._running.deadlines.clear((ASSIGN, group.group_id, ""))

    # -- what leaves

    def _arm_session(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        self._running.deadlines.set((SESSION, group.group_id, member_id), now + self._session_ms(group))

    def _session_ms(self, group: ConsumerGroup) -> Millis:
        return self._config.group_consumer_session_timeout_ms

    def _interval_ms(self, group: ConsumerGroup) -> Millis:
        return self._config.group_consumer_heartbeat_interval_ms

    def _answer(
        self, request_id: RequestId, group: ConsumerGroup, member_id: str, state: MemberState, tell: bool
    ) -> None:
        assigned = state.assigned if tell else None
        waits = state.state is Reconciliation.UNRELEASED_PARTITIONS or group.epoch > group.assignment_epoch
        interval = self._interval_ms(group)
        if waits:
            interval = min(interval, WAITING_INTERVAL_MS)
        self._told[group.group_id, member_id] = interval
        answer = heartbeat_answer(member_id, state.member_epoch, interval, assigned)
        self._running.out.replies.append(Reply(request_id, answer))

    def _refuse(self, event: GroupRequested, error: ErrorCode, message: str) -> None:
        self._reply_error(event.request_id, error, message)

    def _reply_error(self, request_id: RequestId, error: ErrorCode, message: str | None) -> None:
        self._running.out.replies.append(Reply(request_id, heartbeat_error(error, message)))

    def _note(
        self, group: ConsumerGroup, what: What, cause: str = "", member_id: str = "", waited_ms: Millis = -1
    ) -> None:
        member = group.members.get(member_id)
        tells_all = what in ("group is stable", "group loaded")
        self._running.out.journal.append(
            JournalEntry(
                group=group.group_id,
                what=what,
                cause=cause,
                generation_id=group.epoch,
                member_id=member_id,
                instance_id=member.instance_id if member is not None else None,
                client_id=member.client_id if member is not None else "",
                host=member.client_host if member is not None else "",
                waited_ms=waited_ms,
                protocol_type="consumer",
                protocol=self.assignor_name(group),
                members=stories_of(group, self.topics) if tells_all else (),
            )
        )


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _flat(assignment: Assignment) -> Target:
    return frozenset((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


def _subscription(member: ConsumerGroupMemberMetadataValue) -> tuple[tuple[str, ...], str]:
    return member.subscribed_topic_names, member.subscribed_topic_regex or ""


def _member_value(
    former: ConsumerGroupMemberMetadataValue | None, request: ConsumerGroupHeartbeatRequest, event: GroupRequested
) -> ConsumerGroupMemberMetadataValue:
    """The member as it is now: what the heartbeat leaves out stays as it was."""

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
