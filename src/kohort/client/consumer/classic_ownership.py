"""The partitions that a consumer of the classic protocol owns: see `client/consumer/ownership.py`.

If all its assignors are cooperative, the member keeps its partitions while the group rebalances. It gives up what its
next assignment leaves out and then rejoins, so that others get it (KIP-429). Otherwise it gives up everything before it
rejoins. The assignor that the group chooses does not matter here: it is known only after the join.

The order of the calls and the subscription's contents follow Java's ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kohort.client.admin.groups import NO_GENERATION, Committer
from kohort.client.assignors import ASSIGNORS, Assignor, Claim, assignments, subscription_bytes
from kohort.client.consumer.ownership import NONE, CountPartitions, GiveUp, Over, Partitions, Step, Take, Wait, Wanted
from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol, Settings
from kohort.client.membership.coordinator_requests import Ended, Millis
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.wire.embedded import assignment_in, subscription_in


class ClassicOwnership:
    """`assignors` are names, best first. Raises ValueError for an unknown name."""

    def __init__(self, settings: Settings, assignors: Sequence[str], *, rack: str | None = None) -> None:
        unknown = [name for name in assignors if name not in ASSIGNORS]
        if unknown or not assignors:
            raise ValueError(f"no assignor {', '.join(map(repr, unknown))}; there are {', '.join(ASSIGNORS)}")
        self._assignors: tuple[Assignor, ...] = tuple(ASSIGNORS[name] for name in assignors)
        self._cooperative = all(assignor.cooperative for assignor in self._assignors)
        self.membership = Membership(replace(settings, rejoins=False, keeps=self._cooperative))
        self._rack = rack
        self._topics: tuple[str, ...] = ()
        self._owned: dict[TopicPartition, int] = {}
        self._granted: Partitions | None = None
        """An assignment that the application has not seen all of."""
        self._assign: Assign | None = None
        self._claim: Claim | None = None
        self._generation = NO_GENERATION
        self._rejoin_reason: str | None = None
        """Why to rejoin."""
        self._counts: dict[str, int] = {}
        """The partition counts that this member assigned by, or rejoins for; empty unless it leads."""
        self._error: int | None = None

    # -- what is known

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        return self._owned

    def lease_left(self, now: Millis) -> Millis:
        return self.membership.lease_left(now)

    def committer(self) -> Committer:
        settings = self.membership.settings
        return Committer(self.membership.member_id, self.membership.generation_id, settings.instance_id)

    def reader(self) -> GroupMember | None:
        return None

    def watched_topics(self) -> tuple[str, ...]:
        return tuple(self._counts)

    def topics_missing(self) -> bool:
        return not all(self._counts.values())

    # -- events of the membership

    def on_event(self, event: Any, now: Millis) -> Partitions:
        match event:
            case Assign():
                self._assign = event
            case Assigned():
                rows = assignment_in(event.assignment) or {}
                self._granted = frozenset((topic, index) for topic, indexes in rows.items() for index in indexes)
                self._generation = event.generation_id
                self._claim = Claim(tuple(sorted(self._granted)), event.generation_id)
                if not event.leads:
                    self._counts = {}
            case LetGo():
                self._granted = None
            case Lost():
                return self._lose()
            case Ended():
                self._error = event.error
                return self._lose()
        return NONE

    def _lose(self) -> Partitions:
        lost, self._owned = frozenset(self._owned), {}
        self._granted = None
        self._generation = NO_GENERATION
        self._counts = {}
        return lost

    # -- what is due

    def step(self, now: Millis) -> Step:
        if self._error is not None:
            return Over(self._error)
        match self.membership.phase:
            case Phase.OUTSIDE:
                self.membership.subscribe(self._offered(), now)
                self.membership.join(now)
            case Phase.LETTING_GO:
                gone = {place for place in self._owned if not self._cooperative or place[0] not in self._topics}
                if gone:
                    return GiveUp(frozenset(gone))
                self._rejoin_reason = None
                self.membership.subscribe(self._offered(), now)
                self.membership.let_go(now)
            case Phase.ASSIGNING if self._assign is not None:
                members = self._assign.members
                subscribed = {topic for member in members for topic in subscription_in(bytes(member.metadata)) or ()}
                return CountPartitions(self._assign, tuple(sorted(subscribed)))
            case Phase.STABLE:
                return self._settle(now)
        return Wait()

    def _settle(self, now: Millis) -> Step:
        if self._granted is not None:
            gone, new = frozenset(self._owned) - self._granted, self._granted - frozenset(self._owned)
            if gone:
                self._rejoin_reason = "given-up partitions are free"
                return GiveUp(gone)
            self._granted = None
            if new:
                self._owned.update(dict.fromkeys(new, self._generation))
                return Take(new)
        if self._rejoin_reason is not None:
            reason, self._rejoin_reason = self._rejoin_reason, None
            self.membership.subscribe(self._offered(), now, reason)
            return self.step(now)
        return Wait()

    def given_up(self, step: GiveUp, now: Millis) -> None:
        for place in step.partitions:
            self._owned.pop(place, None)

    def topics_named(self, names: Mapping[bytes, str]) -> None:
        raise AssertionError("the classic protocol has no ids")

    def partitions_counted(self, step: CountPartitions, counts: Mapping[str, int], now: Millis) -> None:
        if self._assign is not step.assign:
            return
        self._assign = None
        self._counts = {topic: counts.get(topic, 0) for topic in step.topics}
        members = [(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in step.assign.members]
        divided = assignments(ASSIGNORS[step.assign.protocol], counts, members)
        self.membership.assign(step.assign.generation_id, divided, now)

    # -- what the application wants

    def subscribe(self, wanted: Wanted, topics: Iterable[str], now: Millis) -> None:
        topics = tuple(sorted(topics))
        if topics != self._topics:
            self._topics = topics
            self._rejoin("the subscription changed", now)

    def counts_refreshed(self, counts: Mapping[str, int], now: Millis) -> None:
        seen = {topic: counts.get(topic, 0) for topic in self._counts}
        if seen != self._counts:
            self._counts = seen
            self._rejoin("topics have changed", now)

    def _rejoin(self, reason: str, now: Millis) -> None:
        """Now, or when the application has seen all of the assignment."""
        if self.membership.phase is Phase.STABLE and self._granted is None:
            self.membership.subscribe(self._offered(), now, reason)
        elif self.membership.phase is not Phase.OUTSIDE:
            self._rejoin_reason = reason

    def commit_answered(self, error: int, committer: Committer, now: Millis) -> None:
        self.membership.commit_answered(error, committer.generation_id_or_epoch, now)

    def leave(self, now: Millis, *, static_too: bool) -> None:
        self.membership.leave(now, "the consumer was closed", static_too=static_too)

    def _offered(self) -> tuple[Protocol, ...]:
        owned = tuple(self._owned) if self._cooperative else ()
        return tuple(
            Protocol(
                assignor.name,
                subscription_bytes(
                    assignor, self._topics, owned, self._generation, remembered=self._claim, rack=self._rack
                ),
            )
            for assignor in self._assignors
        )
