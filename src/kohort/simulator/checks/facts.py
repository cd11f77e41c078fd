"""What an onlooker knows of one group: whom the server told what, and who must not succeed any more.

It is learned from answers that left the server, from durable records and from the journal, never from the shard's own
mind. The checks of an answer against it are in promises.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.simulator.world.world import Millis


@dataclass(slots=True)
class MemberFacts:
    member_id: str
    instance_id: str | None
    session_ms: Millis
    last_seen: Millis
    """When the server last accepted something of it; at the earliest when the group was loaded."""


@dataclass(slots=True)
class Told:
    """What was announced of a generation."""

    leader: str
    protocol: str
    identities: frozenset[str] | None = None
    """Of all members, as the leader was told."""


@dataclass(slots=True)
class GroupFacts:
    name: str
    current: int = 0
    """The generation that is in force."""
    announced: int = 0
    """The highest generation that any client was told of."""
    told: dict[int, Told] = field(default_factory=dict)
    members: dict[str, MemberFacts] = field(default_factory=dict)
    """Everybody who was told that it is a member, and is not gone."""
    joining: set[str] = field(default_factory=set)
    """Who joined the running rebalance, by the journal."""
    joined: set[str] = field(default_factory=set)
    """Who came into a generation, by the journal: a client that is gone is never told that it did."""
    gone: dict[str, str] = field(default_factory=dict)
    """Who is no member any more, and why. Nobody comes back from here."""
    instances: dict[str, str] = field(default_factory=dict)
    """Static members: instance id, the member id that holds it."""
    instance_of: dict[str, str] = field(default_factory=dict)
    """Member id, instance id; also of those who are gone."""
    least_rebalance_ms: Millis = 1 << 40
    """The shortest rebalance timeout that anybody asked for."""
    rebalance_started: Millis = 0
    generation_began: Millis = 0
    phase: str = "Dead"
    """At the end of the last turn."""
    nonempty_at: Millis = -(1 << 60)
    """When it last had members, in this life of the server."""
    generations: set[int] = field(default_factory=set)
    """Those in force at some moment of the turn under way."""
    quiet: bool = False
    """The journal was told nothing of it in the turn under way."""
    initial: bool = False
    """At the end of the last turn it waited for its first members."""
    pending: dict[str, Millis] = field(default_factory=dict)
    """Member ids that were given out and not used, at the end of the last turn, with the end of their sessions."""
    unsettled: bool = True
    """It was loaded in this turn: what was in force is not known exactly."""

    def identity(self, member_id: str) -> str:
        """What stays the same when a static member comes back under a new id."""
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
        """The group is loaded from its record: whoever it names is a member again, even one that had left after it.

        A static member that was fenced while its group was stable is not in the record any more.
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
