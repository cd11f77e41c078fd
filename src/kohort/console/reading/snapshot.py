"""All groups, topics and brokers of a cluster, as they were read last. Pages with lists show nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.client.metadata import Node

Lags = Mapping[str, int | None]
"""Records that a group has not read, by topic; None where no end of a log is known."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list. `members` and `lag` are None while they are unknown."""

    group_id: str
    state: str
    """"" if the broker does not say (before Kafka 2.6, until the group is described)."""
    type: str
    protocol_type: str
    coordinator: int
    protocol: str = ""
    """The assignor."""
    members: int | None = None
    partitions: int = 0
    """With a committed offset."""
    lag: int | None = None
    """The sum over its topics; None if nothing is committed or no end is known."""
    age_ms: int | None = None
    """The worst lag of a partition in time; 0 without lag."""
    age_told: bool = False
    """Whether the coordinator has told it; else it is estimated."""
    lags: Lags = field(default_factory=dict)
    counted: int = 0
    """Partitions with a committed offset and a known end; of these are the sums:"""
    committed: int = 0
    end: int = 0
    problem: str = ""
    """Why members or offsets are unknown."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """`groups` have committed offsets for it; each with its lag there."""

    name: str
    partitions: int
    replicas: int
    internal: bool = False
    leaderless: int = 0
    """Partitions without a leader."""
    behind: int = 0
    """Partitions with fewer replicas in sync than they have."""
    groups: tuple[tuple[str, int | None], ...] = ()

    @property
    def lag(self) -> int | None:
        """The worst lag of a group."""
        return max((lag for _, lag in self.groups if lag is not None), default=None)


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    is_controller: bool
    leads: int
    """Partitions."""
    coordinates: int
    """Groups."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all rows of a snapshot. Every open page shows some of them, each second."""

    states: Mapping[str, int] = field(default_factory=dict)
    """Groups by state."""
    lag: int = 0
    partitions: int = 0
    leaderless: int = 0
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    cluster_id: str | None = None
    groups: Mapping[str, GroupRow] = field(default_factory=dict)
    topics: Mapping[str, TopicRow] = field(default_factory=dict)
    nodes: tuple[NodeRow, ...] = ()
    totals: Totals = Totals()
    number: int = 0
    """How often it was read; 0 while it is read for the first time."""
    taken_ms: int | None = None
    """When it was complete, by this machine's clock."""
    described: int = 0
    """While it is read for the first time: groups whose members and lag are known."""
    failure: str = ""
    """Why the newest attempt to read it failed; the rest is as it was before."""
