"""Records of consumer groups in `__consumer_offsets`.

The bytes in KAFKAS were printed by Kafka's own generated classes (trunk of August 2026, 4.4.0-SNAPSHOT; published with
the tests of another broker). They pin what the JSON does not say plainly: `"default": null` without quotation marks is
the empty value, so null is written and the empty struct or array is not; and null in a tagged struct is a 0.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.events import Record
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    member_record,
    parse,
    regex_record,
    target_epoch_record,
    target_record,
)
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
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
    CurrentTopicPartitions,
    TargetTopicPartitions,
)

TOPIC = bytes(range(1, 17))


def member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        client_id="c",
        client_host="h",
        subscribed_topic_names=("t",),
        rebalance_timeout_ms=1000,
        classic_member_metadata=classic,
    )


def current(partition: int, epochs: tuple[int, ...] | None) -> ConsumerGroupCurrentMemberAssignmentValue:
    assigned = CurrentTopicPartitions(topic_id=TOPIC, partitions=(partition,), assignment_epochs=epochs)
    return ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, assigned_partitions=(assigned,))


CLASSIC = ClassicMemberMetadata(
    session_timeout_ms=30000, supported_protocols=(ClassicProtocol(name="range", metadata=b"\x01\x02"),)
)
TARGET = ConsumerGroupTargetAssignmentMemberValue(
    topic_partitions=(TargetTopicPartitions(topic_id=TOPIC, partitions=(0,)),)
)
REGEX = ConsumerGroupRegularExpressionValue(topics=("t",), version=5, timestamp=1000)

KAFKAS: list[tuple[Record, str, str]] = [
    (consumer_group_record("g1", ConsumerGroupMetadataValue(epoch=7)), "000300026731", "00000000000700"),
    (
        consumer_group_record("g1", ConsumerGroupMetadataValue(epoch=7, metadata_hash=0x1122334455667788)),
        "000300026731",
        "0000000000070100081122334455667788",
    ),
    (
        member_record("g1", "m1", member(None)),
        "00050002673100026d31",
        "000000000263026802027400000003e80001000100",
    ),
    (
        member_record("g1", "m1", member(CLASSIC)),
        "00050002673100026d31",
        "000000000263026802027400000003e8000100110100007530020672616e67650301020000",
    ),
    (
        target_epoch_record("g1", ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3)),
        "000600026731",
        "00000000000300",
    ),
    (
        target_record("g1", "m1", TARGET),
        "00070002673100026d31",
        "0000020102030405060708090a0b0c0d0e0f1002000000000000",
    ),
    (
        current_record("g1", "m1", current(0, ())),
        "00080002673100026d31",
        "0000000000010000000000020102030405060708090a0b0c0d0e0f100200000000000100",
    ),
    (
        current_record("g1", "m1", current(0, None)),
        "00080002673100026d31",
        "0000000000010000000000020102030405060708090a0b0c0d0e0f100200000000010001000100",
    ),
    (
        current_record("g1", "m1", current(5, (9,))),
        "00080002673100026d31",
        "0000000000010000000000020102030405060708090a0b0c0d0e0f10020000000501000502000000090100",
    ),
]
BY_HAND: list[tuple[Record, str, str]] = [
    # the key: type, group, expression; the value: version, topics, version of the metadata, timestamp, no tags
    (
        regex_record("g1", "t.*", REGEX),
        "0010 0002 6731 0003 742e2a",
        "0000 02 02 74 0000000000000005 00000000000003e8 00",
    ),
    (
        target_epoch_record(
            "g1", ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=1000)
        ),
        "0006 0002 6731",
        "0000 00000003 01 00 08 00000000000003e8",
    ),
    # a classic member of which nothing is known: the tag is left out
    (
        member_record("g1", "m1", member(ClassicMemberMetadata())),
        "0005 0002 6731 0002 6d31",
        "0000 00 00 02 63 02 68 02 02 74 00 000003e8 00 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS + BY_HAND)
def test_bytes(record: Record, key: str, value: str) -> None:
    assert record == Record(bytes.fromhex(key), bytes.fromhex(value))
    parsed = parse(record)
    assert parsed[1] is not None


def test_a_member_comes_back_with_its_null_and_its_default() -> None:
    for classic in (None, CLASSIC, ClassicMemberMetadata()):
        _, value = parse(member_record("g", "m", member(classic))) or ((), None)
        assert value == member(classic)


TOMBSTONES: list[tuple[Record, Any]] = [
    (consumer_group_record("g", None), ConsumerGroupMetadataKey(group_id="g")),
    (member_record("g", "m", None), ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")),
    (target_epoch_record("g", None), ConsumerGroupTargetAssignmentMetadataKey(group_id="g")),
    (target_record("g", "m", None), ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m")),
    (current_record("g", "m", None), ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")),
    (regex_record("g", "t.*", None), ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*")),
]


@pytest.mark.parametrize(("record", "key"), TOMBSTONES)
def test_tombstones(record: Record, key: Any) -> None:
    assert record.value is None
    assert parse(record) == (key, None)


def test_the_partition_metadata_of_older_brokers_is_read_over() -> None:
    """Type 4, written by Kafka before 4.1: one topic `t` of one partition without racks, and a tombstone."""
    key = bytes.fromhex("0004 0002 6731")
    value = bytes.fromhex("0000 02 0102030405060708090a0b0c0d0e0f10 02 74 00000001 01 00 00")
    hard = HardState()
    for record in (Record(key, value), Record(key, None)):
        assert parse(record) is None
        hard.apply(record)
    assert hard == HardState()


def test_an_unknown_version_and_broken_bytes_are_errors() -> None:
    for record, _, _ in KAFKAS + BY_HAND:
        for version in (-1, 1, 99):
            with pytest.raises(ProtocolError):
                parse(Record(record.key, version.to_bytes(2, "big", signed=True) + record.value[2:]))
        for broken in (Record(record.key[:-1], record.value), Record(record.key, record.value + b"\0")):
            with pytest.raises(ProtocolError):
                parse(broken)
        for length in range(len(record.value)):
            with pytest.raises(ProtocolError):
                parse(Record(record.key, record.value[:length]))


def test_tags_of_a_newer_broker_are_skipped() -> None:
    """A group with its hash and a tag 1 of eight bytes."""
    value = bytes.fromhex("0000 00000007 02 00 08 0000000000000001 01 08 000001830000abcd")
    record = Record(consumer_group_record("g", None).key, value)
    assert parse(record) == (
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=1),
    )


text = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
numbers = st.lists(int32, max_size=3).map(tuple)
topics = st.lists(
    st.builds(
        CurrentTopicPartitions,
        topic_id=st.binary(min_size=16, max_size=16),
        partitions=numbers,
        assignment_epochs=st.none() | numbers,
    ),
    max_size=3,
).map(tuple)


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(
    text,
    text,
    st.builds(
        ConsumerGroupCurrentMemberAssignmentValue,
        member_epoch=int32,
        previous_member_epoch=int32,
        state=st.sampled_from([0, 1, 2, 127]),
        assigned_partitions=topics,
        partitions_pending_revocation=topics,
    ),
)
def test_current_assignments_come_back(
    group: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue
) -> None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id)
    assert parse(current_record(group, member_id, value)) == (key, value)


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(
    text,
    text,
    st.builds(
        ConsumerGroupMemberMetadataValue,
        instance_id=st.none() | text,
        rack_id=st.none() | text,
        client_id=text,
        client_host=text,
        subscribed_topic_names=st.lists(text, max_size=3).map(tuple),
        subscribed_topic_regex=st.none() | text,
        rebalance_timeout_ms=int32,
        server_assignor=st.none() | text,
        classic_member_metadata=st.none()
        | st.builds(
            ClassicMemberMetadata,
            session_timeout_ms=int32,
            supported_protocols=st.lists(
                st.builds(ClassicProtocol, name=text, metadata=st.binary(max_size=200)), max_size=2
            ).map(tuple),
        ),
    ),
)
def test_members_come_back(group: str, member_id: str, value: ConsumerGroupMemberMetadataValue) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id)
    assert parse(member_record(group, member_id, value)) == (key, value)
