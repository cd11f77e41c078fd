"""Messages inside opaque bytes of other messages, after a version of two bytes.

Consumers encode subscriptions and assignments in JoinGroup and SyncGroup this way. These bytes are unchecked: a group
can use any protocol, and a client can send garbage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kohort.wire.codec import decode_bounded, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.schema import schema_of
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
    ConsumerProtocolSubscription,
)

_M = TypeVar("_M")
Topic = TypeVar("Topic", str, bytes)
"""A topic's name or id."""

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups whose members are consumers."""
ELECTION_PROTOCOL, SHARDS_PROTOCOL = "kohort-election", "kohort-shards"
"""The protocol types of the groups behind `lead` and `shards` of the client library."""


def assignment_of(data: bytes) -> ConsumerProtocolAssignment | None:
    """The assignment; None if the bytes are not one of the consumer protocol."""
    return _decode_versioned(ConsumerProtocolAssignment, data)


def subscription_of(data: bytes) -> ConsumerProtocolSubscription | None:
    """The subscription; None if the bytes are not one of the consumer protocol."""
    return _decode_versioned(ConsumerProtocolSubscription, data)


def assignment_bytes(partitions: Iterable[tuple[str, tuple[int, ...]]], subscription: bytes = b"") -> bytes:
    """The assignment of these partitions, in the version of the member's subscription."""
    versions = schema_of(ConsumerProtocolAssignment).versions
    assert versions is not None
    version = min(max(int.from_bytes(subscription[:2], "big", signed=True), 0), versions.last)
    rows = tuple(
        ConsumerProtocolAssignmentResponseTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in partitions
    )
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=rows), version)


def encode_subscription(subscription: ConsumerProtocolSubscription) -> bytes:
    """In the newest version, which readers of older versions can read."""
    versions = schema_of(ConsumerProtocolSubscription).versions
    assert versions is not None
    return versions.last.to_bytes(2, "big") + encode(subscription, versions.last)


def by_topic(partitions: Iterable[tuple[Topic, int]]) -> list[tuple[Topic, tuple[int, ...]]]:
    """Topics with their partitions, in the order of their first occurrence."""
    grouped: dict[Topic, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return [(topic, tuple(indexes)) for topic, indexes in grouped.items()]


def assignment_in(data: bytes) -> dict[str, tuple[int, ...]] | None:
    """Partitions by topic, in the sender's order; None if the bytes are no assignment of consumers."""
    assignment = _decode_versioned(ConsumerProtocolAssignment, data)
    if assignment is None:
        return None
    return {row.topic: row.partitions for row in assignment.assigned_partitions}


def subscription_in(data: bytes) -> tuple[str, ...] | None:
    """The topics of a subscription; None if the bytes are not of the consumer protocol."""
    subscription = _decode_versioned(ConsumerProtocolSubscription, data)
    return None if subscription is None else tuple(sorted(subscription.topics))


def rack_in(data: bytes) -> str | None:
    """The consumer's rack; None if it states none, or if the bytes are not of the consumer protocol."""
    subscription = _decode_versioned(ConsumerProtocolSubscription, data)
    return None if subscription is None else subscription.rack_id


def _decode_versioned(cls: type[_M], data: bytes) -> _M | None:
    """Reads a newer version as the newest known one: versions only add fields."""
    versions = schema_of(cls).versions
    assert versions is not None
    if len(data) < 2:
        return None
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        return None
    try:
        message, _ = decode_bounded(cls, min(version, versions.last), data, 2)
    except ProtocolError:
        return None
    return message
