"""The input and the result of an assignor, and the bytes of both.

The bytes are those of ConsumerProtocol.java: two bytes of version, then the message; topics and owned partitions are
sorted. A member whose bytes cannot be read takes part without topics, so that it does not stop the others.
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
    """The partitions that a member claims, and the generation in which it got them; None if it does not say."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    """The partitions that it reads now and keeps over the rebalance; only cooperative members have them."""
    claim: Claim = Claim()
    """The partitions that it prefers to keep."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, in order of their instance ids, so that restarts do not change the order."""
        return (True, self.member_id) if self.instance_id is None else (False, self.instance_id)


Division = dict[str, list[TopicPartition]]
"""Partitions by member id, of every member."""


@dataclass(frozen=True, slots=True)
class Assignor:
    name: str
    divide: Callable[[Mapping[str, int], Sequence[Consumer]], Division]
    """The assignment, from the partition counts of the topics that exist, and the members."""
    cooperative: bool = False
    user_data: Callable[[Claim], bytes | None] = lambda claim: None
    """The user data that carry a claim in a subscription."""
    claim: Callable[[ConsumerProtocolSubscription], Claim] = lambda subscription: Claim()
    """The claim in a subscription."""


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

    `owned` are the partitions that it keeps over the rebalance. `remembered` is its last assignment with the
    generation; a member without one leaves it out.
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
    """A member, from its row in the leader's answer to JoinGroup."""
    subscription = subscription_of(metadata)
    if subscription is None:
        return Consumer(member_id, frozenset(), instance_id)
    owned = tuple((row.topic, partition) for row in subscription.owned_partitions for partition in row.partitions)
    return Consumer(member_id, frozenset(subscription.topics), instance_id, owned, assignor.claim(subscription))


def assignments(
    assignor: Assignor, partitions: Mapping[str, int], members: Iterable[tuple[str, str | None, bytes]]
) -> dict[str, bytes]:
    """The leader's result: assignments by member id, each in the version of that member's subscription.

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
    """All partitions of subscribed topics, in order."""
    wanted = {topic for consumer in consumers for topic in consumer.topics}
    return [(topic, index) for topic in sorted(wanted) for index in range(partitions.get(topic, 0))]
