"""Records of `__consumer_offsets`: bytes that Kafka reads, and bytes that Kafka wrote.

The bytes in KAFKAS were printed by Kafka's own generated classes (trunk of August 2026, 4.4.0-SNAPSHOT; published with
the tests of another broker). They pin what the JSON does not say plainly: `"default": null` without quotation marks is
the empty value, so null is written and the empty struct or array is not; and null in a tagged struct is a 0.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.config import Config
from kohort.coordinator.events import Client, GroupRequested, Loaded, Record, RequestId
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import (
    consumer_group_record,
    current_record,
    generation_record,
    group_record,
    member_record,
    offset_record,
    parse,
    regex_record,
    target_epoch_record,
    target_record,
)
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ProtocolError
from kohort.wire.schema import schema_of
from kohort.wire.schemas.delete_groups import DeleteGroupsRequest
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
    GenerationKey,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
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
EXPIRING = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000, expire_timestamp=2000)
REGEX = ConsumerGroupRegularExpressionValue(topics=("t",), version=5, timestamp=1000)
COMMIT = OffsetCommitValue(offset=5, leader_epoch=3, metadata="m", commit_timestamp=1000)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="a-1",
    current_state_timestamp=1000,
    members=(
        MemberMetadata(
            member_id="a-1",
            group_instance_id="i",
            client_id="a",
            client_host="/h",
            rebalance_timeout=2,
            session_timeout=1,
            subscription=b"s",
            assignment=b"xy",
        ),
    ),
)

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
    # version 4 of a commit is flexible: compact string, tagged fields
    (
        offset_record("g", "t", 1, COMMIT),
        "0001 0001 67 0001 74 00000001",
        "0004 0000000000000005 00000003 02 6d 00000000000003e8 00",
    ),
    # a commit with an expiry: only version 1 has one, and it has no leader epoch
    (
        offset_record(
            "g", "t", 1, OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000, expire_timestamp=2000)
        ),
        "0001 0001 67 0001 74 00000001",
        "0001 0000000000000005 0001 6d 00000000000003e8 00000000000007d0",
    ),
    (
        group_record("g", GROUP),
        "0002 0001 67",
        # version 3, as Kafka 4.1 to 4.3 write it: plain strings and lengths, no tagged fields
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 612d31 00000000000003e8 00000001"
        "0003 612d31 0001 69 0001 61 0002 2f68 00000002 00000001 00000001 73 00000002 7879",
    ),
    (generation_record("g", 7), "7531 0001 67", "0000 00000007"),
]


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS + BY_HAND)
def test_bytes(record: Record, key: str, value: str) -> None:
    assert record == Record(bytes.fromhex(key), bytes.fromhex(value))
    _, parsed = parse(record) or (None, None)
    versions = schema_of(type(parsed)).versions
    for version in (-1, versions.last + 1, 99):
        with pytest.raises(ProtocolError):
            parse(Record(record.key, version.to_bytes(2, "big", signed=True) + record.value[2:]))
    for broken in (Record(record.key[:-1], record.value), Record(record.key, record.value + b"\0")):
        with pytest.raises(ProtocolError):
            parse(broken)
    for length in range(len(record.value)):
        with pytest.raises(ProtocolError):
            parse(Record(record.key, record.value[:length]))


@pytest.mark.parametrize("key", [b"", b"\0"])
def test_a_key_without_a_type_is_an_error(key: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(Record(key, None))


def test_a_member_comes_back_with_its_null_and_its_default() -> None:
    for classic in (None, CLASSIC, ClassicMemberMetadata()):
        _, value = parse(member_record("g", "m", member(classic))) or ((), None)
        assert value == member(classic)


TOMBSTONES: list[tuple[Record, Any]] = [
    (offset_record("g", "t", 1, None), OffsetCommitKey(group="g", topic="t", partition=1)),
    (group_record("g", None), GroupMetadataKey(group="g")),
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


def test_tags_of_a_newer_broker_are_skipped() -> None:
    """A group with its hash and a tag 1 of eight bytes."""
    value = bytes.fromhex("0000 00000007 02 00 08 0000000000000001 01 08 000001830000abcd")
    record = Record(consumer_group_record("g", None).key, value)
    assert parse(record) == (
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=1),
    )


def test_older_records_of_kafka() -> None:
    """A commit of key type 0 and value version 0; a group of value version 0."""
    commit = Record(
        bytes.fromhex("0000 0001 67 0001 74 00000001"),
        bytes.fromhex("0000 0000000000000005 0001 6d 00000000000003e8"),
    )
    assert parse(commit) == (
        OffsetCommitKey(group="g", topic="t", partition=1),
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000),
    )
    group = Record(
        bytes.fromhex("0002 0001 67"),
        bytes.fromhex("0000 0008 636f6e73756d6572 00000007 ffff ffff 00000000"),
    )
    assert parse(group) == (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(protocol_type="consumer", generation=7, members=()),
    )


def test_the_group_records_of_older_releases_are_read() -> None:
    """Version 4, which releases of kohort before this one wrote: compact strings, tagged fields."""
    value = (
        "0004 09 636f6e73756d6572 00000007 06 72616e6765 04 612d31 00000000000003e8 02"
        "04 612d31 02 69 02 61 03 2f68 00000002 00000001 02 73 03 7879 00 00"
    )
    record = Record(group_record("g", None).key, bytes.fromhex(value))
    assert parse(record) == (GroupMetadataKey(group="g"), GROUP)


@pytest.mark.parametrize("kind", [4, 9, 17, 30000, 0x7FFF, -1])
def test_unknown_types_are_skipped(kind: int) -> None:
    record = Record(kind.to_bytes(2, "big", signed=True) + b"whatever", b"\x00\x63whatever")
    assert parse(record) is None
    hard = HardState()
    hard.apply(record)
    assert hard == HardState()


BITS = {"int8": 8, "int32": 32, "int64": 64}


def values(wire_type: Any, version: int) -> st.SearchStrategy[Any]:
    """Any values of a type of the schema tables."""
    match wire_type:
        case [element]:
            return st.lists(values(element, version), max_size=3).map(tuple)
        case "string":
            return st.text(max_size=20)
        case "bytes":
            return st.binary(max_size=200)
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case str():
            return st.integers(-(2 ** (BITS[wire_type] - 1)), 2 ** (BITS[wire_type] - 1) - 1)
    fields = {}
    for field in schema_of(wire_type).fields:
        if version in field.versions:
            found = values(field.type, version)
            fields[field.name] = st.none() | found if version in field.nullable else found
    return st.builds(wire_type, **fields)


@pytest.mark.parametrize(
    ("make", "key_class", "value_class", "version"),
    [
        (offset_record, OffsetCommitKey, OffsetCommitValue, 4),
        (offset_record, OffsetCommitKey, OffsetCommitValue, 1),
        (group_record, GroupMetadataKey, GroupMetadataValue, 3),
        (consumer_group_record, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
        (member_record, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
        (target_epoch_record, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
        (target_record, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
        (current_record, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
        (regex_record, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
        (lambda group, value: generation_record(group, value.generation), GenerationKey, GenerationValue, 0),
    ],
)
def test_any_record_comes_back(make: Any, key_class: type, value_class: type, version: int) -> None:
    known = schema_of(key_class).versions

    @settings(derandomize=True, database=None, deadline=None, max_examples=100)
    @given(values(key_class, known.last), values(value_class, version))
    def check(key: Any, value: Any) -> None:
        if version == 1 and value.expire_timestamp < 0:
            value = msgspec.structs.replace(value, expire_timestamp=-1 - value.expire_timestamp)
        assert parse(make(*msgspec.structs.astuple(key), value)) == (key, value)

    check()


def test_a_deleted_group_leaves_its_generation_behind() -> None:
    """Kafka keeps no record of generations beside the group; ours must exist before the group goes."""
    shard = Shard(0, Config())
    value = GroupMetadataValue(protocol_type="consumer", generation=7, current_state_timestamp=0, members=())
    shard.apply(group_record("orders", value), 0)
    shard.step(Loaded(), 0)
    request = DeleteGroupsRequest(groups_names=("orders",))
    effects = shard.step(GroupRequested(RequestId(1), 2, Client("admin", "/h"), request), 1)
    assert effects.records == (generation_record("orders", 7), group_record("orders", None))
