"""Tagged fields of our own (docs/wire-extensions.md): others skip them, and unused they take no byte.

test_codec_against_kio.py checks that messages without them are Kafka's, byte for byte.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol import admin, consumer
from kio_oracle import is_own, top_level_schemas

from kohort.wire.codec import decode, encode
from kohort.wire.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from kohort.wire.schemas.fetch import FetchingMember, FetchRequest, FetchResponse
from kohort.wire.schemas.transaction_records import TransactionLogValue

MEMBER = FetchingMember(group_id="orders", member_id="m-1", member_epoch=7)
FETCH: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "topics": (), "rack_id": "r"}
GROUP: dict[str, Any] = dict.fromkeys(("group_state", "protocol_type", "protocol_data"), "")
GROUP |= {"group_id": "g", "error_code": 0, "members": ()}
TRANSACTION: dict[str, Any] = dict.fromkeys(
    ("error_code", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch"), 0
)
TRANSACTION |= {"transactional_id": "x", "transaction_state": "Empty", "topics": ()}
EXTENDED = (
    (FetchRequest(**FETCH, as_member=MEMBER), FetchRequest(**FETCH), range(12, 19)),
    (FetchResponse(responses=(), fenced=True), FetchResponse(responses=()), range(12, 19)),
    (DescribeGroupsRequest(groups=("g",), explain_last=3), DescribeGroupsRequest(groups=("g",)), range(5, 7)),
    (
        DescribeGroupsResponse(groups=(DescribedGroup(**GROUP, explanation=b"{}", stories=(b"{}",)),)),
        DescribeGroupsResponse(groups=(DescribedGroup(**GROUP),)),
        range(5, 7),
    ),
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
)
CASES = [(ours, plain, version) for ours, plain, versions in EXTENDED for version in versions]


@pytest.mark.parametrize(
    ("ours", "plain", "version"), CASES, ids=[f"{type(ours).__name__}-v{version}" for ours, _, version in CASES]
)
def test_others_skip_our_fields(ours: Any, plain: Any, version: int) -> None:
    """kafka-python reads by Kafka's own definitions. It keeps what it does not know aside, undecoded."""
    data = encode(ours, version)
    assert decode(type(ours), version, data) == ours
    theirs: Any = getattr(consumer.fetch, type(ours).__name__, None) or getattr(admin, type(ours).__name__)
    found, expected = (theirs.decode(one, version=version) for one in (data, encode(plain, version)))
    assert _without_unknown(found) > 0
    assert repr(found) == repr(expected)


def _without_unknown(found: Any) -> int:
    """Forget the unknown tagged fields of a message and its groups. Returns how many there were."""
    places = [found, *(getattr(found, "groups", None) or ()), *(getattr(found, "transaction_states", None) or ())]
    places = [place for place in places if not isinstance(place, str)]
    count = sum(len(place.unknown_tags or ()) for place in places)
    for place in places:
        place.unknown_tags = None
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
