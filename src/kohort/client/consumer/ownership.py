"""The partitions that a member of a consumer group owns, without IO: events go in, the next step comes out.

    ownership.on_event(event, now)           # what an AsyncMember hands out; returns the partitions that are lost
    match ownership.step(now):
        case GiveUp():  call on_revoked, then `given_up`
        case Take():    call on_assigned; the member owns the partitions already
        case NameTopics():    look up the topics of these ids, then call `topics_named`
        case CountPartitions():  look up the partition counts of these topics, then call `partitions_counted`
        case Wait():    nothing to do until the next event
        case Over():    the membership has ended, with this error or with 0

`ClassicOwnership` and `ConsumerOwnership` (KIP-848) differ inside the group and look the same to an application. The
group assigns partitions to the consumer, and the consumer gives them up on request. The consumer finishes with a
partition before another member gets it, unless the partition is lost.

After every call the membership may have actions to carry out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kohort.client.admin.groups import Committer
from kohort.client.membership.classic import Assign
from kohort.client.membership.coordinator_requests import Millis
from kohort.client.metadata import TopicPartition
from kohort.client.records.partition_leaders import GroupMember

Partitions = frozenset[TopicPartition]
NONE: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The member owns them, for commits, until `given_up`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Take:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class NameTopics:
    """Look up the ids of these topics, or of all topics where `topics` is None: an assigned id has no name yet."""

    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """This member leads and needs the number of partitions of these topics."""

    assign: Assign
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    pass


@dataclass(frozen=True, slots=True)
class Over:
    error: int


Step = GiveUp | Take | NameTopics | CountPartitions | Wait | Over


@dataclass(frozen=True, slots=True)
class Wanted:
    """The application's subscription: topics by name, or by a regular expression."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Ownership(Protocol):
    @property
    def membership(self) -> Any: ...

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """The partitions that the application may use, each with the epoch (or generation) in which it got them."""

    def lease_left(self, now: Millis) -> Millis:
        """The time for which no other member can own this member's partitions."""

    def on_event(self, event: Any, now: Millis) -> Partitions: ...

    def step(self, now: Millis) -> Step: ...

    def given_up(self, step: GiveUp, now: Millis) -> None: ...

    def topics_named(self, names: Mapping[bytes, str]) -> None: ...

    def partitions_counted(self, step: CountPartitions, counts: Mapping[str, int], now: Millis) -> None: ...

    def subscribe(self, wanted: Wanted, topics: Iterable[str], now: Millis) -> None:
        """`topics` are the topics of `wanted`; if it is a pattern, the topics that match."""

    def counts_refreshed(self, counts: Mapping[str, int], now: Millis) -> None:
        """The partition counts of the watched topics, looked up again."""

    def watched_topics(self) -> tuple[str, ...]:
        """The topics whose partition counts this member assigned by; empty where the server assigns."""

    def topics_missing(self) -> bool:
        """True if a watched topic did not exist at the last lookup."""

    def committer(self) -> Committer: ...

    def reader(self) -> GroupMember | None:
        """Whom to name in fetches, where the group can fence them."""

    def commit_answered(self, error: int, committer: Committer, now: Millis) -> None: ...

    def leave(self, now: Millis, *, static_too: bool) -> None: ...
