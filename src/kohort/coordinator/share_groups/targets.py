"""The target of a share group, and when it is made.

Only partitions with a state are assigned (SH20). Few get theirs before the target is made, many make another epoch when
all have one (states.py).
"""

from __future__ import annotations

from kohort.coordinator.events import JournalEntry, Millis, Record, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.settings.group_settings import GroupSettings, SettingsOfGroups
from kohort.coordinator.share_groups.assignor import assigned
from kohort.coordinator.share_groups.group import NOTHING, Partitions, ShareGroup, ShareMember
from kohort.coordinator.share_groups.records import (
    share_current_record,
    share_group_record,
    share_target_epoch_record,
    share_target_record,
)
from kohort.coordinator.share_groups.states import ShareStates
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics, hash_of
from kohort.wire.schemas.share_group_records import ShareGroupMemberMetadataValue

SESSION, ASSIGN = "share session", "share assign"
"""Deadlines of share groups. Of the first, the third part of the key is a member."""
SOON_MS = 100
"""Least heartbeat interval while a target is due."""


class ShareTargets:
    def __init__(self, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self.hard = hard
        self.running = running
        self.states = ShareStates(hard, running)
        self._settings = settings

    # -- what the parts share

    @property
    def groups(self) -> dict[str, ShareGroup]:
        return self.hard.shares.groups

    @property
    def topics(self) -> Topics:
        return self.states.topics

    def settings(self, group: ShareGroup) -> GroupSettings:
        return self._settings.of(group.group_id)

    def emit(self, record: Record) -> None:
        """Records are applied at once (docs/decisions/0005)."""
        self.running.out.records.append(record)
        self.hard.apply(record)

    def note(
        self,
        group: ShareGroup,
        what: What,
        cause: str,
        member_id: str,
        member: ShareGroupMemberMetadataValue,
        waited_ms: Millis = -1,
    ) -> None:
        """Add a journal entry about a member."""
        self.running.out.journal.append(
            JournalEntry(
                group=group.group_id,
                what=what,
                cause=cause,
                generation_id=group.epoch,
                member_id=member_id,
                client_id=member.client_id,
                host=member.client_host,
                waited_ms=waited_ms,
                protocol_type="share",
            )
        )

    def found(self, group_id: str) -> ShareGroup:
        """The group, which is created if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            self.emit(share_group_record(group_id, self.running.former_generation(group_id)))
            group = self.groups[group_id]
        return group

    # -- epochs and targets

    def refresh(self, group: ShareGroup, now: Millis, *, bump: bool) -> None:
        """Initialize what is missing, and make a new target if that is needed. `bump`: something else has changed."""
        metadata_hash = hash_of(self.topics, group.subscribers.keys())
        # While an initialization is under way, further partitions without a state wait for its end.
        lacks = not group.initializing and bool(self.states.count_missing(group.subscribers, group))
        if bump or lacks or metadata_hash != group.metadata_hash:
            self.emit(share_group_record(group.group_id, group.epoch + 1, metadata_hash))
        if lacks:
            self.states.initialize(group, now)
        if bump or not group.initializing:
            self.make(group, now)  # otherwise the last step of the initialization makes it

    def go_on(self, group: ShareGroup, now: Millis) -> None:
        """The next step of an initialization or deletion that takes several."""
        initializes = bool(group.initializing) and not group.deleting
        if self.states.go_on(group, now):
            self.refresh(group, now, bump=initializes)

    def make(self, group: ShareGroup, now: Millis) -> None:
        """Make the target of the present epoch, now or when the assignment interval is over."""
        key = (ASSIGN, group.group_id, "")
        if group.epoch == group.assignment_epoch:
            return
        due = self._due(group, now)
        if now < due and len(group.members) > 1:
            self.running.deadlines.set(key, due)
            return
        self.running.deadlines.clear(key)
        for member_id, target in self._targets(group).items():
            if group.targets.get(member_id) != target:
                self.emit(share_target_record(group.group_id, member_id, target))
        self.emit(share_target_epoch_record(group.group_id, group.epoch, now))

    def next_interval(self, group: ShareGroup, now: Millis) -> Millis:
        """The heartbeat interval; a shorter one while a target is due soon, so that members learn of it."""
        settings = self.settings(group)
        if group.epoch == group.assignment_epoch and not group.initializing:
            return settings.share_heartbeat_interval_ms
        return min(settings.share_heartbeat_interval_ms, max(self._due(group, now) - now, SOON_MS))

    def _due(self, group: ShareGroup, now: Millis) -> Millis:
        """When the next target may be made."""
        if group.assigned_ms > now:
            return now  # the clock has been set back since the last one
        return group.assigned_ms + self.settings(group).share_assignment_interval_ms

    def _targets(self, group: ShareGroup) -> dict[str, Partitions]:
        ids: dict[tuple[str, ...], frozenset[bytes]] = {}
        for member in group.members.values():
            names = member.subscribed_topic_names
            if names not in ids:
                specs = (self.topics.by_name.get(name) for name in names)
                ids[names] = frozenset(spec.topic_id for spec in specs if spec is not None)
        subscribed = {member_id: ids[member.subscribed_topic_names] for member_id, member in group.members.items()}
        partitions = {
            topic_id: info.partitions
            for topic_id, info in group.initialized.items()
            if topic_id in self.topics.by_id and topic_id not in group.deleting
        }
        return assigned(subscribed, partitions, group.targets)

    def reconcile(self, group: ShareGroup, member_id: str) -> ShareMember:
        """Give a member its target."""
        state = group.state_of(member_id)
        target = group.targets.get(member_id, NOTHING)
        if state.epoch == group.assignment_epoch and state.assigned == target:
            return state
        state = ShareMember(group.assignment_epoch, state.epoch, target)
        self.emit(share_current_record(group.group_id, member_id, state))
        return state
