"""The refusals of the codec in both directions, and the cost of invalid input."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from kio_oracle import examples, kio_class, messages, pairs, pairs_in_kio
from time_taken import takes_less

from kohort.wire.codec import (
    APART,
    decode,
    decode_prefix,
    encode,
    encode_request,
    encode_response,
    response_pieces,
    supported_versions,
)
from kohort.wire.decoders import compile_decoder, decoder_source
from kohort.wire.encoders import compile_encoder, encoder_source
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import unsigned_varint
from kohort.wire.schema import Versions
from kohort.wire.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.schemas.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kohort.wire.schemas.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest

ALL = list(pairs())


def fetched(*records: Any) -> FetchResponse:
    """A response with these records, partition by partition."""
    partitions = tuple(PartitionData(partition_index=n, records=data) for n, data in enumerate(records))
    return FetchResponse(responses=(FetchableTopicResponse(partitions=partitions),))


def ids(cases: list[tuple[type, int]]) -> list[str]:
    return [f"{cls.__name__}-v{version}" for cls, version in cases]


SOME_OF_KIO = [pair for index, pair in enumerate(pairs_in_kio()) if index % 4 == 0]


@pytest.mark.parametrize(("cls", "version"), SOME_OF_KIO, ids=ids(SOME_OF_KIO))
def test_every_truncation_is_refused(cls: type, version: int) -> None:
    @examples(3)
    @given(message=messages(cls, kio_class(cls, version), version))
    def check(message: object) -> None:
        whole = encode(message, version)
        cuts = range(len(whole)) if len(whole) < 300 else random.Random(0).sample(range(len(whole)), 100)
        for cut in cuts:
            with pytest.raises(ProtocolError):
                decode(cls, version, whole[:cut])
            with pytest.raises(ProtocolError):
                decode_prefix(cls, version, whole[:cut])
        with pytest.raises(ProtocolError):
            decode(cls, version, whole + b"\0")

    check()


@pytest.mark.parametrize(("cls", "version"), ALL, ids=ids(ALL))
def test_garbage_gives_protocol_errors_only(cls: type, version: int) -> None:
    chance = random.Random(f"{cls.__name__} {version}")
    for size in (0, 1, 3, 20, 200, 2000):
        some = bytes(chance.choice((0, 0, 1, 2, 255)) for _ in range(size))
        for data in (chance.randbytes(size), some, b"\xff" * size, b"\x80" * size, bytes(size)):
            with contextlib.suppress(ProtocolError):
                decode(cls, version, data)


@pytest.mark.parametrize(("cls", "version"), SOME_OF_KIO, ids=ids(SOME_OF_KIO))
def test_damaged_messages_give_protocol_errors_only(cls: type, version: int) -> None:
    chance = random.Random(f"{cls.__name__} {version}")

    @examples(3)
    @given(message=messages(cls, kio_class(cls, version), version))
    def check(message: object) -> None:
        whole = bytearray(encode(message, version)[:2000])
        for _ in range(50):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            with contextlib.suppress(ProtocolError):
                decode(cls, version, bytes(damaged))

    check()


HOSTILE = [
    # 2^31 - 1 topics in a few bytes, compact and not.
    (MetadataRequest, 1, b"\x7f\xff\xff\xff" + b"\0" * 50),
    (MetadataRequest, 9, unsigned_varint(2**31 - 1) + b"\0" * 50),
    (FetchRequest, 12, bytes(21) + unsigned_varint(2**32 - 1) + b"\0" * 50),
    # Partition ids: an array of integers.
    (FindCoordinatorRequest, 4, b"\0" + unsigned_varint(2**28) + b"\0" * 50),
    (OffsetCommitRequest, 2, bytes(16) + b"\x7f\xff\xff\xff"),
    # Tagged fields: a count without the bytes (CVE-2026-111115), a size without the bytes.
    (HeartbeatResponse, 4, bytes(6) + unsigned_varint(2**32 - 1) + b"\0" * 50),
    (HeartbeatResponse, 4, bytes(6) + b"\x01\x05" + unsigned_varint(2**31) + b"\0" * 50),
    (ApiVersionsResponse, 3, b"\0\0\x01\0\0\0\0" + unsigned_varint(2**30) + b"\0" * 50),
    (ApiVersionsResponse, 3, b"\0\0\x01\0\0\0\0\x01\x01" + unsigned_varint(2**30) + b"\0" * 50),
    # Lengths.
    (HeartbeatRequest, 0, b"\x7f\xff" + b"a" * 50),
    (HeartbeatRequest, 4, unsigned_varint(2**32 - 1) + b"a" * 50),
    (HeartbeatRequest, 0, b"\xff\xfe" + b"a" * 50),
    (HeartbeatRequest, 0, b"\xff\xff" + b"a" * 50),
    (HeartbeatRequest, 4, b"\0" + b"a" * 50),
    (MetadataRequest, 1, b"\xff\xff\xff\xfe"),
    (MetadataRequest, 0, b"\xff\xff\xff\xff"),
    # Varints of six bytes, and of more than 32 bits.
    (MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x01" + b"\0" * 50),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x7f" + b"\0" * 50),
    # Strings that are not UTF-8.
    (HeartbeatRequest, 0, b"\0\x02\xc3\x28" + b"\0" * 50),
    (HeartbeatRequest, 4, b"\x02\xff" + b"\0" * 50),
]


@pytest.mark.parametrize(("cls", "version", "data"), HOSTILE)
def test_hostile_input_is_refused_before_anything_is_allocated(cls: type, version: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(cls, version, data)  # compiles
    tracemalloc.start()
    try:
        with takes_less(1, time.thread_time), pytest.raises(ProtocolError):
            decode(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_memory_is_in_proportion_to_the_bytes() -> None:
    # The densest objects that a message can be made of: empty topics of three bytes each.
    count = 100_000
    data = b"\x02g\0\0\0\0\x01\0" + unsigned_varint(count + 1) + b"\x01\x01\0" * count + b"\0"
    tracemalloc.start()
    decoded = decode(OffsetCommitRequest, 8, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(decoded.topics) == count
    assert peak < 40 * len(data)


def test_padded_varints_are_read_as_kafka_reads_them() -> None:
    assert decode(HeartbeatRequest, 4, b"\x82\x80\x00g\0\0\0\x01\x01\0\0") == HeartbeatRequest(
        group_id="g", generation_id=1, member_id=""
    )


@pytest.mark.parametrize("version", [4, 11, 12, 16])
@pytest.mark.parametrize(
    "pieces", [(), (b"",), (b"one",), (b"one", b"", b"two"), (b"a" * 70_000, b"b" * 9, b"c" * 200)]
)
def test_records_in_pieces_are_written_as_one(pieces: tuple[bytes, ...], version: int) -> None:
    whole = b"".join(pieces)
    assert encode(fetched(pieces, pieces), version) == encode(fetched(whole, whole), version)


@pytest.mark.parametrize("version", [4, 12])
def test_large_fields_of_a_response_are_not_copied(version: int) -> None:
    large = [bytes([n]) * size for n, size in enumerate((APART, APART - 1, 300_000))]
    response = fetched(*large)
    pieces = response_pieces(response, version, 7, api_key=1)
    assert b"".join(pieces) == encode_response(response, version, 7, api_key=1)
    assert [len(piece) >= APART for piece in pieces[:4]] == [False, True, True, True]
    assert pieces[1] is large[0]
    assert pieces[3] is large[2]
    assert response_pieces(FetchResponse(), version, 7, api_key=1) == [
        encode_response(FetchResponse(), version, 7, api_key=1)
    ]


@pytest.mark.conformance("W7")
def test_unknown_tagged_fields_are_skipped_and_known_ones_read() -> None:
    partition = PartitionData(partition_index=3, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=5))
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(partition,)),))
    whole = encode(response, 12)
    unknown = b"\x07\x03abc"
    assert whole.endswith(b"\0\0")
    assert decode(FetchResponse, 12, whole[:-1] + b"\x01" + unknown) == response
    assert decode(FetchResponse, 12, whole[:-2] + b"\x02" + unknown + b"\x08\0" + b"\0") == response
    heartbeat = encode(HeartbeatResponse(error_code=16), 4)
    assert decode(HeartbeatResponse, 4, heartbeat[:-1] + b"\x01" + unknown) == HeartbeatResponse(error_code=16)


def test_a_known_tag_must_have_the_size_that_it_says() -> None:
    message = ApiVersionsResponse(finalized_features_epoch=7)
    whole = encode(message, 3)
    assert whole.endswith(b"\x01\x01\x08" + (7).to_bytes(8, "big"))
    with pytest.raises(ProtocolError):
        decode(ApiVersionsResponse, 3, whole[:-9] + b"\x07" + (7).to_bytes(8, "big"))
    with pytest.raises(ProtocolError):
        decode(ApiVersionsResponse, 3, whole[:-9] + b"\x09" + (7).to_bytes(8, "big") + b"\0")


def test_fields_absent_in_a_version_are_left_out_and_take_the_default() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=4, member_id="m", group_instance_id="i")
    assert decode(HeartbeatRequest, 2, encode(message, 2)).group_instance_id is None
    assert decode(HeartbeatRequest, 3, encode(message, 3)) == message


def test_nullable_structs() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=4)):
        message = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(message, 0)) == message


@pytest.mark.parametrize(
    ("message", "version", "told"),
    [
        (HeartbeatRequest(generation_id=2**31), 0, "HeartbeatRequest v0: generation_id is 2147483648"),
        (HeartbeatRequest(generation_id=-(2**31) - 1), 4, "generation_id"),
        (HeartbeatRequest(generation_id=1.5), 4, "generation_id is 1.5"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=None), 4, "group_id is None"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=b"g"), 4, "group_id is b'g', not a string"),  # type: ignore[arg-type]
        (HeartbeatRequest(member_id="x" * 32768), 3, "member_id is a string of 32768 bytes"),
        (HeartbeatRequest(member_id="\ud800"), 3, "member_id"),
        (MetadataRequest(topics=None), 0, "topics is None"),
        (FetchRequest(topics=(FetchTopic(topic="a"), FetchTopic(topic=None))), 5, "topics[1].topic is None"),  # type: ignore[arg-type]
        (FetchRequest(topics=(FetchTopic(topic_id=b"short"),)), 13, "topics[0].topic_id is b'short'"),
        (FetchRequest(topics=7), 13, "topics is 7"),  # type: ignore[arg-type]
        (FetchRequest(topics=(3,)), 13, "topics[0] is 3, not a FetchTopic"),  # type: ignore[arg-type]
        (FetchResponse(node_endpoints=None), 16, "node_endpoints is None"),  # type: ignore[arg-type]
        (fetched("text"), 16, "responses[0].partitions[0].records is 'text', not bytes"),
        (fetched((b"a", "text")), 16, "responses[0].partitions[0].records is (b'a', 'text'), not bytes"),
    ],
)
def test_an_invalid_value_is_a_value_error_that_names_the_field(message: object, version: int, told: str) -> None:
    with pytest.raises(ValueError) as raised:
        encode(message, version)
    assert told in str(raised.value)


def test_versions_outside_of_the_table_are_refused() -> None:
    with pytest.raises(ValueError, match="no version 99"):
        encode(HeartbeatRequest(), 99)
    with pytest.raises(ValueError, match="no version -1"):
        decode(HeartbeatRequest, -1, b"")
    assert supported_versions(HeartbeatRequest) == Versions(0, 4)
    with pytest.raises(ValueError):
        supported_versions(FetchTopic)


def test_whole_requests_and_responses() -> None:
    request = encode_request(HeartbeatRequest(group_id="g"), 4, 7, "me")
    assert request == b"\0\0\0\x16" + b"\0\x0c\0\x04\0\0\0\x07\0\x02me\0" + b"\x02g\0\0\0\0\x01\0\0"
    assert encode_request(HeartbeatRequest(group_id="g"), 0, 7, None).startswith(
        b"\0\0\0\x13\0\x0c\0\0\0\0\0\x07\xff\xff"
    )
    assert encode_response(HeartbeatResponse(), 4, 9, api_key=12) == b"\0\0\0\x0c\0\0\0\x09\0" + bytes(7)
    assert encode_response(HeartbeatResponse(), 0, 9, api_key=12) == b"\0\0\0\x06\0\0\0\x09\0\0"
    # ApiVersions: a plain header in every version.
    assert encode_response(ApiVersionsResponse(), 3, 9, api_key=18) == b"\0\0\0\x0c\0\0\0\x09\0\0\x01\0\0\0\0\0"
    assert encode(ApiVersionsRequest(), 0) == b""


def test_compiling_is_quick_enough_to_be_lazy() -> None:
    cases = [(FetchResponse, version) for version in range(4, 19)]
    # The largest message takes about half a millisecond a function; the bound leaves room for a busy machine.
    with takes_less(0.01 * 2 * len(cases)):
        for cls, version in cases:
            compile_encoder(cls, version)
            compile_decoder(cls, version)


def test_the_generated_source_can_be_read() -> None:
    assert "long_or_null(buf, pos, 'group_id')" in decoder_source(HeartbeatRequest, 4)
    assert "m.group_id.encode()" in encoder_source(HeartbeatRequest, 4)
