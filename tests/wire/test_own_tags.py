"""Tagged fields of our own (docs/wire-extensions.md): others skip them, and unused they take no byte.

test_codec_against_kio.py checks that messages without them are Kafka's, byte for byte.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol import admin, consumer
from kio_oracle import is_own, top_level_schemas

from kohort.wire.codec import decode, encode
from kohort.wire.schema import OWN_TAGS
from kohort.wire.schemas.alter_share_group_offsets import (
    AlteredOffset,
    AlteredOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    NewOffset,
    NewOffsetsTopic,
    OffsetRange,
)
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_share_group_offsets import (
    DescribedOffset,
    DescribedOffsetsGroup,
    DescribedOffsetsTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kohort.wire.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kohort.wire.schemas.fetch import FetchingMember, FetchRequest, FetchResponse
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.wire.schemas.transaction_records import TransactionLogValue

MEMBER = FetchingMember(group_id="orders", member_id="m-1", member_epoch=7)
FETCH: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "topics": (), "rack_id": "r"}
GROUP: dict[str, Any] = dict.fromkeys(("group_state", "protocol_type", "protocol_data"), "")
GROUP |= {"group_id": "g", "error_code": 0, "members": ()}
TRANSACTION: dict[str, Any] = dict.fromkeys(
    ("error_code", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch"), 0
)
TRANSACTION |= {"transactional_id": "x", "transaction_state": "Empty", "topics": ()}
LAG = {"end_offset": 9, "lag_ms": 1_500, "burrow_status": 4, "last_stable_offset": 8}


def offsets_by_group(lag: dict[str, int], **of_group: int) -> OffsetFetchResponse:
    row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, **lag)
    topic = OffsetFetchResponseTopics(name="t", topic_id=b"0123456789abcdef", partitions=(row,))
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,), **of_group),))


def offsets_of_a_group(lag: dict[str, int], **fields: int) -> OffsetFetchResponse:
    row = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, **lag)
    return OffsetFetchResponse(topics=(OffsetFetchResponseTopic(name="t", partitions=(row,)),), **fields)


def shared(**fields: bytes) -> DescribeShareGroupOffsetsResponse:
    row = DescribedOffset(partition_index=0, start_offset=7, leader_epoch=3, **fields)
    topic = DescribedOffsetsTopic(topic_name="t", topic_id=b"0123456789abcdef", partitions=(row,))
    return DescribeShareGroupOffsetsResponse(groups=(DescribedOffsetsGroup(group_id="g", topics=(topic,)),))


def altering(*ranges: OffsetRange) -> AlterShareGroupOffsetsRequest:
    partition = NewOffset(partition_index=0, start_offset=7, redeliver=ranges)
    topic = NewOffsetsTopic(topic_name="t", partitions=(partition,))
    return AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))


def altered(**fields: int) -> AlterShareGroupOffsetsResponse:
    row = AlteredOffset(partition_index=0, **fields)
    topic = AlteredOffsetsTopic(topic_name="t", topic_id=b"0123456789abcdef", partitions=(row,))
    return AlterShareGroupOffsetsResponse(responses=(topic,))


EXTENDED = (
    (FetchRequest(**FETCH, as_member=MEMBER), FetchRequest(**FETCH), range(12, 19)),
    (FetchResponse(responses=(), fenced=True), FetchResponse(responses=()), range(12, 19)),
    (DescribeGroupsRequest(groups=("g",), explain_last=3), DescribeGroupsRequest(groups=("g",)), range(5, 7)),
    (
        DescribeGroupsResponse(groups=(DescribedGroup(**GROUP, explanation=b"{}", stories=(b"{}",)),)),
        DescribeGroupsResponse(groups=(DescribedGroup(**GROUP),)),
        range(5, 7),
    ),
    (OffsetFetchRequest(group_id="g", with_lag=True), OffsetFetchRequest(group_id="g"), range(6, 8)),
    (
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),), with_lag=True),
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),)),
        range(8, 11),
    ),
    (offsets_of_a_group(LAG, as_of_ms=1_760_000_000_000), offsets_of_a_group({}), range(6, 8)),
    (offsets_by_group(LAG, as_of_ms=1_760_000_000_000), offsets_by_group({}), range(8, 11)),
    (
        DescribeTransactionsRequest(transactional_ids=("x",), aborts_last=3),
        DescribeTransactionsRequest(transactional_ids=("x",)),
        range(1),
    ),
    (
        DescribeTransactionsResponse(transaction_states=(TransactionState(**TRANSACTION, aborts=(b"{}",)),)),
        DescribeTransactionsResponse(transaction_states=(TransactionState(**TRANSACTION),)),
        range(1),
    ),
    (
        DescribeShareGroupOffsetsRequest(groups=(), records_most=5),
        DescribeShareGroupOffsetsRequest(groups=()),
        range(2),
    ),
    (shared(records=b"{}"), shared(), range(2)),
    (altering(OffsetRange(first_offset=1, last_offset=2)), altering(), range(1)),
    (altered(redelivered=4), altered(), range(1)),
)
CASES = [(ours, plain, version) for ours, plain, versions in EXTENDED for version in versions]


@pytest.mark.parametrize(
    ("ours", "plain", "version"), CASES, ids=[f"{type(ours).__name__}-v{version}" for ours, _, version in CASES]
)
def test_others_skip_our_fields(ours: Any, plain: Any, version: int) -> None:
    """kafka-python reads by Kafka's own definitions. It keeps what it does not know aside, undecoded."""
    data = encode(ours, version)
    assert encode(decode(type(ours), version, data), version) == data
    name = type(ours).__name__
    known = (getattr(part, name) for part in (consumer.fetch, consumer.group, admin) if hasattr(part, name))
    theirs: Any = next(known, None)
    if theirs is None:  # it has no APIs of share groups
        assert _without_tag(data, encode(plain, version)) == encode(plain, version)
        return
    found, expected = (theirs.decode(one, version=version) for one in (data, encode(plain, version)))
    assert _without_unknown(found) > 0
    assert repr(found) == repr(expected)


def _without_tag(data: bytes, plain: bytes) -> bytes:
    """The message without its one tagged field, which begins where it differs from a message without any."""
    at = next(index for index, (ours, theirs) in enumerate(zip(data, plain, strict=False)) if ours != theirs)
    assert (data[at], plain[at]) == (1, 0), "the number of tagged fields"
    tag, at_size = _varint(data, at + 1)
    size, at_value = _varint(data, at_size)
    assert tag > OWN_TAGS
    return data[:at] + b"\0" + data[at_value + size :]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and where the bytes behind it begin."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _without_unknown(found: Any) -> int:
    """Forget the unknown tagged fields of a message and of what is in it. Returns how many there were."""
    count = len(found.unknown_tags or ())
    found.unknown_tags = None
    for name in ("groups", "transaction_states", "topics", "partitions", "responses"):
        inner = getattr(found, name, None) or ()
        count += sum(_without_unknown(one) for one in inner if hasattr(one, "unknown_tags"))
    return count


def test_every_field_of_our_own_is_among_the_cases() -> None:
    extended = {known.name for known in top_level_schemas() if any(map(is_own, known.fields))}
    assert extended <= {type(ours).__name__ for ours, _, _ in CASES} | {TransactionLogValue.__name__}


def test_kafka_skips_the_field_of_a_transactions_record() -> None:
    """Kafka's loader reads the record as kio does, and skips tags that it does not know."""
    fields = {"producer_id": 7, "producer_epoch": 3, "transaction_timeout_ms": 60_000, "transaction_status": 4}
    fields |= {"transaction_last_update_timestamp_ms": 9, "transaction_start_timestamp_ms": 8}
    plain = TransactionLogValue(**fields, transaction_partitions=())
    ours = TransactionLogValue(**fields, transaction_partitions=(), last_producer_epoch=2)
    data = encode(ours, 1)
    assert decode(TransactionLogValue, 1, data) == ours
    assert data == encode(plain, 1)[:-1] + b"\x01" + b"\xb1\xea\x01" + b"\x02" + b"\x00\x02"


def test_versions_without_tagged_fields_leave_it_out() -> None:
    assert encode(FetchRequest(**FETCH, as_member=MEMBER), 11) == encode(FetchRequest(**FETCH), 11)


def test_the_bytes_that_the_documentation_shows() -> None:
    """One tagged field, 30003, of 16 bytes: compact strings, the epoch, no tagged fields of its own."""
    field = b"\x01" + b"\xb3\xea\x01" + b"\x10" + b"\x07orders" + b"\x04m-1" + b"\0\0\0\x07" + b"\0"
    assert encode(FetchRequest(**FETCH, as_member=MEMBER), 12).endswith(b"\x02r" + field)
    assert encode(FetchResponse(responses=(), fenced=True), 12).endswith(b"\x01" + b"\xb3\xea\x01" + b"\x01" + b"\x01")
