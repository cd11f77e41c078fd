"""The running consumer groups of a shard: what is known of them beside their records, and moves that all parts share.

A record is applied the moment it is decided, because what follows in the same step builds on it (decision 0005).
"""

from __future__ import annotations

from typing import Any

from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.responses import Told, stories_of
from kohort.coordinator.events import JournalEntry, MemberStory, Millis, Record, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.settings.group_settings import GroupSettings, SettingsOfGroups
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics

SESSION, REVOKE, HOLD = "consumer session", "consumer revoke", "consumer hold"
"""Deadlines of consumer groups' members."""
JOIN, SYNC = "consumer join", "consumer sync"
"""Deadlines of members that speak the classic protocol: to join again, and then to sync."""
ASSIGN, PATTERNS = "consumer assign", "consumer patterns"
"""Deadlines of consumer groups; the member is ""."""

EVERYBODY_HAS_ITS_TARGET = "everybody has its target"


class RunningConsumers:
    def __init__(self, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self.hard = hard
        self.running = running
        self._settings = settings
        self.topics = Topics()
        self.said: dict[tuple[str, str], int] = {}
        """The epoch that each member said last."""
        self.moving: dict[str, dict[str, None]] = {}
        """Groups that are not stable: their members that have not come to the target yet."""
        self.began: dict[str, Millis] = {}
        """When the rebalance that is running began."""
        self.why: dict[str, str] = {}
        """Why the epoch was raised last."""
        self.settled: dict[str, Millis] = {}
        """When the last rebalance was over."""
        self.told: dict[str, Told] = {}
        self.handing_over: set[str] = set()
        """Groups whose target holds only a part of what moves: the rest comes with the next ones."""
        self.assignors: dict[str, str] = {}
        """Who made the target of each group."""

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self.hard.consumers.groups

    def settings(self, group: ConsumerGroup) -> GroupSettings:
        return self._settings.of(group.group_id)

    def emit(self, record: Record) -> None:
        self.running.out.records.append(record)
        self.hard.apply(record)

    def highest_epoch(self, group_id: str) -> int:
        """The highest epoch or generation that a group of this name ever had (docs/decisions/0002)."""
        classic = self.running.groups.get(group_id)
        known = self.groups.get(group_id)
        return max(
            self.hard.generations.get(group_id, self.hard.forgotten),
            classic.generation_id if classic is not None else 0,
            known.epoch if known is not None else 0,
        )

    def settle(self, group: ConsumerGroup, now: Millis) -> None:
        """Tell the journal when the last member has come to the target, and no more of it is to come."""
        if self.moving.get(group.group_id) or group.epoch != group.assignment_epoch:
            return
        self.moving.pop(group.group_id, None)
        if group.group_id in self.handing_over:
            return
        self.settled[group.group_id] = now
        took = now - self.began.pop(group.group_id, now)
        if group.members:
            self.note(group, "group is stable", EVERYBODY_HAS_ITS_TARGET, "", took)
        else:
            self.note(group, "group is empty", "nobody is left", "", took)

    def since_ms(self, group: ConsumerGroup) -> Millis:
        """When the rebalance that is running began, or the last one was over; the last target, where nobody knows."""
        known = self.began.get(group.group_id, self.settled.get(group.group_id))
        return group.assigned_ms if known is None else known

    def note(
        self,
        group: ConsumerGroup,
        what: What,
        cause: str = "",
        member_id: str = "",
        waited_ms: Millis = -1,
        *,
        partitions: int = 0,
        pushed: bool = False,
        peers: tuple[str, ...] = (),
    ) -> None:
        """Tell the journal. The fields: JournalEntry."""
        member = group.members.get(member_id)
        members: tuple[MemberStory, ...] = ()
        if what in ("group is stable", "group loaded"):
            told = self.told.get(group.group_id, {})
            members, self.told[group.group_id] = stories_of(group, self.topics, told)
        self.running.out.journal.append(
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
                protocol=self.assignors.get(group.group_id, ""),
                assignment_epoch=group.assignment_epoch,
                partitions=partitions,
                pushed=pushed,
                peers=peers,
                members=members,
            )
        )

    def forget(self, group_id: str) -> None:
        """The group is not here any more, under this protocol."""
        for known in self._of_groups():
            known.pop(group_id, None)

    def unload(self) -> None:
        self.said.clear()
        self.handing_over.clear()
        for known in self._of_groups():
            known.clear()

    def _of_groups(self) -> tuple[dict[str, Any], ...]:
        return self.moving, self.began, self.why, self.settled, self.told, self.assignors
