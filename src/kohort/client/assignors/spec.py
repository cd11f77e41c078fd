"""What an assignor is given and answers, and how both travel.

The bytes are those of ConsumerProtocol.java: two bytes of version, then the message; topics and owned partitions in
order. A member whose bytes cannot be read takes part without topics: it must not keep the others from their work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.wire.embedded import assignment_bytes, by_topic, encode_subscription, subscription_of
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription
from kohort.wire.schemas.consumer_protocol import TopicPartition as OwnedPartitions

TopicPartition = tuple[str, int]

NO_GENERATION_ID = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says that it has, and since which generation; None: it does not say."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """What it reads now and goes on to read until it is told otherwise; only cooperative members do."""
    claim: Claim = Claim()
    """What it would like to keep."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, in order of their instance ids, so that they keep their places over restarts."""
        return (True, self.member_id) if self.instance_id is None else (False, self.instance_id)


Division = dict[str, list[TopicPartition]]
"""Partitions by member id; every member is in it."""


@dataclass(frozen=True, slots=True)
class Assignor:
    name: str
    divide: Callable[[Mapping[str, int], Sequence[Consumer]], Division]
    """From the number of partitions of each topic that exists, and the members."""
    cooperative: bool
    user_data: Callable[[Claim], bytes | None]
    """What a member that has this says of it, in its subscription."""
    claim: Callable[[ConsumerProtocolSubscription], Claim]
    """And what is read from there."""


def subscription_bytes(
    assignor: Assignor,
    topics: Iterable[str],
    owned: Iterable[TopicPartition] = (),
    generation: int = NO_GENERATION_ID,
    *,
    remembered: Claim | None = None,
    rack: str | None = None,
) -> bytes:
    """The metadata of a member for JoinGroup.

    `owned` is what it does not let go of for the rebalance. `remembered` is the assignment that it was last given and
    the generation of that; a member that was never given any leaves it out.
    """
    return encode_subscription(
        ConsumerProtocolSubscription(
            topics=tuple(sorted(topics)),
            user_data=assignor.user_data(remembered if remembered is not None else Claim()),
            owned_partitions=tuple(OwnedPartitions(topic=t, partitions=p) for t, p in by_topic(sorted(owned))),
            generation_id=generation,
            rack_id=rack,
        )
    )


def consumer_of(assignor: Assignor, member_id: str, instance_id: str | None, metadata: bytes) -> Consumer:
    """A member from what JoinGroup's answer tells the leader of it."""
    subscription = subscription_of(metadata)
    if subscription is None:
        return Consumer(member_id, frozenset(), instance_id)
    owned = tuple((row.topic, partition) for row in subscription.owned_partitions for partition in row.partitions)
    return Consumer(member_id, frozenset(subscription.topics), instance_id, owned, assignor.claim(subscription))


def assignments(
    assignor: Assignor, partitions: Mapping[str, int], members: Iterable[tuple[str, str | None, bytes]]
) -> dict[str, bytes]:
    """What the leader answers with: assignments by member id, each in the version of that member's subscription.

    `members` are (member id, instance id, metadata); `partitions` the number of partitions of the topics that exist.
    """
    members = list(members)
    consumers = [consumer_of(assignor, *member) for member in members]
    divided = assignor.divide(partitions, consumers)
    return {
        member_id: assignment_bytes(by_topic(sorted(divided[member_id])), metadata)
        for member_id, _, metadata in members
    }


def subscribed(partitions: Mapping[str, int], consumers: Iterable[Consumer]) -> list[TopicPartition]:
    """All partitions that somebody wants, in order."""
    wanted = {topic for consumer in consumers for topic in consumer.topics}
    return [(topic, index) for topic in sorted(wanted) for index in range(partitions.get(topic, 0))]
