"""The target assignment of a consumer group: when it is made, by whom, and how much of it takes effect.

    what changed ──► group epoch ──► wait? ──► assignor ──► gradual, on hold? ──► target ──► reconciliation

What changes the group raises its epoch (`bump`), and a new epoch asks for a new target. It is made at once, or, and
then a deadline brings it up again, later:

    assignment interval   at most one target an interval (N19)
    initial delay         the group was empty; others may come
    rollout hold          an operator wants no rebalance for a while

A small group's target is made within the step. That of a large one, or by an assignor that is not built in or wants to
know the lag, is asked for (`AssignmentAsked`) and comes as an event; what happens to the group meanwhile raises its
epoch, and so asks for the next one. An assignor that raises, takes too long or gives no assignment is refused and set
aside for a while; the group's last good one serves, or the default.

A member that comes to a group without any target must be told an epoch at once. So the first target is an empty one
when the real one cannot be made yet.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kohort.config import Config
from kohort.coordinator.assignors.check import Result, assigned
from kohort.coordinator.assignors.registry import BUILT_IN
from kohort.coordinator.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec
from kohort.coordinator.consumer.assignment_records import by_topic, target_value
from kohort.coordinator.consumer.group import LEFT_FOR_A_WHILE, ConsumerGroup, Target, epoch_value, target_epoch_value
from kohort.coordinator.consumer.reconciliation import TopicPartition
from kohort.coordinator.consumer.soft_state import ASSIGN, RunningConsumers
from kohort.coordinator.consumer.staged_target import Effective, gradual, on_hold
from kohort.coordinator.events import AssignmentAsked, AssignmentMade, Millis
from kohort.coordinator.records import consumer_group_record, target_epoch_record, target_record
from kohort.coordinator.topics import hash_of

AT_ONCE = 2_000
"""Members and partitions of a group whose target is made within the step; that takes some milliseconds."""
ASIDE_MS = 60_000
"""For how long a group does without an assignor that failed it."""


class Deferred(msgspec.Struct, frozen=True):
    """Why a group's next target waits, and until when."""

    why: str
    until_ms: Millis
    partitions: int = 0
    """How many are not yet where they shall be; 0 when that is not known yet."""


class Targets:
    def __init__(self, config: Config, consumers: RunningConsumers, assignors: Mapping[str, Assignor]) -> None:
        self._config = config
        self._consumers = consumers
        self._running = consumers.running
        self._asked = consumers.running.asked
        self._assignors = assignors
        self.deferred: dict[str, Deferred] = {}
        self._aside: dict[tuple[str, str], Millis] = {}
        """Until when a group does without an assignor."""
        self._opened: dict[str, Millis] = {}
        """When a group that was empty got its first member."""
        self._newcomers: dict[str, set[str]] = {}
        """Members that have not had their whole first target."""
        self._handed_over: dict[str, Millis] = {}
        self._freed: dict[str, set[TopicPartition]] = {}
        """Partitions of members that died during a hold."""
        self._holds_over: dict[str, Millis] = {}
        """Holds that ended early because enough members came, by their timestamp."""

    # -- what changes a group

    def joined(self, group: ConsumerGroup, member_id: str, now: Millis) -> None:
        """To be told before the epoch is raised."""
        if len(group.members) == 1:
            self._opened[group.group_id] = now
        settings = self._consumers.settings(group)
        if settings.handover_max_partitions:
            self._newcomers.setdefault(group.group_id, set()).add(member_id)
        if self.is_on_hold(group, now) and 0 < settings.hold_until_members <= _present(group):
            self._holds_over[group.group_id] = settings.hold_until_timestamp_ms
            self._consumers.running.out.holds_over.append(group.group_id)
            self._consumers.note(group, "rollout hold ended", f"the group has {_present(group)} members")

    def departs(self, group: ConsumerGroup, member_id: str, now: Millis, *, is_dead: bool) -> None:
        """To be told before the member is forgotten."""
        settings = self._consumers.settings(group)
        if is_dead and not settings.hold_dead_members and self.is_on_hold(group, now):
            self._freed.setdefault(group.group_id, set()).update(group.targets.get(member_id, ()))
        self._newcomers.get(group.group_id, set()).discard(member_id)

    def bump(self, group: ConsumerGroup, now: Millis, why: str, member_id: str = "") -> None:
        """Raise the group epoch, and make a target for it as soon as that may be."""
        epoch = self._consumers.highest_epoch(group.group_id) + 1
        self._consumers.emit(consumer_group_record(group.group_id, epoch_value(epoch, self.hash(group))))
        self._consumers.began.setdefault(group.group_id, now)
        self._consumers.why[group.group_id] = why
        self._consumers.note(group, "rebalance started", why, member_id)
        self._retarget(group, now)

    def hash(self, group: ConsumerGroup) -> int:
        return hash_of(self._consumers.topics, group.subscribed_topics)

    def due(self, group: ConsumerGroup, now: Millis) -> None:
        """A target that was deferred may be due."""
        if not group.members:
            return
        found = self.deferred.get(group.group_id)
        if group.epoch > group.assignment_epoch:
            self._retarget(group, now)
        elif self.is_on_hold(group, now):
            self._defer(group, now, ON_HOLD, self._consumers.settings(group).hold_until_timestamp_ms)
        else:
            self.bump(group, now, f"{found.why}: its time is over" if found is not None else "its settings changed")

    def settings_changed(self, group: ConsumerGroup, now: Millis) -> None:
        if (ASSIGN, group.group_id, "") in self._running.deadlines:
            self._running.deadlines.set((ASSIGN, group.group_id, ""), now)
        elif group.members and self._choice(group, now) != self.assignor_name(group):
            self.bump(group, now, "its assignor changed")

    # -- when

    def is_on_hold(self, group: ConsumerGroup, now: Millis) -> bool:
        until = self._consumers.settings(group).hold_until_timestamp_ms
        return until > now and self._holds_over.get(group.group_id) != until

    def _retarget(self, group: ConsumerGroup, now: Millis) -> None:
        group_id = group.group_id
        self._running.deadlines.clear((ASSIGN, group_id, ""))
        self.deferred.pop(group_id, None)
        if not group.members:
            self._forget(group_id)
            self._consumers.emit(target_epoch_record(group_id, target_epoch_value(group.epoch, now)))
            self._consumers.moving[group_id] = {}
            self._consumers.settle(group, now)
            return
        settings = self._consumers.settings(group)
        waits = {}
        if group.assignment_epoch and group.assigned_ms <= now:  # not if the clock has been set back since
            waits["assignment interval"] = group.assigned_ms + settings.assignment_interval_ms
        if group_id in self._opened:
            waits["initial delay"] = self._opened[group_id] + settings.initial_rebalance_delay_ms
        if self.is_on_hold(group, now) and not self._freed.get(group_id):
            waits[ON_HOLD] = settings.hold_until_timestamp_ms
        why = max(waits, key=lambda reason: waits[reason], default="")
        if why and waits[why] > now:
            self._open(group)
            self._defer(group, now, why, waits[why])
        elif group_id not in self._asked:
            self._make(group, now)

    def _defer(self, group: ConsumerGroup, now: Millis, why: str, until: Millis, partitions: int = 0) -> None:
        self._consumers.note(group, "held back", why, waited_ms=max(until - now, 0), partitions=partitions)
        self._running.deadlines.set((ASSIGN, group.group_id, ""), until)
        self.deferred[group.group_id] = Deferred(why, until, partitions)

    def open(self, group: ConsumerGroup) -> None:
        """A member has come that has nothing to get yet; it needs an epoch all the same."""
        if not group.assignment_epoch:
            epoch = self._consumers.highest_epoch(group.group_id) + 1
            self._consumers.emit(consumer_group_record(group.group_id, epoch_value(epoch, self.hash(group))))
            self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(epoch, 0)))

    def _open(self, group: ConsumerGroup) -> None:
        """Give a group without any target an empty one, for the epoch that its first member is told. No assignment
        interval counts from it."""
        if group.assignment_epoch:
            return
        self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(group.epoch, 0)))
        epoch = epoch_value(group.epoch + 1, self.hash(group))
        self._consumers.emit(consumer_group_record(group.group_id, epoch))

    # -- by whom

    def _make(self, group: ConsumerGroup, now: Millis) -> None:
        spec = self._spec(group)
        name = self._choice(group, now)
        size = len(spec.members) + sum(topic.partitions for topic in spec.topics.values())
        assignor = BUILT_IN.get(name)
        if assignor is not None and name not in WANT_LAG and size <= AT_ONCE:
            self._take(group, group.epoch, name, assigned(assignor, spec), now)
            return
        self._open(group)
        self._asked[group.group_id] = group.epoch
        wants_lag = assignor is None or name in WANT_LAG
        task = AssignmentAsked(group.group_id, group.epoch, name, spec, wants_lag)
        self._running.out.tasks.append(task)

    def made(self, group: ConsumerGroup, event: AssignmentMade, now: Millis) -> None:
        """A target that was asked for is there, or is not to be had."""
        if self._asked.get(group.group_id) != event.epoch:
            return
        del self._asked[group.group_id]
        if not group.members:
            return
        same_members = not isinstance(event.result, str) and event.result.keys() == group.members.keys()
        if group.epoch == event.epoch and not isinstance(event.result, str) and not same_members:
            self._make(group, now)  # a static member has come back under another id
        else:
            self._take(group, event.epoch, event.assignor, event.result, now)

    def _take(self, group: ConsumerGroup, epoch: int, name: str, result: Result, now: Millis) -> None:
        if isinstance(result, str):
            self._consumers.note(group, "assignment refused", f"assignor {name}: {result}")
            self._aside[group.group_id, name] = now + ASIDE_MS
            if self._choice(group, now) != name:
                self._make(group, now)
                return
            full: Mapping[str, Target] = {m: group.targets.get(m, frozenset()) for m in group.members}
        else:
            full = {m: _flat(result.get(m, {})) for m in group.members}
            self._consumers.assignors[group.group_id] = name
        self._opened.pop(group.group_id, None)
        effective = self._effective(group, full, now)
        for member_id, target in effective.targets.items():
            if target != group.targets.get(member_id):
                self._consumers.emit(target_record(group.group_id, member_id, target_value(target)))
        self._consumers.emit(target_epoch_record(group.group_id, target_epoch_value(epoch, now)))
        self._consumers.note(group, "target made")
        self._consumers.moving[group.group_id] = dict.fromkeys(group.members)
        if group.epoch > epoch:
            self._retarget(group, now)

    @property
    def _default(self) -> str:
        return next(iter(self._assignors))

    def _choice(self, group: ConsumerGroup, now: Millis) -> str:
        """The group's own; the one that most members ask for; the first of the list. Who failed the group lately makes
        way for the last one that did not, or the next of the list."""
        votes: dict[str, int] = {}
        for _, member in sorted(group.members.items()):
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        asked_for = max(votes, key=lambda name: votes[name], default="")
        own = self._consumers.settings(group).assignor
        wanted = own if own in self._assignors else asked_for
        for name in (wanted, self._consumers.assignors.get(group.group_id, ""), *self._assignors):
            if name in self._assignors and self._aside.get((group.group_id, name), now) <= now:
                return name
        return self._default

    def assignor_name(self, group: ConsumerGroup) -> str:
        """Who made the group's target."""
        return self._consumers.assignors.get(group.group_id) or self._choice(group, 0)

    def _spec(self, group: ConsumerGroup) -> GroupSpec:
        """A member owns its target, and what it still has that is nobody's target: whoever was to get that is gone."""
        by_name = self._consumers.topics.by_name
        members = {}
        targeted = {partition for member_id in group.members for partition in group.targets.get(member_id, ())}
        ids: dict[frozenset[str], tuple[bytes, ...]] = {}
        """By the names that are subscribed: many members subscribe to the same, and it may be thousands of topics."""
        for member_id, member in sorted(group.members.items()):
            names = group.names_of(member_id)
            if names not in ids:
                ids[names] = tuple(sorted(by_name[name].topic_id for name in names if name in by_name))
            members[member_id] = MemberSpec(
                member_id,
                member.instance_id,
                member.rack_id,
                ids[names],
                dict(by_topic(group.targets.get(member_id, frozenset()) | group.had_by(member_id) - targeted)),
            )
        subscribed = sorted(name for name in frozenset().union(*ids) if name in by_name)
        return GroupSpec(members, {by_name[name].topic_id: by_name[name] for name in subscribed})

    # -- how much of it

    def _effective(self, group: ConsumerGroup, full: Mapping[str, Target], now: Millis) -> Effective:
        group_id = group.group_id
        settings = self._consumers.settings(group)
        may_use: dict[str, frozenset[str]] = {}

        def may_keep(member_id: str, partition: TopicPartition) -> bool:
            if member_id not in may_use:
                may_use[member_id] = group.names_of(member_id)
            topic = self._consumers.topics.by_id.get(partition[0])
            return topic is not None and partition[1] < topic.partitions and topic.name in may_use[member_id]

        present = {m: target for m, target in group.targets.items() if m in group.members}
        self._consumers.handing_over.discard(group_id)
        if self.is_on_hold(group, now):
            effective = on_hold(full, present, freed=self._freed.pop(group_id, set()), may_keep=may_keep)
            self._defer(group, now, ON_HOLD, settings.hold_until_timestamp_ms, effective.waiting)
            return effective
        self._freed.pop(group_id, None)
        newcomers = self._newcomers.get(group_id, set())
        if not settings.handover_max_partitions or not newcomers:
            self._newcomers.pop(group_id, None)
            return Effective(full, 0, 0)
        next_ms = self._handed_over.get(group_id, 0) + settings.handover_interval_ms
        at_most = settings.handover_max_partitions if now >= next_ms else 0
        effective = gradual(full, present, newcomers=newcomers, at_most=at_most, may_keep=may_keep)
        if effective.moved:
            self._handed_over[group_id] = now
            next_ms = now + settings.handover_interval_ms
        if effective.waiting:
            self._defer(group, now, GRADUAL, next_ms, effective.waiting)
            self._consumers.handing_over.add(group_id)
        else:
            self._newcomers.pop(group_id, None)
        return effective

    # -- load, unload

    def load(self, group: ConsumerGroup, now: Millis) -> None:
        """What waited when the shard went down waits anew: who just joined is not known any more."""
        if not group.members:
            return
        self._consumers.assignors[group.group_id] = self._choice(group, now)
        settings = self._consumers.settings(group)
        if settings.handover_max_partitions:
            self._newcomers[group.group_id] = set(group.members)
        if group.epoch > group.assignment_epoch:
            self._retarget(group, now)
        elif self.is_on_hold(group, now):
            self._defer(group, now, ON_HOLD, settings.hold_until_timestamp_ms)
        elif group.assigned_ms < settings.hold_until_timestamp_ms <= now:
            self._defer(group, now, ON_HOLD, now)  # it ended meanwhile, and what it held back waits still
        elif settings.handover_max_partitions:
            self._defer(group, now, GRADUAL, now + settings.handover_interval_ms)

    def _forget(self, group_id: str) -> None:
        self._consumers.handing_over.discard(group_id)
        for known in (self._opened, self._newcomers, self._handed_over, self._freed, self._asked):
            known.pop(group_id, None)
        self._consumers.assignors.pop(group_id, None)

    def deleted(self, group: ConsumerGroup) -> None:
        self._forget(group.group_id)
        self.deferred.pop(group.group_id, None)
        self._holds_over.pop(group.group_id, None)
        for key in [key for key in self._aside if key[0] == group.group_id]:
            del self._aside[key]
        self._running.deadlines.clear((ASSIGN, group.group_id, ""))

    def unload(self) -> None:
        for known in (self.deferred, self._asked, self._aside, self._opened, self._newcomers, self._handed_over):
            known.clear()
        self._freed.clear()
        self._holds_over.clear()


ON_HOLD = "rollout hold"
GRADUAL = "gradual hand-over"
WANT_LAG = frozenset(("lag",))


def _flat(assignment: Assignment) -> Target:
    return frozenset((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


def _present(group: ConsumerGroup) -> int:
    return sum(group.state_of(member_id).member_epoch != LEFT_FOR_A_WHILE for member_id in group.members)
