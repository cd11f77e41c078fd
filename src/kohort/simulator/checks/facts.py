"""Facts about one classic group: the server's answers by member, and the former members, whose requests must fail.

They come from answers, durable records and the journal, never from the shard's own state. promises.py checks answers
against them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.simulator.world.world import Millis, Violation


@dataclass(slots=True)
class MemberFacts:
    member_id: str
    instance_id: str | None
    session_ms: Millis
    last_seen: Millis
    """When the server last accepted a request of it; at the earliest the load of the group."""


@dataclass(slots=True)
class Told:
    """A generation, as announced to members."""

    leader: str
    protocol: str
    identities: frozenset[str] | None = None
    """All members, as announced to the leader."""


@dataclass(slots=True)
class GroupFacts:
    name: str
    current: int = 0
    """The current generation."""
    announced: int = 0
    """The highest generation announced to any client."""
    told: dict[int, Told] = field(default_factory=dict)
    members: dict[str, MemberFacts] = field(default_factory=dict)
    """Members that got a successful answer and are not gone."""
    joining: set[str] = field(default_factory=set)
    """Members that joined the running rebalance, by the journal."""
    joined: set[str] = field(default_factory=set)
    """Members that joined a generation, by the journal; a client that is gone may never learn of it."""
    gone: dict[str, str] = field(default_factory=dict)
    """Former members, with the reason. Their ids never become valid again."""
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: instance id, the member id that holds it."""
    instance_of: dict[str, str] = field(default_factory=dict)
    """Member id to instance id, also for former members."""
    least_rebalance_ms: Millis = 1 << 40
    """The shortest rebalance timeout of any request."""
    rebalance_started: Millis = 0
    generation_began: Millis = 0
    phase: str = "Dead"
    """At the end of the last turn."""
    nonempty_at: Millis = -(1 << 60)
    """When the group last had members, in this life of the server."""
    generations: set[int] = field(default_factory=set)
    """Generations that were current at some time in this turn."""
    quiet: bool = False
    """The journal has no entry about the group in this turn."""
    initial: bool = False
    """At the end of the last turn the group waited for its first members."""
    pending: dict[str, Millis] = field(default_factory=dict)
    """Unused member ids at the end of the last turn, with the end of their sessions."""
    unsettled: bool = True
    """The group was loaded in this turn, so the generation in force is uncertain."""

    def broken(self, check: str, text: str) -> Violation:
        return Violation.of(self.name, check, text)

    def identity(self, member_id: str) -> str:
        """The identity of a static member that returns under a new id."""
        return self.instance_of.get(member_id, member_id)

    def admit(self, member_id: str, instance_id: str | None, session_ms: Millis, now: Millis) -> None:
        if instance_id is not None:
            self.hold_instance(instance_id, member_id)
        self.members[member_id] = MemberFacts(member_id, instance_id, session_ms, now)

    def hold_instance(self, instance_id: str, member_id: str) -> None:
        former = self.instances.get(instance_id)
        if former is not None and former != member_id:
            self.remove(former, "fenced")
        self.instances[instance_id] = member_id
        self.instance_of[member_id] = instance_id

    def reload(self, stored: Iterable[str]) -> None:
        """The group is loaded from its record: all members of the record are members again, even those that left later.

        A static member that was fenced while the group was stable is not in the record.
        """
        for member_id in stored:
            self.gone.pop(member_id, None)

    def remove(self, member_id: str, why: str) -> None:
        self.members.pop(member_id, None)
        self.joining.discard(member_id)
        self.joined.discard(member_id)
        self.gone.setdefault(member_id, why)
        instance = self.instance_of.get(member_id)
        if instance is not None and self.instances.get(instance) == member_id:
            del self.instances[instance]
