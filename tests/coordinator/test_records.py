"""Records of `__consumer_offsets`: bytes that Kafka reads, and bytes that Kafka wrote."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.coordinator.events import Record
from kohort.coordinator.hard_state import HardState
from kohort.coordinator.records import generation_record, group_record, offset_record, parse
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.group_records import (
    GenerationKey,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

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


def joined(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


def test_bytes_of_an_offset() -> None:
    record = offset_record("g", "t", 1, COMMIT)
    assert record.key == joined("0001", "0001 67", "0001 74", "00000001")
    # version 4 is flexible: compact string, tagged fields
    assert record.value == joined("0004", "0000000000000005", "00000003", "02 6d", "00000000000003e8", "00")


def test_bytes_of_an_offset_with_an_expiry() -> None:
    """Only version 1 has one; it has no leader epoch."""
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000, expire_timestamp=2000)
    record = offset_record("g", "t", 1, value)
    assert record.value == joined("0001", "0000000000000005", "0001 6d", "00000000000003e8", "00000000000007d0")


def test_bytes_of_a_group() -> None:
    record = group_record("g", GROUP)
    assert record.key == joined("0002", "0001 67")
    assert record.value == joined(
        *("0004", "09 636f6e73756d6572", "00000007", "06 72616e6765", "04 612d31", "00000000000003e8", "02"),
        *("04 612d31", "02 69", "02 61", "03 2f68", "00000002", "00000001", "02 73", "03 7879", "00", "00"),
    )


def test_bytes_of_a_generation() -> None:
    assert generation_record("g", 7) == Record(joined("7531", "0001 67"), joined("0000", "00000007"))


def test_tombstones() -> None:
    assert parse(offset_record("g", "t", 1, None)) == (OffsetCommitKey(group="g", topic="t", partition=1), None)
    assert parse(group_record("g", None)) == (GroupMetadataKey(group="g"), None)


def test_older_records_of_kafka() -> None:
    """A commit of key type 0 and value version 0; a group of value version 0."""
    commit = Record(
        joined("0000", "0001 67", "0001 74", "00000001"),
        joined("0000", "0000000000000005", "0001 6d", "00000000000003e8"),
    )
    assert parse(commit) == (
        OffsetCommitKey(group="g", topic="t", partition=1),
        OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000),
    )
    group = Record(
        joined("0002", "0001 67"),
        joined("0000", "0008 636f6e73756d6572", "00000007", "ffff", "ffff", "00000000"),
    )
    assert parse(group) == (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(protocol_type="consumer", generation=7, members=()),
    )


@pytest.mark.parametrize("kind", [4, 11, 17, 30000, 0x7FFF, -1])
def test_unknown_types_are_skipped(kind: int) -> None:
    record = Record(kind.to_bytes(2, "big", signed=True) + b"whatever", b"\x00\x63whatever")
    assert parse(record) is None
    hard = HardState()
    hard.apply(record)
    assert hard == HardState()


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_an_unknown_version_is_an_error(version: int) -> None:
    for record in (offset_record("g", "t", 1, COMMIT), group_record("g", GROUP), generation_record("g", 7)):
        with pytest.raises(ProtocolError):
            parse(Record(record.key, version.to_bytes(2, "big", signed=True) + record.value[2:]))


def test_broken_records_are_errors() -> None:
    for record in (offset_record("g", "t", 1, COMMIT), group_record("g", GROUP), generation_record("g", 7)):
        for broken in (Record(record.key[:-1], record.value), Record(record.key, record.value + b"\0")):
            with pytest.raises(ProtocolError):
                parse(broken)
        for length in range(len(record.value)):
            with pytest.raises(ProtocolError):
                parse(Record(record.key, record.value[:length]))
    for key in (b"", b"\0"):
        with pytest.raises(ProtocolError):
            parse(Record(key, None))


text = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
members = st.builds(
    MemberMetadata,
    member_id=text,
    group_instance_id=st.none() | text,
    client_id=text,
    client_host=text,
    rebalance_timeout=int32,
    session_timeout=int32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(
    text,
    st.builds(
        GroupMetadataValue,
        protocol_type=text,
        generation=int32,
        protocol=st.none() | text,
        leader=st.none() | text,
        current_state_timestamp=int64,
        members=st.lists(members, max_size=3).map(tuple),
    ),
)
def test_groups_come_back(group: str, value: GroupMetadataValue) -> None:
    assert parse(group_record(group, value)) == (GroupMetadataKey(group=group), value)


@settings(derandomize=True, database=None, deadline=None, max_examples=100)
@given(text, text, int32, int64, int32, text, int64, st.sampled_from([-1, 0, 12345]))
def test_offsets_come_back(
    group: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, timestamp: int, expiry: int
) -> None:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=epoch if expiry < 0 else -1,
        metadata=metadata,
        commit_timestamp=timestamp,
        expire_timestamp=expiry,
    )
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    assert parse(offset_record(group, topic, partition, value)) == (key, value)


@settings(derandomize=True, database=None, deadline=None, max_examples=50)
@given(text, int32)
def test_generations_come_back(group: str, generation: int) -> None:
    assert parse(generation_record(group, generation)) == (
        GenerationKey(group=group),
        GenerationValue(generation=generation),
    )
