"""What a consumer of the classic protocol holds: see `client/consumer/ownership.py`.

With assignors that are all cooperative it goes on with what it has while the group rebalances, gives up what its next
assignment leaves out, and then rejoins, so that others get it (KIP-429). Else it gives up everything before it rejoins.
Which of both does not depend on the assignor that the group takes: that is known only afterwards.

The order of the calls and what the subscription says follow Java's ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kohort.client.admin.groups import Committer
from kohort.client.assignors import ASSIGNORS, Assignor, Claim, assignments, subscription_bytes
from kohort.client.consumer.ownership import NONE, Divide, GiveUp, Over, Partitions, Step, Take, Wait, Wanted
from kohort.client.membership.classic import Assign, Assigned, LetGo, Lost, Membership, Phase, Protocol, Settings
from kohort.client.membership.coordinator_requests import Ended, Millis
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember
from kohort.wire.embedded import assignment_in, subscription_in

NO_GENERATION = -1


class ClassicTenure:
    """`assignors` are names, best first. Raises ValueError for one that there is not."""

    def __init__(self, settings: Settings, assignors: Sequence[str], *, rack: str | None = None) -> None:
        unknown = [name for name in assignors if name not in ASSIGNORS]
        if unknown or not assignors:
            raise ValueError(f"no assignor {', '.join(map(repr, unknown))}; there are {', '.join(ASSIGNORS)}")
        self._assignors: tuple[Assignor, ...] = tuple(ASSIGNORS[name] for name in assignors)
        self._cooperative = all(assignor.cooperative for assignor in self._assignors)
        self.membership = Membership(replace(settings, rejoins=False, keeps=self._cooperative))
        self._rack = rack
        self._topics: tuple[str, ...] = ()
        self._told: dict[TopicPartition, int] = {}
        self._granted: Partitions | None = None
        """An assignment of which the application has not been told all."""
        self._assign: Assign | None = None
        self._claim: Claim | None = None
        self._generation = NO_GENERATION
        self._again: str | None = None
        """Why to rejoin."""
        self._divided: dict[str, int] = {}
        """The sizes by which this member has divided last, or for which it rejoins; as long as it leads."""
        self._error: int | None = None

    # -- what is known

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        return self._told

    def lease_left(self, now: Millis) -> Millis:
        return self.membership.lease_left(now)

    def committer(self) -> Committer:
        settings = self.membership.settings
        return Committer(self.membership.member_id, self.membership.generation_id, settings.instance_id)

    def reader(self) -> GroupMember | None:
        return None

    def watched(self) -> tuple[str, ...]:
        return tuple(self._divided)

    def lacks(self) -> bool:
        return not all(self._divided.values())

    # -- what is heard

    def heard(self, news: Any, now: Millis) -> Partitions:
        match news:
            case Assign():
                self._assign = news
            case Assigned():
                rows = assignment_in(news.assignment) or {}
                self._granted = frozenset((topic, index) for topic, indexes in rows.items() for index in indexes)
                self._generation = news.generation_id
                self._claim = Claim(tuple(sorted(self._granted)), news.generation_id)
                if not news.leads:
                    self._divided = {}
            case LetGo():
                self._granted = None
            case Lost():
                return self._lose()
            case Ended():
                self._error = news.error
                return self._lose()
        return NONE

    def _lose(self) -> Partitions:
        lost, self._told = frozenset(self._told), {}
        self._granted = None
        self._generation = NO_GENERATION
        self._divided = {}
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
                gone = {place for place in self._told if not self._cooperative or place[0] not in self._topics}
                if gone:
                    return GiveUp(frozenset(gone))
                self._again = None
                self.membership.subscribe(self._offered(), now)
                self.membership.let_go(now)
            case Phase.ASSIGNING if self._assign is not None:
                return Divide(self._assign, _topics_of(self._assign))
            case Phase.STABLE:
                return self._settle(now)
        return Wait()

    def _settle(self, now: Millis) -> Step:
        if self._granted is not None:
            gone, new = frozenset(self._told) - self._granted, self._granted - frozenset(self._told)
            if gone:
                self._again = "what was given up is free"
                return GiveUp(gone)
            self._granted = None
            if new:
                self._told.update(dict.fromkeys(new, self._generation))
                return Take(new)
        if self._again is not None:
            reason, self._again = self._again, None
            self.membership.subscribe(self._offered(), now, reason)
            return self.step(now)
        return Wait()

    def given_up(self, step: GiveUp, now: Millis) -> None:
        for place in step.partitions:
            self._told.pop(place, None)

    def named(self, names: Mapping[bytes, str]) -> None:
        raise AssertionError("the classic protocol has no ids")

    def divided(self, step: Divide, counts: Mapping[str, int], now: Millis) -> None:
        if self._assign is not step.assign:
            return
        self._assign = None
        self._divided = {topic: counts.get(topic, 0) for topic in step.topics}
        members = [(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in step.assign.members]
        divided = assignments(ASSIGNORS[step.assign.protocol], counts, members)
        self.membership.assign(step.assign.generation_id, divided, now)

    # -- what the application wants

    def subscribe(self, wanted: Wanted, topics: Iterable[str], now: Millis) -> None:
        topics = tuple(sorted(topics))
        if topics != self._topics:
            self._topics = topics
            self._rejoin("the subscription changed", now)

    def sized(self, counts: Mapping[str, int], now: Millis) -> None:
        seen = {topic: counts.get(topic, 0) for topic in self._divided}
        if seen != self._divided:
            self._divided = seen
            self._rejoin("topics have changed", now)

    def _rejoin(self, reason: str, now: Millis) -> None:
        """With what it wants and has by then; now, or when it has been told all of its assignment."""
        if self.membership.phase is Phase.STABLE and self._granted is None:
            self.membership.subscribe(self._offered(), now, reason)
        elif self.membership.phase is not Phase.OUTSIDE:
            self._again = reason

    def commit_answered(self, error: int, committer: Committer, now: Millis) -> None:
        self.membership.commit_answered(error, committer.generation_id_or_epoch, now)

    def leave(self, now: Millis, *, static_too: bool) -> None:
        self.membership.leave(now, "the consumer was closed", static_too=static_too)

    def _offered(self) -> tuple[Protocol, ...]:
        owned = tuple(self._told) if self._cooperative else ()
        return tuple(
            Protocol(
                assignor.name,
                subscription_bytes(
                    assignor, self._topics, owned, self._generation, remembered=self._claim, rack=self._rack
                ),
            )
            for assignor in self._assignors
        )


def _topics_of(assign: Assign) -> tuple[str, ...]:
    """What somebody of the group subscribes to."""
    wanted = {topic for member in assign.members for topic in subscription_in(bytes(member.metadata)) or ()}
    return tuple(sorted(wanted))
