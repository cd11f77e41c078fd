"""What an assignor is given and what it answers: the public interface, for the built-in ones and for plug-ins.

A consumer group's members do not divide the partitions among themselves; the server does. Whenever the members, their
subscriptions or the topics change, it hands the whole group to an assignor and gets the target assignment back, which
the members are then led to, one revoked and acknowledged partition at a time.

An assignor is any object with a `name` and `assign`:

    class Alphabetical:
        name = "alphabetical"

        def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
            ...

It shall be a function of its argument alone: no clock, no chance, no order of a set, nothing kept from call to call.
Two calls with equal groups give equal answers, and a call with its own answer as `owned` gives that answer again.
What it answers is checked (`check.py`) before any of it is used.

Source: KIP-848, "Server side assignors"; Kafka's ConsumerGroupPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

TopicId: TypeAlias = bytes
"""Sixteen bytes. A topic that is deleted and created again has another id."""

Assignment: TypeAlias = Mapping[TopicId, tuple[int, ...]]
"""Partition numbers by topic, ascending, without topics that have none."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member of the group."""

    member_id: str
    instance_id: str | None = None
    """`group.instance.id` of a static member. It outlives the member id."""
    rack: str | None = None
    """`client.rack`, if the member told one."""
    topics: tuple[TopicId, ...] = ()
    """What it is subscribed to; patterns are resolved already. May name topics that do not exist."""
    owned: Assignment = field(default_factory=dict)
    """Its target assignment up to now. May name partitions that do not exist, or that another member has as well."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that at least one member is subscribed to."""

    topic_id: TopicId
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition the racks of its replicas; empty if unknown."""
    leader_racks: tuple[str | None, ...] = ()
    """For each partition the rack of its leader; empty if unknown."""
    lag: tuple[int, ...] | None = None
    """For each partition how many records the group is behind; None if unknown."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The group that is to be assigned."""

    members: Mapping[str, MemberSpec]
    """By member id. The order is not random, and it means nothing."""
    topics: Mapping[TopicId, TopicSpec]
    """By topic id. Partitions of topics that are not here do not exist."""


class Assignor(Protocol):
    """Divides a group's partitions among its members."""

    @property
    def name(self) -> str:
        """What members and configurations choose it by."""

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        """The target assignment by member id. A member that is left out gets nothing, a partition nobody has waits.

        What it raises refuses the assignment; the group keeps the one it has.
        """
