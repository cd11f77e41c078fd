"""The life of a shard's consumer groups: load, topics, settings, deadlines, deletion, unload.

`ConsumerGroups` builds the parts of the consumer groups and passes each event to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.config import Config
from kohort.coordinator.assignors.spec import Assignor
from kohort.coordinator.classic.status import RebalanceStatus
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.heartbeat import Heartbeats
from kohort.coordinator.consumer.journal_notes import topics_change
from kohort.coordinator.consumer.leave import Departures
from kohort.coordinator.consumer.members import Members
from kohort.coordinator.consumer.reconciliation import Reconciliation
from kohort.coordinator.consumer.soft_state import JOIN, REVOKE, SYNC, RunningConsumers
from kohort.coordinator.consumer.status import consumer_status_of
from kohort.coordinator.events import AssignmentMade, Millis, PatternsResolved, ServerPaused
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.migration.classic_requests import MixedGroups
from kohort.coordinator.migration.classic_side import must_rejoin
from kohort.coordinator.migration.conversion import Conversions
from kohort.coordinator.records import consumer_group_record, generation_record, target_epoch_record
from kohort.coordinator.settings.group_settings import GroupSettings, SettingsOfGroups
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics

EXPECTED = {REVOKE: "give its partitions up", JOIN: "rejoin", SYNC: "sync"}
"""The step that a member must take before a deadline, for the journal."""


class ConsumerGroups:
    def __init__(
        self,
        config: Config,
        hard: HardState,
        running: Running,
        settings: SettingsOfGroups,
        assignors: Mapping[str, Assignor],
    ) -> None:
        self.shared = self._consumers = RunningConsumers(hard, running, settings)
        self.members = Members(config, self._consumers, assignors)
        self.holds = self.members.holds
        self.targets = self.members.targets
        self.patterns = self.members.patterns
        conversions = Conversions(config, self.members)
        self._departures = Departures(self.members, conversions)
        self.heartbeats = Heartbeats(config, self.members, self._departures, conversions, assignors)
        self.mixed = MixedGroups(config, self.members, self._departures, conversions)
        self._running = running
        self._former_topics = Topics()
        """The topics before their last change."""
        self._note = self._consumers.note
        self._emit = self._consumers.emit

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self._consumers.groups

    @property
    def topics(self) -> Topics:
        return self._consumers.topics

    def status_of(self, group: ConsumerGroup, now: Millis) -> RebalanceStatus:
        return consumer_status_of(self._consumers, self.targets, group, now)

    # -- topics, settings, results from outside the shard

    def topics_are(self, topics: Topics, names: Iterable[str] | None) -> None:
        self._former_topics, self._consumers.topics = self._consumers.topics, topics
        self.patterns.topics_are(topics, names)

    def topics_changed(self, now: Millis, names: Iterable[str] | None = None) -> None:
        """Groups whose topics changed get a new target (N19). `names`: the topics that changed, if known."""
        fold = self._consumers.hard.consumers
        for group in list(fold.groups.values()) if names is None else fold.subscribed_to(names):
            if group.members and self.targets.hash(group) != group.metadata_hash:
                if not self._running.deviations.departure_target:
                    # The next heartbeat raises the epoch. Every member's is looked at until then.
                    self._consumers.of(group).moving = dict.fromkeys(group.members)
                    continue
                how = topics_change(self._former_topics, self.topics, group.subscribed_topics)
                if how:
                    self._note(group, "topics changed", how)
                self.targets.bump(group, now, "its topics changed")
                self.members.wake(group, now)
        for group in self.patterns.topics_changed(now):
            self.members.wake(group, now)

    def settings_changed(self, group_id: str, former: GroupSettings, now: Millis) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            if self._consumers.settings(group).session_timeout_ms > former.session_timeout_ms:
                self.members.lengthen_sessions(group, now)
            self.targets.settings_changed(group, now)
            self.members.wake(group, now)

    def assignment_made(self, event: AssignmentMade, now: Millis) -> None:
        group = self.groups.get(event.group_id)
        if group is not None:
            self.targets.made(group, event, now)
            self.members.wake(group, now)

    def patterns_resolved(self, event: PatternsResolved, now: Millis) -> None:
        for group in self.patterns.resolved(event, now):
            self.members.wake(group, now)

    # -- deadlines, load, unload, deletion

    def deadline_reached(self, key: tuple[str, str, str], now: Millis) -> None:
        kind, group_id, member_id = key
        group = self.groups.get(group_id)
        if group is None:
            return
        match kind:
            case "consumer assign":
                self.targets.due(group, now)
                self.members.wake(group, now)
            case "consumer patterns":
                self.patterns.due(group, now)
                self.members.wake(group, now)
            case "consumer wake":
                self.members.wake_more(group, now)
            case "consumer session" if member_id in group.members:
                silent = self.members.session_ms(group, member_id)
                why = f"no heartbeat in {silent} ms"
                self._departures.expire(group, member_id, now, "session expired", why, silent)
            case "consumer revoke" | "consumer join" | "consumer sync" if _is_late(group, member_id, kind):
                waited = group.members[member_id].rebalance_timeout_ms
                why = f"it did not {EXPECTED[kind]} in {waited} ms"
                self._departures.expire(group, member_id, now, "member removed", why, waited)
            case "consumer hold":
                member = self._consumers.find_member(group_id, member_id)
                if member is not None:
                    self.holds.release(group, member, now)

    def note_pause(self, group: ConsumerGroup, pause: ServerPaused) -> None:
        self._note(group, "server paused", pause.why, waited_ms=pause.lost_ms)

    def load(self, now: Millis) -> None:
        for group in list(self.groups.values()):
            for member_id, member in group.members.items():
                self.members.arm_session(group, member_id, now)
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
        """Delete groups without members and offsets. Offsets that expire in this sweep count until the next one."""
        for group in list(self.groups.values()):
            if not group.members and not self._consumers.hard.has_offsets(group.group_id):
                self.delete(group, "it has no members and no offsets")

    def delete(self, group: ConsumerGroup, why: str) -> None:
        """Forget a group without members. Its highest epoch stays in the log."""
        assert not group.members, group.group_id
        self._note(group, "group deleted", why)
        if self._running.deviations.numbers_go_on:
            self._emit(generation_record(group.group_id, self._consumers.highest_epoch(group.group_id)))
        self._emit(target_epoch_record(group.group_id, None))
        self.patterns.deleted(group)
        self._emit(consumer_group_record(group.group_id, None))
        self.targets.deleted(group)
        self._consumers.drop(group.group_id)


def _is_late(group: ConsumerGroup, member_id: str, kind: str) -> bool:
    """True if the member still owes what this deadline was set for."""
    if member_id not in group.members:
        return False
    if kind == REVOKE:
        return group.state_of(member_id).state is Reconciliation.UNREVOKED_PARTITIONS
    return kind == SYNC or must_rejoin(group, member_id)
