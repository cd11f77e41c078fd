"""What a member of a consumer group holds, without IO: a membership's news go in, the step that is due comes out.

    tenure.heard(news, now)                  # what an AsyncMember tells; returns what is lost
    match tenure.step(now):
        case GiveUp():  call on_revoked, then `given_up`
        case Take():    call on_assigned; the partitions are its own already
        case Name():    find the topics of these ids, then `named`
        case Divide():  find the sizes of these topics, then `divided`
        case Wait():    until something is heard
        case Over():    the membership has ended, with this error or with 0

`ClassicTenure` and `ConsumerTenure` (KIP-848) differ in what the group does and not in what an application sees: it is
told of partitions one after the other, gives them up when it is asked to, and is done with a partition before somebody
else is told of it, unless that is lost.

A step may leave actions in the membership, as every call does.
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
    """They are still its own, for commits, until `given_up`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Take:
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Name:
    """Topics of the subscription, or of all where `topics` is None, are to be asked for; one of them has such an id."""

    topics: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Divide:
    """This member leads and needs the number of partitions of these topics."""

    assign: Assign
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    pass


@dataclass(frozen=True, slots=True)
class Over:
    error: int


Step = GiveUp | Take | Name | Divide | Wait | Over


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the application subscribes to: topics by name, or by a regular expression."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Tenure(Protocol):
    """See the module's text."""

    @property
    def membership(self) -> Any: ...

    @property
    def owned(self) -> Mapping[TopicPartition, int]:
        """What the application may use, with the epoch (or generation) since which it may."""

    def lease_left(self, now: Millis) -> Millis:
        """For how long nobody else can have what it owns, by the clock and what has been heard."""

    def heard(self, news: Any, now: Millis) -> Partitions: ...

    def step(self, now: Millis) -> Step: ...

    def given_up(self, step: GiveUp, now: Millis) -> None: ...

    def named(self, names: Mapping[bytes, str]) -> None: ...

    def divided(self, step: Divide, counts: Mapping[str, int], now: Millis) -> None: ...

    def subscribe(self, wanted: Wanted, topics: Iterable[str], now: Millis) -> None:
        """`topics` are those of `wanted`, its pattern resolved."""

    def sized(self, counts: Mapping[str, int], now: Millis) -> None:
        """The sizes of topics, looked at again."""

    def watched(self) -> tuple[str, ...]:
        """The topics whose size matters to this member; empty where the server looks after that."""

    def lacks(self) -> bool:
        """Whether one of those was not there when it was looked at last."""

    def committer(self) -> Committer: ...

    def reader(self) -> GroupMember | None:
        """In whose name to fetch, where the group can fence fetches."""

    def commit_answered(self, error: int, committer: Committer, now: Millis) -> None: ...

    def leave(self, now: Millis, *, static_too: bool) -> None: ...
