"""The partitions that a consumer of KIP-848's protocol owns: see `client/consumer/ownership.py`.

The group names topics by id, the application by name. A broker may learn of a new topic later than the coordinator. So
the member waits until it knows a topic's name; it owns the partitions meanwhile and does not use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.client.admin.groups import Committer
from kohort.client.consumer.ownership import (
    NONE,
    CountPartitions,
    GiveUp,
    NameTopics,
    Over,
    Partitions,
    Step,
    Take,
    Wait,
    Wanted,
)
from kohort.client.membership.consumer import ConsumerMembership, ConsumerSettings, Lost, Revoke, Subscription
from kohort.client.membership.coordinator_requests import Ended, Millis
from kohort.client.membership.epoch_member import Phase, TopicIdPartition
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember


class ConsumerOwnership:
    def __init__(self, settings: ConsumerSettings) -> None:
        self.membership = ConsumerMembership(settings, Subscription())
        self._wanted = Wanted()
        self._names: dict[bytes, str] = {}
        self._owned: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, TopicIdPartition] = {}
        """The topic ids of the owned partitions."""
        self._revoke: frozenset[TopicIdPartition] | None = None
        self._error: int | None = None

    # -- what is known

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        return self._owned

    def lease_left(self, now: Millis) -> Millis:
        until = self.membership.trusted_until()
        return 0 if until is None else max(until - now, 0)

    def committer(self) -> Committer:
        settings = self.membership.settings
        return Committer(settings.member_id, self.membership.epoch, settings.instance_id)

    def reader(self) -> GroupMember | None:
        settings = self.membership.settings
        return GroupMember(settings.group_id, settings.member_id, self.membership.epoch)

    def watched_topics(self) -> tuple[str, ...]:
        return ()

    def topics_missing(self) -> bool:
        return False

    # -- events of the membership

    def on_event(self, event: Any, now: Millis) -> Partitions:
        match event:
            case Revoke():
                self._revoke = event.partitions
            case Lost():
                return self._lose()
            case Ended():
                self._error = event.error
                return self._lose()
        return NONE

    def _lose(self) -> Partitions:
        lost = frozenset(self._owned)
        self._owned, self._ids, self._revoke = {}, {}, None
        return lost

    # -- what is due

    def step(self, now: Millis) -> Step:
        if self._error is not None:
            return Over(self._error)
        if self.membership.phase is Phase.OUTSIDE:
            self.membership.join(now)
            return Wait()
        if self._revoke is not None:
            gone = frozenset(place for place, partition in self._ids.items() if partition in self._revoke)
            if gone:
                return GiveUp(gone)
            self._revoke = None
            self.membership.revoked(now)
        new = self.membership.owned - frozenset(self._ids.values())
        known = {(self._names[topic], index): (topic, index) for topic, index in new if topic in self._names}
        if known:
            self._ids.update(known)
            self._owned.update(dict.fromkeys(known, self.membership.epoch))
            return Take(frozenset(known))
        if new:
            return NameTopics(None if self._wanted.pattern is not None else self._wanted.topics)
        return Wait()

    def given_up(self, step: GiveUp, now: Millis) -> None:
        for place in step.partitions:
            self._owned.pop(place, None)
            self._ids.pop(place, None)

    def topics_named(self, names: Mapping[bytes, str]) -> None:
        self._names.update(names)

    def partitions_counted(self, step: CountPartitions, counts: Mapping[str, int], now: Millis) -> None:
        raise AssertionError("the server assigns")

    # -- what the application wants

    def subscribe(self, wanted: Wanted, topics: Iterable[str], now: Millis) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self.membership.subscribe(Subscription(wanted.topics, wanted.pattern), now)

    def counts_refreshed(self, counts: Mapping[str, int], now: Millis) -> None:
        return  # the server watches topics

    def commit_answered(self, error: int, committer: Committer, now: Millis) -> None:
        self.membership.commit_answered(error, committer.generation_id_or_epoch, now)

    def leave(self, now: Millis, *, static_too: bool) -> None:
        self.membership.leave(now, static_too=static_too)
