"""The running consumer groups of a shard: their state beside the records.

    RunningGroup     of a group: who has not reached the target yet, when the rebalance began, what its target waits for
    RunningMember    of a member: its last epoch, its held heartbeat, the interval it was told
    RunningConsumers all of them, and small operations that the parts of the consumer groups share

`RunningConsumers.of` makes a group's object, `RunningGroup.member` a member's; `drop` and `drop_member` forget them.

A record is applied the moment it is decided, because what follows in the same step builds on it (decision 0005).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.reconciliation import TopicPartition
from kohort.coordinator.consumer.responses import Told, stories_of
from kohort.coordinator.events import JournalEntry, MemberStory, Millis, Record, RequestId, TargetRecords, What
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.settings.group_settings import NEVER, GroupSettings, SettingsOfGroups
from kohort.coordinator.soft_state import Running
from kohort.coordinator.topics import Topics

SESSION, REVOKE, HOLD = "consumer session", "consumer revoke", "consumer hold"
"""Deadlines of consumer groups' members."""
JOIN, SYNC = "consumer join", "consumer sync"
"""Deadlines of members that speak the classic protocol: to join again, and then to sync."""
DEADLINES_OF_CONSUMERS = frozenset((SESSION, REVOKE, JOIN, SYNC))
"""Those that members must meet with a request."""
ASSIGN, PATTERNS, WAKE = "consumer assign", "consumer patterns", "consumer wake"
"""Deadlines of consumer groups; the member is ""."""
LONG_DEADLINES = frozenset((ASSIGN, PATTERNS, WAKE))
"""Those that may have the work of a step: no other one is served in it."""

EVERYBODY_HAS_ITS_TARGET = "everybody has its target"


@dataclass(frozen=True, slots=True)
class Deferred:
    """Why a group's next target waits, and until when."""

    why: str
    until_ms: Millis
    partitions: int = 0
    """How many are not yet where the target wants them; 0 when that is not known yet."""


@dataclass(slots=True, eq=False)
class RunningMember:
    member_id: str
    epoch_sent: int | None = None
    """The epoch in the member's last heartbeat."""
    held: RequestId | None = None
    """The heartbeat whose answer is held."""
    holds_join: bool = False
    """The held heartbeat is the member's first."""
    interval_ms: Millis = 0
    """The heartbeat interval in the last answer."""
    is_patient: bool = False
    """The client is one of PATIENT_CLIENTS (held_heartbeats.py)."""
    heartbeat_ms: Millis | None = None
    """When the last heartbeat of a member that speaks the classic protocol arrived."""


@dataclass(slots=True, eq=False)
class RunningTarget:
    """A group's target and the way to the next one. A group that loses its last member starts with a new object."""

    assignor: str = ""
    """The assignor that made the target."""
    asked_epoch: int | None = None
    """The epoch of the target that is being made outside the shard."""
    deferred: Deferred | None = None
    opened_ms: Millis | None = None
    """When a group that was empty got its first member."""
    leaving: tuple[Millis, Millis] | None = None
    """When the first and the last member left since the target was made."""
    newcomers: set[str] = field(default_factory=set)
    """Members that have not had their whole first target."""
    is_partial: bool = False
    """The target has a part of the partitions that move; the rest comes with the next targets."""
    handed_over_ms: Millis = 0
    """When a gradual hand-over last moved partitions."""
    freed: set[TopicPartition] = field(default_factory=set)
    """Partitions of members that died during a rollout freeze."""


@dataclass(slots=True, eq=False)
class RunningGroup:
    members: dict[str, RunningMember] = field(default_factory=dict)
    moving: dict[str, None] = field(default_factory=dict)
    """Members that have not reached the target yet."""
    began_ms: Millis | None = None
    """When the running rebalance began."""
    settled_ms: Millis | None = None
    """When the last rebalance ended."""
    why: str = ""
    """Why the epoch was raised last."""
    told: Told = field(default_factory=dict)
    """The journal's notes of the members."""
    target: RunningTarget = field(default_factory=RunningTarget)
    partitions: int = 0
    """Partitions of the topics that the target was made for; they count for group.max.total.bytes."""
    set_aside: dict[str, Millis] = field(default_factory=dict)
    """Assignors that failed for the group, and the time until which it does not use them."""
    freeze_ended_ms: Millis | None = None
    """The timestamp of a rollout freeze that ended early because enough members came."""
    patterns_ms: Millis = NEVER
    """When the group last took in new matches of its patterns."""
    woken_to: str = ""
    """The last member that was woken, while others are to follow (members.py)."""
    wakes_again: bool = False
    """The members are to be woken once more, from the first on."""

    def member(self, member_id: str) -> RunningMember:
        found = self.members.get(member_id)
        if found is None:
            found = self.members[member_id] = RunningMember(member_id)
        return found

    def replace_member(self, former_id: str, member_id: str) -> None:
        """A static member comes back under another id, with as much of the target as it had."""
        if former_id in self.moving:
            self.moving[member_id] = None
        if former_id in self.target.newcomers:
            self.target.newcomers.add(member_id)


class RunningConsumers:
    def __init__(self, hard: HardState, running: Running, settings: SettingsOfGroups) -> None:
        self.hard = hard
        self.running = running
        self._settings = settings
        self._soft: dict[str, RunningGroup] = {}
        self.topics = Topics()
        self.busy: dict[RunningMember, Millis] = {}
        """Members that sent a request behind a held heartbeat: when they last did so or committed, oldest first."""

    # -- creating and deleting soft state

    def of(self, group: ConsumerGroup) -> RunningGroup:
        found = self._soft.get(group.group_id)
        if found is None:
            found = self._soft[group.group_id] = RunningGroup()
        return found

    def find(self, group_id: str) -> RunningGroup | None:
        return self._soft.get(group_id)

    def find_member(self, group_id: str, member_id: str) -> RunningMember | None:
        found = self._soft.get(group_id)
        return None if found is None else found.members.get(member_id)

    def drop(self, group_id: str) -> None:
        """The group is gone, or speaks the classic protocol now."""
        found = self._soft.pop(group_id, None)
        if found is not None:
            self.running.assigned_partitions -= found.partitions
            for member in found.members.values():
                self.busy.pop(member, None)

    def drop_member(self, group: ConsumerGroup, member_id: str) -> None:
        known = self.of(group)
        known.moving.pop(member_id, None)
        known.target.newcomers.discard(member_id)
        member = known.members.pop(member_id, None)
        if member is not None:
            self.busy.pop(member, None)

    def count_partitions(self, group: ConsumerGroup, partitions: int) -> None:
        """The group's target has so many partitions from now on."""
        known = self.of(group)
        self.running.assigned_partitions += partitions - known.partitions
        known.partitions = partitions

    def unload(self) -> None:
        self._soft.clear()
        self.running.assigned_partitions = 0
        self.busy.clear()

    def check(self) -> None:
        """Soft state belongs to a group or a member that exists. Raises AssertionError."""
        for group_id, known in self._soft.items():
            assert group_id in self.groups, f"{group_id}: soft state of no group"
            members = self.groups[group_id].members.keys()
            assert known.members.keys() <= members, f"{group_id}: soft state of no member"
            assert known.moving.keys() <= members, f"{group_id}: nobody moves"
            assert known.target.newcomers <= members, f"{group_id}: nobody is a newcomer"
        counted = sum(known.partitions for known in self._soft.values())
        assert self.running.assigned_partitions == counted, f"{counted} partitions are assigned"
        live = {id(member) for known in self._soft.values() for member in known.members.values()}
        assert live.issuperset(map(id, self.busy)), "a busy member that is gone"

    # -- what the parts share

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self.hard.consumers.groups

    def settings(self, group: ConsumerGroup) -> GroupSettings:
        return self._settings.of(group.group_id)

    def emit(self, record: Record | TargetRecords) -> None:
        self.running.out.records.append(record)
        self.hard.apply(record)

    def highest_epoch(self, group_id: str) -> int:
        """The highest epoch or generation that a group of this name ever had (docs/decisions/0002)."""
        classic = self.running.groups.get(group_id)
        known = self.groups.get(group_id)
        return max(
            self.running.former_generation(group_id),
            classic.generation_id if classic is not None else 0,
            known.epoch if known is not None else 0,
        )

    def settle(self, group: ConsumerGroup, now: Millis) -> None:
        """Note that the rebalance is over once all members have reached the target and no more of it is to come."""
        known = self.of(group)
        if known.moving or group.epoch != group.assignment_epoch or known.target.is_partial:
            return
        known.settled_ms = now
        took = 0 if known.began_ms is None else now - known.began_ms
        known.began_ms = None
        if group.members:
            self.note(group, "group is stable", EVERYBODY_HAS_ITS_TARGET, "", took)
        else:
            self.note(group, "group is empty", "nobody is left", "", took)

    def since_ms(self, group: ConsumerGroup) -> Millis:
        """When the running rebalance began, or else the last one ended, or else the target was made."""
        known = self.of(group)
        if known.began_ms is not None:
            return known.began_ms
        return group.assigned_ms if known.settled_ms is None else known.settled_ms

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
        """Add an entry to the journal. The fields: JournalEntry."""
        known = self.of(group)
        member = group.members.get(member_id)
        members: tuple[MemberStory, ...] = ()
        if what in ("group is stable", "group loaded"):
            members, known.told = stories_of(group, self.topics, known.told)
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
                protocol=known.target.assignor,
                assignment_epoch=group.assignment_epoch,
                partitions=partitions,
                pushed=pushed,
                peers=peers,
                members=members,
            )
        )
