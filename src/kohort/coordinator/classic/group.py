"""A running classic group: its members, their protocols and parked requests, the phase of its rebalance.

This is soft state. Only `step` changes it. It is rebuilt from the group's record when a shard is loaded. State that
is not in the record returns with the clients' retries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum

from kohort.coordinator.classic.protocols import Protocols, held_by, size_of
from kohort.coordinator.events import Client, Millis, RequestId
from kohort.coordinator.member_bytes import ASSIGNED_BYTES, CLASSIC_GROUP_BYTES, MEMBER_BYTES, text_bytes


class Phase(Enum):
    """States of a classic group, as Kafka prints them. requests.py says what each request does in each phase."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Describes a group that does not exist; no running group is in this state."""


@dataclass(slots=True)
class Member:
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
    """The held heartbeat."""
    heartbeat_ms: Millis = -1
    """When the last heartbeat arrived that could be held."""
    joined_ms: Millis = -1
    """When it joined the running or the last rebalance; -1: not yet."""
    synced_ms: Millis = -1
    """When it sent the SyncGroup of this generation; -1: not yet."""
    size: int = 0
    """About its bytes in memory, as they count for its group."""

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
    generation_topics: set[str] | None = None
    """The topics that the members subscribed to when the generation began; only kept by a strict server."""
    protocol_bytes: int = 0
    """Size of all members' protocols."""
    members_size: int = 0
    """About the bytes of all members in memory, besides their assignments."""
    own_size: int = 0
    """About the bytes of the group without members and the protocol type."""

    def __post_init__(self) -> None:
        self.own_size = CLASSIC_GROUP_BYTES + text_bytes(self.group_id)

    assignment_bytes: int = 0
    """What the assignments of all members that the leader sent last take beyond `ASSIGNED_BYTES` each. It stays during
    the next rebalance."""

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
        if by > 0:
            member.size = size_of_member(member.member_id, member.instance_id, member.client, member.protocols)
        self.members_size += by * member.size

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)


def size_of_assignments(assignments: Collection[bytes]) -> int:
    """Their bytes beyond what counts for their members anyway."""
    return max(sum(map(len, assignments)) - ASSIGNED_BYTES * len(assignments), 0)


def size_of_member(member_id: str, instance_id: str | None, client: Client, protocols: Protocols) -> int:
    """About its bytes in memory, besides its assignment."""
    return MEMBER_BYTES + text_bytes(member_id, instance_id, client.client_id) + held_by(protocols)
