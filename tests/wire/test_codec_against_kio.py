"""Every message and version, both directions, byte for byte against kio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import examples, from_kio, kio_class, kio_decode, kio_encode, messages, pairs, pairs_in_kio, to_kio

from kohort.wire.codec import decode, decode_prefix, encode, is_flexible
from kohort.wire.errors import ErrorCode

PAIRS = pairs_in_kio()
KNOWN_ONLY_TO_US = {
    "wire.schemas.transaction_records",
    "wire.schemas.group_records",
    "wire.schemas.share_group_records",
    "wire.schemas.share_state_records",
    "wire.schemas.metadata_records",
    "wire.schemas.assignor_user_data",
}
NEWER_THAN_KIO = {"TxnOffsetCommitRequest v6", "TxnOffsetCommitResponse v6"}
"""Of Apache Kafka's trunk (KIP-1319); test_txn_offset_commit.py has their bytes."""


def test_kio_knows_every_request_and_response() -> None:
    missing = {
        f"{cls.__name__} v{version}"
        for cls, version in pairs()
        if kio_class(cls, version) is None and cls.__module__.removeprefix("kohort.") not in KNOWN_ONLY_TO_US
    }
    assert missing == NEWER_THAN_KIO


@pytest.mark.conformance("W7", "W9")
@pytest.mark.parametrize(("cls", "version"), PAIRS, ids=[f"{cls.__name__}-v{version}" for cls, version in PAIRS])
def test_same_bytes_and_same_values(cls: type, version: int) -> None:
    kio = kio_class(cls, version)
    assert kio.__flexible__ == is_flexible(cls, version)

    @examples(10)
    @given(message=messages(cls, kio, version), tail=st.binary(min_size=1, max_size=5))
    def check(message: object, tail: bytes) -> None:
        ours = encode(message, version)
        theirs = kio_encode(to_kio(message, kio, version))
        assert ours == theirs
        decoded = decode(cls, version, theirs)
        assert decoded == message
        assert from_kio(kio_decode(kio, ours), cls, version) == message
        assert decode_prefix(cls, version, memoryview(tail + ours + tail), len(tail)) == (message, len(tail + ours))

    check()


def test_error_codes_and_retriability() -> None:
    theirs = {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}
    ours = {code.name: (int(code), code.retriable) for code in ErrorCode}
    assert ours == theirs
    assert all(code.message for code in ErrorCode)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
