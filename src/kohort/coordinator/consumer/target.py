"""The target assignment of a consumer group: when it is made, by which assignor, and how much of it takes effect.

    change ──► group epoch ──► wait? ──► assignor ──► gradual or frozen? ──► target ──► reconciliation

A change of the group raises its epoch (`bump`), and a new epoch needs a new target. The target is made at once, or
when a deadline is reached:

    assignment interval   at most one target an interval (N19)
    initial delay         the group was empty; more members may join
    rollout freeze        an operator wants no rebalance for a while
    departure             a member has left; others may leave in the same moment (only where heartbeats are held)
    no room               the members of all groups have all of group.max.total.bytes; the last target stays

The target of a small group is made within the step. The target of a large group, or of an assignor that is not built in
or needs the lag, is made outside the shard: `AssignmentAsked` asks for it, and the result arrives as an event. A change
of the group meanwhile raises its epoch and so asks for the next target. An assignor that raises, takes too long or
returns no assignment is set aside for a while; the group's last good assignor takes over, or the default. What such a
target is made from, and its records, are made outside too (target_work.py).

A member that joins a group without any target must get an epoch at once. So the first target is empty when the real
one cannot be made yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kohort.coordinator.assignors.check import Result, assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.consumer.assignment_records import target_value
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, Target, epoch_value, target_epoch_value
from kohort.coordinator.consumer.reconciliation import TopicPartition
from kohort.coordinator.consumer.soft_state import ASSIGN, Deferred, RunningConsumers, RunningTarget
from kohort.coordinator.consumer.staged_target import Effective, frozen, gradual
from kohort.coordinator.consumer.target_work import PreparedTarget, flat, snapshot
from kohort.coordinator.events import AssignmentAsked, AssignmentMade, Millis
from kohort.coordinator.member_bytes import PARTITION_BYTES
from kohort.coordinator.records import consumer_group_record, target_epoch_record, target_record
from kohort.coordinator.topics import hash_of

AT_ONCE = 2_000
"""Members and partitions of a group whose target is made within the step; that takes some milliseconds."""
ASIDE_MS = 60_000
"""How long a group does without an assignor that failed it."""
LEAVING_MS, LEAVING_MAX_MS = 250, 1_000
"""How long a target waits after a member has left, and at most after the first that left since the last target.
Members of one process are closed one after the other, and librdkafka never ends a consumer that is destroyed without
`close()` after an assignment has arrived for its rebalance callback (docs/decisions/0013)."""
FULL_MS = 30_000
"""How long a group keeps its target when there is no room for more partitions; then it tries again."""
FULL = "group.max.total.bytes"
FREEZE = "rollout hold"
GRADUAL = "gradual hand-over"
NEED_LAG = frozenset(("lag",))


class Targets:
    def __init__(self, consumers: RunningConsumers, assignors: Mapping[str, Assignor]) -> None:
        self._consumers = consumers
        self._running = consumers.running
        self._by_clock = consumers.running.deviations.departure_target
        """Whether a target is made as soon as it may be; otherwise the next heartbeat makes it, as in Kafka."""
        self._assignors = assignors

    # -- what changes a group

    def joined(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        """Call it after the record of the new member, before the epoch is raised."""
        known = self._consumers.of(group)
        if len(group.members) == 1:
            known.target.opened_ms = now
        settings = self._consumers.settings(group)
        if settings.handover_max_partitions:
            known.target.newcomers.add(member_id)
        if self.is_frozen(group, now) and 0 < settings.hold_until_members <= _present(group):
            known.freeze_ended_ms = settings.hold_until_timestamp_ms
            self._running.out.holds_over.append(group.group_id)
            self._consumers.note(group, "rollout hold ended", f"the group has {_present(group)} members")

    def departs(self, group: ConsumerGroup, member_id: str, now: Millis, *, is_dead: bool) -> None:
        """Call it before the member is forgotten."""
        settings = self._consumers.settings(group)
        target = self._consumers.of(group).target
        if not is_dead and settings.heartbeat_hold_enable:
            first_ms = now if target.leaving is None else target.leaving[0]
            target.leaving = (first_ms, now)
        if is_dead and not settings.hold_dead_members and self.is_frozen(group, now):
            target.freed.update(group.targets.get(member_id, ()))

    def bump(self, group: ConsumerGroup, now: Millis, why: str, member_id: str = "") -> None:
        """Raise the group epoch, and make a target for it as soon as possible."""
        epoch = self._consumers.highest_epoch(group.group_id) + 1
        self._consumers.emit(consumer_group_record(group.group_id, epoch_value(epoch, self.hash(group))))
        known = self._consumers.of(group)
        if known.began_ms is None:
            known.began_ms = now
        known.why = why
        self._consumers.note(group, "rebalance started", why, member_id)
        if self._by_clock or not group.members:
            self._retarget(group, now)

    def heartbeat(self, group: ConsumerGroup, now: Millis) -> None:
        """A member has sent a heartbeat or has joined: where the clock makes no targets, this does."""
        if self._by_clock:
            return
        if self.hash(group) != group.metadata_hash:
            self.bump(group, now, "its topics changed")
        if group.epoch > group.assignment_epoch:
            self._retarget(group, now)

    def hash(self, group: ConsumerGroup) -> int:
        return hash_of(self._consumers.topics, group.subscribed_topics)

    def due(self, group: ConsumerGroup, now: Millis) -> None:
        """A target that was deferred may be due."""
        if not group.members:
            return
        deferred = self._consumers.of(group).target.deferred
        if group.epoch > group.assignment_epoch:
            self._retarget(group, now)
        elif self.is_frozen(group, now):
            self._defer(group, now, FREEZE, self._consumers.settings(group).hold_until_timestamp_ms)
        elif self._is_still_full(group, deferred):
            self._defer(group, now, FULL, now + FULL_MS, deferred.partitions if deferred is not None else 0)
        else:
            why = f"{deferred.why}: its time is over" if deferred is not None else "its settings changed"
            self.bump(group, now, why)

    def settings_changed(self, group: ConsumerGroup, now: Millis) -> None:
        known = self._consumers.of(group)
        if known.freeze_ended_ms != self._consumers.settings(group).hold_until_timestamp_ms:
            known.freeze_ended_ms = None  # a later freeze may have the same end
        if (ASSIGN, group.group_id, "") in self._running.deadlines:
            self._running.deadlines.set((ASSIGN, group.group_id, ""), now)
        elif group.members and self._choice(group, now) != self.assignor_name(group):
            self.bump(group, now, "its assignor changed")

    # -- when

    def is_frozen(self, group: ConsumerGroup, now: Millis) -> bool:
        until = self._consumers.settings(group).hold_until_timestamp_ms
        return until > now and self._consumers.of(group).freeze_ended_ms != until

    def _retarget(self, group: ConsumerGroup, now: Millis) -> None:
        known = self._consumers.of(group)
        self._running.deadlines.clear((ASSIGN, group.group_id, ""))
        known.target.deferred = None
        if not group.members:
            known.target = RunningTarget()
            self._consumers.count_partitions(group, 0)
            # The assignment interval counts from the last target with members: the next member need not wait.
            if self._by_clock:
                value = target_epoch_value(group.epoch, group.assigned_ms)
                self._consumers.emit(target_epoch_record(group.group_id, value))
            known.moving = {}
            self._consumers.settle(group, now)
            return
        settings = self._consumers.settings(group)
        waits = {}
        if group.assignment_epoch and group.assigned_ms <= now:  # not if the clock has been set back since
            waits["assignment interval"] = group.assigned_ms + settings.assignment_interval_ms
        if known.target.opened_ms is not None:
            waits["initial delay"] = known.target.opened_ms + settings.initial_rebalance_delay_ms
        if known.target.leaving is not None:
            first_ms, last_ms = known.target.leaving
            waits["departure"] = min(last_ms + LEAVING_MS, first_ms + LEAVING_MAX_MS)
        if self.is_frozen(group, now) and not known.target.freed:
            waits[FREEZE] = settings.hold_until_timestamp_ms
        why = max(waits, key=lambda reason: waits[reason], default="")
        if why and waits[why] > now and not self._by_clock:
            return
        if why and waits[why] > now:
            self._give_empty_target(group)
            self._defer(group, now, why, waits[why])
        elif known.target.asked_epoch is None:
            self._make(group, now)

    def _defer(self, group: ConsumerGroup, now: Millis, why: str, until: Millis, partitions: int = 0) -> None:
        self._consumers.note(group, "held back", why, waited_ms=max(until - now, 0), partitions=partitions)
        self._running.deadlines.set((ASSIGN, group.group_id, ""), until)
        self._consumers.of(group).target.deferred = Deferred(why, until, partitions)

    def give_epoch(self, group: ConsumerGroup) -> None:
        """Give a group without any target an epoch: its first member needs one, though it gets no partitions yet."""
        if not self._running.deviations.first_epoch:
            # Kafka's groups have an epoch from the start.
            if not group.assignment_epoch:
                self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(group.epoch, 0)))
        elif not group.assignment_epoch:
            epoch = self._consumers.highest_epoch(group.group_id) + 1
            self._consumers.emit(consumer_group_record(group.group_id, epoch_value(epoch, self.hash(group))))
            self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(epoch, 0)))

    def _give_empty_target(self, group: ConsumerGroup) -> None:
        """Give a group without any target an empty one, so that its first member can get an epoch. No assignment
        interval counts from it."""
        if group.assignment_epoch:
            return
        self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(group.epoch, 0)))
        epoch = epoch_value(group.epoch + 1, self.hash(group))
        self._consumers.emit(consumer_group_record(group.group_id, epoch))

    # -- which assignor computes it

    def _make(self, group: ConsumerGroup, now: Millis) -> None:
        present = snapshot(group, self._consumers.topics)
        partitions = sum(topic.partitions for topic in present.topics.values())
        if not self._has_room(group, partitions):
            self._keep(group, partitions, now)
            return
        self._consumers.count_partitions(group, partitions)
        name = self._choice(group, now)
        size = len(group.members) + partitions
        assignor = BUILT_IN.get(name)
        if assignor is not None and name not in NEED_LAG and size <= AT_ONCE:
            self._take(group, group.epoch, name, assigned(assignor, present.spec()), now)
            return
        self._give_empty_target(group)
        self._consumers.of(group).target.asked_epoch = group.epoch
        wants_lag = assignor is None or name in NEED_LAG
        task = AssignmentAsked(group.group_id, group.epoch, name, present, wants_lag)
        self._running.out.tasks.append(task)

    def _has_room(self, group: ConsumerGroup, partitions: int) -> bool:
        """True if the group's target may have so many partitions."""
        more = partitions - self._consumers.of(group).partitions
        return self._running.member_bytes.has_room(PARTITION_BYTES * more)

    def _keep(self, group: ConsumerGroup, partitions: int, now: Millis) -> None:
        """There is no room for a target of so many partitions: the members keep what they have."""
        self._consumers.note(group, "assignment refused", f"{partitions} partitions are too many for {FULL}")
        self._put(group, group.epoch, self._last_good(group), now)
        known = self._consumers.of(group)
        if self._by_clock:  # with hash 0, a coordinator that loads the group sees changed topics, and tries again
            self._consumers.emit(consumer_group_record(group.group_id, epoch_value(group.epoch, 0)))
        if known.target.deferred is None:
            self._defer(group, now, FULL, now + FULL_MS, partitions - known.partitions)

    def _is_still_full(self, group: ConsumerGroup, deferred: Deferred | None) -> bool:
        if deferred is None or deferred.why != FULL:
            return False
        return not self._has_room(group, self._consumers.of(group).partitions + deferred.partitions)

    def made(self, group: ConsumerGroup, event: AssignmentMade, now: Millis) -> None:
        """A target that was made outside the shard has arrived, or why it could not be made."""
        target = self._consumers.of(group).target
        if target.asked_epoch != event.epoch:
            return
        target.asked_epoch = None
        if not group.members:
            return
        same_members = not isinstance(event.result, str) and event.result.keys() == group.members.keys()
        if group.epoch == event.epoch and not isinstance(event.result, str) and not same_members:
            self._make(group, now)  # a static member has come back under another id
        else:
            self._take(group, event.epoch, event.assignor, event.result, now, event.prepared)

    def _take(
        self,
        group: ConsumerGroup,
        epoch: int,
        name: str,
        result: Result,
        now: Millis,
        prepared: PreparedTarget | None = None,
    ) -> None:
        known = self._consumers.of(group)
        if isinstance(result, str):
            self._consumers.note(group, "assignment refused", f"assignor {name}: {result}")
            known.set_aside[name] = now + ASIDE_MS
            if self._choice(group, now) != name:
                self._make(group, now)
                return
            full = self._last_good(group)
        else:
            known.target.assignor = name
            if prepared is None:
                full = {m: flat(result.get(m, {})) for m in group.members}
            else:
                full = {m: prepared.targets.get(m, frozenset()) for m in group.members}
        self._put(group, epoch, full, now, prepared)

    @staticmethod
    def _last_good(group: ConsumerGroup) -> Mapping[str, Target]:
        return {member_id: group.targets.get(member_id, frozenset()) for member_id in group.members}

    def _put(
        self,
        group: ConsumerGroup,
        epoch: int,
        full: Mapping[str, Target],
        now: Millis,
        prepared: PreparedTarget | None = None,
    ) -> None:
        """As much of this target as may take effect is the group's target from now on."""
        known = self._consumers.of(group)
        known.target.opened_ms = known.target.leaving = None
        effective = self._effective(group, full, now)
        if prepared is not None and effective.targets is full:
            changes = prepared.changes_of(group.members)
            if changes.targets:
                self._consumers.emit(changes)
        for member_id, target in effective.targets.items():
            present = group.targets.get(member_id)
            if present is None and not target and prepared is not None:
                continue  # it has joined since: the next target is for it too
            if target is not present and target != present:
                self._consumers.emit(target_record(group.group_id, member_id, target_value(target)))
        self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(epoch, now)))
        self._consumers.note(group, "target made")
        known.moving = dict.fromkeys(group.members)
        if group.epoch > epoch:
            self._retarget(group, now)

    @property
    def _default(self) -> str:
        return next(iter(self._assignors))

    def _choice(self, group: ConsumerGroup, now: Millis) -> str:
        """The assignor that is configured for the group, else the one that most members ask for, else the first that is
        configured for the server. An assignor that recently failed for the group is skipped."""
        known = self._consumers.of(group)
        votes = Counter(member.server_assignor for member in group.members.values())
        del votes[None]
        most = max(votes.values(), default=0)
        tied = [name for name in votes if votes[name] == most]
        asked_for = tied[0] or "" if len(tied) == 1 else _first_asked_for(group, tied)
        own = self._consumers.settings(group).assignor
        wanted = own if own in self._assignors else asked_for
        for name in (wanted, known.target.assignor, *self._assignors):
            if name in self._assignors and known.set_aside.get(name, now) <= now:
                return name
        return self._default

    def assignor_name(self, group: ConsumerGroup) -> str:
        """The assignor that made the group's target."""
        if not self._running.deviations.who_assigned:
            return self._choice(group, 0)
        return self._consumers.of(group).target.assignor or self._choice(group, 0)

    # -- how much of it

    def _effective(self, group: ConsumerGroup, full: Mapping[str, Target], now: Millis) -> Effective:
        running = self._consumers.of(group).target
        settings = self._consumers.settings(group)
        may_use: dict[str, frozenset[str]] = {}

        def may_keep(member_id: str, partition: TopicPartition) -> bool:
            if member_id not in may_use:
                may_use[member_id] = group.names_of(member_id)
            topic = self._consumers.topics.by_id.get(partition[0])
            return topic is not None and partition[1] < topic.partitions and topic.name in may_use[member_id]

        present = {m: target for m, target in group.targets.items() if m in group.members}
        freed, running.freed = running.freed, set()
        running.is_partial = False
        if self.is_frozen(group, now):
            effective = frozen(full, present, freed=freed, may_keep=may_keep)
            self._defer(group, now, FREEZE, settings.hold_until_timestamp_ms, effective.waiting)
            return effective
        if not settings.handover_max_partitions or not running.newcomers:
            running.newcomers = set()
            return Effective(full, 0, 0)
        next_ms = running.handed_over_ms + settings.handover_interval_ms
        at_most = settings.handover_max_partitions if now >= next_ms else 0
        effective = gradual(full, present, newcomers=running.newcomers, at_most=at_most, may_keep=may_keep)
        if effective.moved:
            running.handed_over_ms = now
            next_ms = now + settings.handover_interval_ms
        if effective.waiting:
            self._defer(group, now, GRADUAL, next_ms, effective.waiting)
            running.is_partial = True
        else:
            running.newcomers = set()
        return effective

    # -- load, deletion

    def load(self, group: ConsumerGroup, now: Millis) -> None:
        """Changes that waited when the shard went down wait again. All members count as newcomers, as their age is
        unknown."""
        if not group.members:
            return
        target = self._consumers.of(group).target
        target.assignor = self._choice(group, now)
        self._consumers.count_partitions(group, sum(map(len, group.targets.values())))
        settings = self._consumers.settings(group)
        if settings.handover_max_partitions:
            target.newcomers = set(group.members)
        if group.epoch > group.assignment_epoch:
            self._retarget(group, now)
        elif self.is_frozen(group, now):
            self._defer(group, now, FREEZE, settings.hold_until_timestamp_ms)
        elif group.assigned_ms < settings.hold_until_timestamp_ms <= now:
            # The freeze has ended; its partitions still wait.
            self._defer(group, now, FREEZE, now)
        elif settings.handover_max_partitions:
            self._defer(group, now, GRADUAL, now + settings.handover_interval_ms)

    def deleted(self, group: ConsumerGroup) -> None:
        self._running.deadlines.clear((ASSIGN, group.group_id, ""))


def _first_asked_for(group: ConsumerGroup, names: Sequence[str | None]) -> str:
    """That of the member with the smallest id; "" if there are no names."""
    asking = ((member_id, member.server_assignor) for member_id, member in group.members.items())
    return min(((member_id, name or "") for member_id, name in asking if name in names), default=("", ""))[1]


def _present(group: ConsumerGroup) -> int:
    return sum(group.state_of(member_id).member_epoch != LEFT_FOR_A_WHILE for member_id in group.members)
