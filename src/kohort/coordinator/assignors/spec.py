"""The interface of assignors, built-in ones and plug-ins: the input and the result.

The members of a consumer group do not divide the partitions themselves; the server does. Whenever the members, their
subscriptions or the topics change, it passes the whole group to an assignor, which returns the target assignment. The
members then move to it one revoked and acknowledged partition at a time.

An assignor is any object with a `name` and `assign`:

    class Alphabetical:
        name = "alphabetical"

        def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
            ...

It must be a function of its argument: no clock, no randomness, no iteration over a set, no state between calls. Equal
groups get equal assignments, and a call with its own answer as `owned` returns that answer. The answer is checked
(`check.py`) before it is used.

Source: KIP-848, "Server side assignors"; Kafka's ConsumerGroupPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

TopicId: TypeAlias = bytes
"""Sixteen bytes. A topic that is deleted and created again gets a new id."""

Assignment: TypeAlias = Mapping[TopicId, tuple[int, ...]]
"""Partition numbers by topic, ascending, without topics that have no partitions."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    member_id: str
    instance_id: str | None = None
    """`group.instance.id` of a static member. It stays the same when the member id changes."""
    rack: str | None = None
    """`client.rack`, if the member has one."""
    topics: tuple[TopicId, ...] = ()
    """Its subscription with patterns resolved. May name topics that do not exist."""
    owned: Assignment = field(default_factory=dict)
    """Its target assignment so far. May name partitions that do not exist or that another member has too."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that at least one member subscribes to."""

    topic_id: TopicId
    name: str
    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """For each partition, the racks of its replicas; empty if unknown."""
    leader_racks: tuple[str | None, ...] = ()
    """For each partition, the rack of its leader; empty if unknown."""
    lag: tuple[int, ...] | None = None
    """For each partition, how many records the group is behind; None if unknown."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    """By member id. The order is deterministic and has no meaning."""
    topics: Mapping[TopicId, TopicSpec]
    """By topic id. Topics that are not here do not exist."""


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """The name by which members and configs choose the assignor."""

    def assign(self, group: GroupSpec) -> Mapping[str, Assignment]:
        """The target assignment by member id. Members that are left out get nothing; partitions that are left out stay
        unassigned. If it raises, the assignment is refused and the group keeps the present one."""
