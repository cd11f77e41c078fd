"""`__consumer_offsets` records to and from bytes, in Apache Kafka's schema (GroupCoordinatorRecordHelpers.java)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kohort.coordinator.events import Record
from kohort.coordinator.offsets.sizes import Counted
from kohort.wire.codec import decode, encode
from kohort.wire.errors import ProtocolError
from kohort.wire.schema import schema_of
from kohort.wire.schemas.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GenerationKey,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kohort.wire.schemas.share_group_records import (
    EarlierShareGroupStatePartitionMetadataValue,
    EarlierTopicPartitionsInfo,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)

Place = tuple[str, int]
"""A topic's name and a partition's index."""

_KEYS: dict[int, tuple[type, type]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    30001: (GenerationKey, GenerationValue),
}
"""The classes of the key and the value of each record type. Type 30001 is kohort's own."""
_TYPES = {key: kind for kind, (key, _) in _KEYS.items() if kind != 0}
"""The type of each key; an offset's key is written as type 1, its highest version."""


def _key(key: Any) -> bytes:
    kind = _TYPES[type(key)]
    return kind.to_bytes(2, "big") + encode(key, kind)


def _value(value: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


SHARE_KEYS = frozenset(key for kind, (key, _) in _KEYS.items() if 10 <= kind <= 15)
"""Those of the records of share groups (share_groups/records.py)."""


def version_0(key: Any, value: Any) -> Record:
    return Record(_key(key), None if value is None else _value(value, 0), (key, value))


def _offset_key(group: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return key, _key(key)


_known_offset_key = lru_cache(maxsize=16_384)(_offset_key)
"""Cached, because a group commits the same partitions again and again."""
LONGEST_KNOWN = 250
"""Characters of a group id whose keys are cached: a request can carry ids of a megabyte."""


def offset_record(group: str, topic: str, partition: int, value: OffsetCommitValue | None) -> Record:
    """Version 1 for a commit with an explicit retention, because only that version has an expiry."""
    find = _known_offset_key if len(group) <= LONGEST_KNOWN else _offset_key
    key, encoded = find(group, topic, partition)
    if value is None:
        return Record(encoded, None, (key, None))
    if value.expire_timestamp >= 0:
        return Record(encoded, _value(value, 1))  # without `parsed`: version 1 has no leader epoch
    return Record(encoded, _value(value, 4), (key, value))


def pending_record(producer_id: int, group: str, topic: str, partition: int, value: OffsetCommitValue) -> Record:
    """An offset in a producer's transaction."""
    record = offset_record(group, topic, partition, value)
    return Record(record.key, record.value, record.parsed, producer_id)


class OffsetRecords(msgspec.Struct, frozen=True, gc=False):
    """The records of one commit, made together. The same records one by one: `offset_record` for each place."""

    group: str
    places: Sequence[Place]
    values: Sequence[OffsetCommitValue]
    encoded: bytes
    """All records, encoded as in a record batch that contains only them."""
    counted: Counted


def group_record(group: str, value: GroupMetadataValue | None) -> Record:
    """Version 3, as Kafka writes it: some tools cannot read version 4, which Kafka reads but does not write."""
    key = GroupMetadataKey(group=group)
    return Record(_key(key), None if value is None else _value(value, 3), (key, value))


def generation_record(group: str, generation: int | None) -> Record:
    """Under the empty name: the highest generation of the forgotten groups."""
    value = None if generation is None else GenerationValue(generation=generation)
    return version_0(GenerationKey(group=group), value)


def consumer_group_record(group: str, value: ConsumerGroupMetadataValue | None) -> Record:
    return version_0(ConsumerGroupMetadataKey(group_id=group), value)


def member_record(group: str, member: str, value: ConsumerGroupMemberMetadataValue | None) -> Record:
    return version_0(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member), value)


def target_epoch_record(group: str, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> Record:
    return version_0(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), value)


def target_record(group: str, member: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> Record:
    return version_0(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member), value)


def current_record(group: str, member: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> Record:
    return version_0(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), value)


def regex_record(group: str, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> Record:
    return version_0(ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex), value)


def parse(record: Record) -> tuple[Any, Any] | None:
    """Key and value (None for a tombstone). None for an unknown type and for type 4, which Kafka abandoned.

    Raises ProtocolError for a known type with an unknown version or broken bytes."""
    if len(record.key) < 2:
        raise ProtocolError("a record key of less than two bytes")
    kind = int.from_bytes(record.key[:2], "big", signed=True)
    classes = _KEYS.get(kind)
    if classes is None:
        return None
    key: Any = decode(classes[0], kind, record.key, 2)
    if record.value is None:
        return key, None
    version = int.from_bytes(record.value[:2], "big", signed=True)
    versions = schema_of(classes[1]).versions
    if versions is None or version not in versions or len(record.value) < 2:
        # Skipping it would lose state.
        raise ProtocolError(f"a {classes[1].__name__} of the unknown version {version}")
    try:
        return key, decode(classes[1], version, record.value, 2)
    except ProtocolError:
        if classes[1] is not ShareGroupStatePartitionMetadataValue:
            raise
        return key, _earlier_states(record.value)


def _earlier_states(data: bytes) -> ShareGroupStatePartitionMetadataValue:
    """Of a record in which each topic has a time too. Raises ProtocolError."""
    found = decode(EarlierShareGroupStatePartitionMetadataValue, 0, data, 2)
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_without_times(found.initializing_topics),
        initialized_topics=_without_times(found.initialized_topics),
        deleting_topics=found.deleting_topics,
    )


def _without_times(infos: tuple[EarlierTopicPartitionsInfo, ...]) -> tuple[TopicPartitionsInfo, ...]:
    return tuple(
        [
            TopicPartitionsInfo(topic_id=info.topic_id, topic_name=info.topic_name, partitions=info.partitions)
            for info in infos
        ]
    )
