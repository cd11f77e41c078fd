"""Messages that stand inside opaque bytes of other messages, behind two bytes that tell their version.

Consumers put their subscriptions and assignments into JoinGroup and SyncGroup so. Nobody has checked those bytes: a
group can speak any protocol, and a client can send garbage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kohort.wire.codec import decode_prefix, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.schema import schema_of
from kohort.wire.schemas.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentResponseTopicPartition,
    ConsumerProtocolSubscription,
)

_M = TypeVar("_M")

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups whose members are consumers."""


def assignment_of(data: bytes) -> ConsumerProtocolAssignment | None:
    """None where the bytes are no assignment of the consumer protocol."""
    return _decode_versioned(ConsumerProtocolAssignment, data)


def subscription_of(data: bytes) -> ConsumerProtocolSubscription | None:
    """None where the bytes are no subscription of the consumer protocol."""
    return _decode_versioned(ConsumerProtocolSubscription, data)


def assignment_bytes(partitions: Iterable[tuple[str, tuple[int, ...]]], subscription: bytes = b"") -> bytes:
    """The assignment of these partitions, in the version of a subscription, which its reader understands."""
    versions = schema_of(ConsumerProtocolAssignment).versions
    assert versions is not None
    version = min(max(int.from_bytes(subscription[:2], "big", signed=True), 0), versions.last)
    rows = tuple(
        ConsumerProtocolAssignmentResponseTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in partitions
    )
    return version.to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=rows), version)


def encode_subscription(subscription: ConsumerProtocolSubscription) -> bytes:
    """In the newest version; whoever knows an older one reads that from it."""
    versions = schema_of(ConsumerProtocolSubscription).versions
    assert versions is not None
    return versions.last.to_bytes(2, "big") + encode(subscription, versions.last)


def by_topic(partitions: Iterable[tuple[str, int]]) -> list[tuple[str, tuple[int, ...]]]:
    """Topics with their partitions, in the order in which they first come."""
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return [(topic, tuple(indexes)) for topic, indexes in grouped.items()]


def assignment_in(data: bytes) -> dict[str, tuple[int, ...]] | None:
    """Partitions by topic, in the sender's order; None where the bytes are no assignment of the consumer protocol."""
    assignment = _decode_versioned(ConsumerProtocolAssignment, data)
    if assignment is None:
        return None
    return {row.topic: row.partitions for row in assignment.assigned_partitions}


def subscription_in(data: bytes) -> tuple[str, ...] | None:
    """The topics that a consumer asked for; None where the bytes are not the consumer protocol's."""
    subscription = _decode_versioned(ConsumerProtocolSubscription, data)
    return None if subscription is None else tuple(sorted(subscription.topics))


def rack_in(data: bytes) -> str | None:
    """Where a consumer says that it is; None where it does not, or where the bytes are not the consumer protocol's."""
    subscription = _decode_versioned(ConsumerProtocolSubscription, data)
    return None if subscription is None else subscription.rack_id


def _decode_versioned(cls: type[_M], data: bytes) -> _M | None:
    """A newer version is read as the newest known: fields are only added."""
    versions = schema_of(cls).versions
    assert versions is not None
    if len(data) < 2:
        return None
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        return None
    try:
        message, _ = decode_prefix(cls, min(version, versions.last), data, 2)
    except ProtocolError:
        return None
    return message
