"""The target of a share group: when it is made; and which share-partitions have a state.

A share-partition is initialized in the step that finds that it is missing: its state is another machine's record of the
same turn. So a group has no partitions "initializing", and the first heartbeat's answer has an assignment.

A large topic is initialized in several steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.assignors.spec import TopicSpec
from kohort.coordinator.events import JournalEntry, Millis, Record, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.settings.group_settings import GroupSettings, SettingsOfGroups
from kohort.coordinator.share_groups.assignor import assigned
from kohort.coordinator.share_groups.group import NOTHING, ShareGroup, ShareMember
from kohort.coordinator.share_groups.records import (
    initialized_record,
    share_current_record,
    share_group_record,
    share_target_epoch_record,
    share_target_record,
)
from kohort.coordinator.shares.events import RESET, DeleteShares, InitializeShares
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics, hash_of
from kohort.wire.schemas.share_group_records import ShareGroupMemberMetadataValue, TopicPartitionsInfo

SESSION, ASSIGN, INITIALIZE = "share session", "share assign", "share initialize"
"""Deadlines of share groups. Of the first, the third part of the key is a member."""
SOON_MS = 100
"""Least heartbeat interval while a target is due."""
AT_ONCE = 500
"""Share-partitions that are initialized in one step."""


class ShareTargets:
    def __init__(self, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self.hard = hard
        self.running = running
        self._settings = settings
        self.topics = Topics()
        self._new: dict[tuple[str, bytes], None] = {}
        """Group and topic id of large topics that are new to the group, while they are initialized in pieces."""

    # -- what the parts share

    @property
    def groups(self) -> dict[str, ShareGroup]:
        return self.hard.shares.groups

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
        metadata_hash = hash_of(self.topics, group.subscribers)
        missing = self._missing(group)
        if bump or missing or metadata_hash != group.metadata_hash:
            self.emit(share_group_record(group.group_id, group.epoch + 1, metadata_hash))
        if not self._initialize(group, missing, now) or bump:
            self.make(group, now)  # otherwise the last piece of a large topic makes it

    def make(self, group: ShareGroup, now: Millis) -> None:
        """Make the target of the present epoch, now or when the assignment interval is over."""
        key = (ASSIGN, group.group_id, "")
        if group.epoch == group.assignment_epoch:
            return
        due = group.assigned_ms + self.settings(group).share_assignment_interval_ms
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
        if group.epoch == group.assignment_epoch:
            return settings.share_heartbeat_interval_ms
        due = group.assigned_ms + settings.share_assignment_interval_ms
        return min(settings.share_heartbeat_interval_ms, max(due - now, SOON_MS))

    def _targets(self, group: ShareGroup) -> dict[str, frozenset[tuple[bytes, int]]]:
        ids: dict[tuple[str, ...], frozenset[bytes]] = {}
        for member in group.members.values():
            names = member.subscribed_topic_names
            if names not in ids:
                specs = (self.topics.by_name.get(name) for name in names)
                ids[names] = frozenset(spec.topic_id for spec in specs if spec is not None)
        subscribed = {member_id: ids[member.subscribed_topic_names] for member_id, member in group.members.items()}
        partitions = {
            topic_id: info.partitions for topic_id, info in group.initialized.items() if topic_id in self.topics.by_id
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

    # -- which share-partitions have a state

    def count_missing(self, names: Iterable[str], group: ShareGroup | None) -> int:
        """How many partitions of these topics have no state."""
        known = group.initialized if group is not None else {}
        specs = (spec for name in names if (spec := self.topics.by_name.get(name)) is not None)
        return sum(
            spec.partitions - (len(known[spec.topic_id].partitions) if spec.topic_id in known else 0) for spec in specs
        )

    def _missing(self, group: ShareGroup) -> list[tuple[TopicSpec, list[int]]]:
        """The topics with partitions that have no state, and these partitions."""
        missing = []
        for name in sorted(group.subscribers):
            spec = self.topics.by_name.get(name)
            if spec is None:
                continue
            info = group.initialized.get(spec.topic_id)
            known = info.partitions if info is not None else ()
            if len(known) < spec.partitions:
                present = set(known)
                missing.append((spec, [index for index in range(spec.partitions) if index not in present]))
        return missing

    def _initialize(self, group: ShareGroup, missing: list[tuple[TopicSpec, list[int]]], now: Millis) -> bool:
        """True if a later step goes on."""
        if not missing:
            return False
        left = AT_ONCE
        topics = dict(group.initialized)
        for spec, lacks in missing:
            info = topics.get(spec.topic_id)
            known = info.partitions if info is not None else ()
            piece = (group.group_id, spec.topic_id)
            if not known:
                self._new[piece] = None
            # Of partitions that a topic got later, the group has skipped nothing (SH29).
            start = RESET if piece in self._new else 0
            indexes = tuple(lacks[:left])
            left -= len(indexes)
            if len(indexes) == len(lacks):
                self._new.pop(piece, None)
            topics[spec.topic_id] = TopicPartitionsInfo(
                topic_id=spec.topic_id,
                topic_name=spec.name,
                partitions=tuple(sorted((*known, *indexes))),
                create_timestamp=info.create_timestamp if info is not None else now,
            )
            self.running.out.shares.append(InitializeShares(group.group_id, spec.topic_id, indexes, group.epoch, start))
            if left == 0:
                break
        self.emit(initialized_record(group.group_id, topics.values()))
        if left == 0:
            self.running.deadlines.set((INITIALIZE, group.group_id, ""), now)
        return left == 0

    def forget_deleted(self, group: ShareGroup) -> bool:
        """Topics that are gone have no state. True if there were some."""
        gone = [info for topic_id, info in group.initialized.items() if topic_id not in self.topics.by_id]
        if gone:
            self.forget(group, gone)
        return bool(gone)

    def forget(self, group: ShareGroup, topics: list[TopicPartitionsInfo]) -> None:
        """Delete the state of these topics."""
        for info in topics:
            self._new.pop((group.group_id, info.topic_id), None)
            self.running.out.shares.append(DeleteShares(group.group_id, info.topic_id, info.partitions))
        names = {info.topic_id for info in topics}
        kept = [info for topic_id, info in group.initialized.items() if topic_id not in names]
        self.emit(initialized_record(group.group_id, kept))
