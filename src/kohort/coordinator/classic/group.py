"""Hard and soft state of a shard; they are different types and change in different places.

Hard state (`HardState`) is the fold of the log: only `HardState.apply(record)` changes it, live and in recovery.
Soft state (`Group`, `Member`) is the running group: who has joined with which protocols, which requests are parked,
the phase of the rebalance. Only `step` changes it; it is built anew from the hard state when a shard is loaded, and a
crash loses nothing else: clients' retries rebuild the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kohort.coordinator.consumer.group import ConsumerFold
from kohort.coordinator.events import Client, Millis, Record, RequestId
from kohort.coordinator.records import parse
from kohort.wire.schemas.group_records import (
    GenerationKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

Place = tuple[str, int]
"""A topic's name and a partition's index."""


class HardState:
    """The fold of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}
        self.consumers = ConsumerFold()
        self.generations: dict[str, int] = {}
        """The highest generation that a group of this name ever announced; outlives the group. The last one announced
        comes last."""
        self.forgotten = 0
        """No group of a name that is not among them ever announced a higher one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HardState) and self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> tuple[object, ...]:
        return self.groups, self.offsets, self.consumers, self.generations, self.forgotten

    def apply(self, record: Record) -> None:
        parsed = record.parsed or parse(record)
        if parsed is None:
            return
        key, value = parsed
        match key:
            case OffsetCommitKey():
                self._apply_offset(key, value)
            case GroupMetadataKey():
                if value is None:
                    self.groups.pop(key.group, None)
                else:
                    self.groups[key.group] = value
            case GenerationKey(group=""):
                self.forgotten = 0 if value is None else value.generation
            case GenerationKey():
                self.generations.pop(key.group, None)
                if value is not None:
                    self.generations[key.group] = value.generation
            case _:
                self.consumers.apply(key, value)

    def apply_offsets(self, group_id: str, places: Sequence[Place], values: Sequence[OffsetCommitValue]) -> None:
        self.offsets.setdefault(group_id, {}).update(zip(places, values, strict=True))

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is not None:
            self.offsets.setdefault(key.group, {})[place] = value
            return
        offsets = self.offsets.get(key.group)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self.offsets[key.group]


class Phase(Enum):
    """States of a classic group, printed as Kafka prints them. What each request receives: classic_group.py."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """How a group that does not exist is described; no running group is ever in it."""


Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in its order of preference: name and metadata."""


def size_of(protocols: Protocols) -> int:
    """Bytes of the names and the metadata."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True)
class Member:
    """A member of the running group."""

    member_id: str
    instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Has not been through a completed join; its session does not count while it is parked (J23)."""
    join: RequestId | None = None
    """The parked JoinGroup."""
    join_version: int = 0
    sync: RequestId | None = None
    """The parked SyncGroup."""
    heartbeat: RequestId | None = None
    """The heartbeat whose answer is held until there is something to tell."""
    heartbeat_ms: Millis = -1
    """When the last heartbeat came that could have been held."""
    joined_ms: Millis = -1
    """When it joined the running rebalance, or the last one; -1: it has not."""
    synced_ms: Millis = -1
    """When it sent the SyncGroup of this generation; -1: it has not."""

    @property
    def protocol_bytes(self) -> int:
        return size_of(self.protocols)

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.protocols)

    def metadata_of(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


@dataclass(slots=True)
class Group:
    """A running classic group."""

    group_id: str
    phase: Phase = Phase.EMPTY
    since: Millis = 0
    """When the phase began."""
    protocol_type: str | None = None
    protocol: str | None = None
    generation_id: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: instance id, member id."""
    pending: dict[str, int] = field(default_factory=dict)
    """Member ids given out (79) and not yet used, with their session timeout."""
    awaiting_sync: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent their SyncGroup."""
    cause: str = ""
    """Why the running rebalance, or the last one, began."""
    began_ms: Millis = 0
    """When it began."""
    ended_ms: Millis = -1
    """When the last join phase was over; -1: not since the group was loaded."""
    hasty: int = 0
    """How many rebalances in a row began right after the one before."""
    settling: bool = False
    """The running rebalance stays open for a while, although all may have joined: the group is in a storm."""
    initial: bool = False
    """The running rebalance is the first one: it waits for its window to end (KIP-134)."""
    joined_in_window: bool = False
    window_remaining_ms: int = 0
    support: Counter[str] = field(default_factory=Counter)
    """How many members support a protocol. Counted as they come, so that a join costs the same in a large group."""
    parked_joins: int = 0
    """How many members have joined the running rebalance."""
    protocol_bytes: int = 0
    """Size of all members' protocols."""

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._count(member, 1)

    def take_out(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        self._count(member, -1)
        return member

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name in set(member.protocol_names):
            self.support[name] += by
        self.protocol_bytes += by * member.protocol_bytes

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)
