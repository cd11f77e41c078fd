"""The protocols of a group's members: which are common, which is chosen, which topics the members subscribe to.

A protocol is a name and metadata that only the members understand. The exception is the protocol type "consumer": its
metadata begins with the topics that a member subscribes to, whose offsets neither expire nor can be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kohort.coordinator.classic.group import Group, Phase
from kohort.coordinator.classic.protocols import Protocols
from kohort.wire.codec import decode_bounded
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.consumer_protocol import ConsumerProtocolSubscription

CONSUMER = "consumer"


def candidates(group: Group) -> list[str]:
    """Protocols that every member supports, in the order of the first member."""
    first = next(iter(group.members.values()))
    return [name for name in dict.fromkeys(first.protocol_names) if group.support[name] == len(group.members)]


def vote(group: Group, *, vote_tie: bool = True) -> str:
    """Each member votes for its first protocol among those that all support; most votes win (J16).

    In a tie, the first one of the first member wins. Without `vote_tie`, it is the one that a hash map of Java has
    first, as in Kafka (ClassicGroup.selectProtocol).
    """
    names = candidates(group)
    votes = Counter(next(name for name in m.protocol_names if name in names) for m in group.members.values())
    return max(names if vote_tie else _in_order_of_java(votes), key=lambda name: votes[name])


def _in_order_of_java(names: Collection[str]) -> list[str]:
    """The names in the order in which java.util.HashMap lists them, if none is in the same slot as another one."""
    slots = 16
    while len(names) > slots * 3 // 4:
        slots *= 2
    return sorted(names, key=lambda name: _spread_hash(name) % slots)


def _spread_hash(text: str) -> int:
    """String.hashCode of Java, without a sign, and its upper half mixed into the lower one as in java.util.HashMap."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value ^ value >> 16


def supports(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a member with these protocols can be in the group (J9, J10)."""
    if not protocol_type or not protocols:
        return False
    if group.phase is Phase.EMPTY:
        return True
    if protocol_type != group.protocol_type:
        return False
    return not group.members or not {name for name, _ in protocols}.isdisjoint(candidates(group))


def subscribed_topics(group: Group) -> set[str] | None:
    """The topics that the members of a group of consumers subscribe to now; None if unknown."""
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            # Every version of the subscription begins with two bytes of version and the fields of version 0.
            subscription, _ = decode_bounded(ConsumerProtocolSubscription, 0, member.metadata_of(group.protocol), 2)
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return topics


def is_subscribed(group: Group, topics: set[str] | None, topic: str) -> bool:
    """`topics`: what `subscribed_topics` returned. Consumers with unreadable metadata may subscribe to any topic."""
    return topic in topics if topics is not None else group.protocol_type == CONSUMER
