"""Frames out of streams cut in any way, and headers of requests known and unknown."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest

from kohort.wire.codec import decode_prefix, encode, encode_request, encode_response
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import (
    BadLength,
    FrameSplitter,
    RequestHeaderView,
    body_offset,
    read_request_header,
    read_response_header,
    read_unsigned_varint,
    skip_tagged_fields,
    unsigned_varint,
)
from kohort.wire.schemas.headers import RequestHeader, ResponseHeader
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse

FRAMES = [b"a", b"frame" * 100, bytes(70_000), b"end"]
STREAM = b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)


def feed(splitter: FrameSplitter, pieces: list[bytes]) -> list[bytes]:
    return [frame for piece in pieces for frame in splitter.feed(piece)]


@pytest.mark.parametrize("size", [1, len(STREAM)])
def test_pieces_of_one_size(size: int) -> None:
    splitter = FrameSplitter(100_000)
    assert feed(splitter, [STREAM[i : i + size] for i in range(0, len(STREAM), size)]) == FRAMES
    assert splitter.pending == 0


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0", b"\0\0\0\x09", b"\0\0\0\x09tail"])
def test_with_a_tail(tail: bytes) -> None:
    splitter = FrameSplitter(100_000)
    assert splitter.feed(STREAM + tail) == FRAMES
    assert splitter.pending == len(tail)
    rest = b"\0\0\0\x09tail-tail"[len(tail) :]
    assert splitter.feed(rest) == [b"tail-tail"]


@pytest.mark.parametrize("seed", range(20))
def test_cut_anywhere(seed: int) -> None:
    chance = random.Random(seed)
    splitter = FrameSplitter(100_000)
    pieces = []
    position = 0
    while position < len(STREAM):
        size = chance.choice((1, 2, 3, 4, 5, 100, 50_000))
        pieces.append(STREAM[position : position + size])
        position += size
    assert feed(splitter, pieces) == FRAMES


@pytest.mark.parametrize("length", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_impossible_lengths_are_refused_at_once(length: int) -> None:
    prefix = length.to_bytes(4, "big", signed=True)
    for pieces in ([prefix], [prefix[:2], prefix[2:]], [b"\0\0\0\x01a" + prefix]):
        splitter = FrameSplitter(1000)
        with pytest.raises(BadLength, match="1000") as raised:
            feed(splitter, pieces)
        assert raised.value.frames == ([b"a"] if len(pieces[0]) > 4 else [])


def test_a_large_frame_in_pieces_is_not_copied_again_and_again() -> None:
    size = 4_000_000
    splitter = FrameSplitter(size)
    stream = size.to_bytes(4, "big") + bytes(size)
    tracemalloc.start()
    frames = feed(splitter, [stream[i : i + 65536] for i in range(0, len(stream), 65536)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frames == [bytes(size)]
    assert peak < 5 * size


@pytest.mark.parametrize("client_id", [None, "", "client", "é" * 200])
@pytest.mark.parametrize("version", [3, 4])
def test_request_headers(client_id: str | None, version: int) -> None:
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = encode_request(body, version, -5, client_id)[4:]
    header_version = version - 2
    assert read_request_header(frame) == RequestHeaderView(12, version, -5, client_id)
    header = RequestHeader(request_api_key=12, request_api_version=version, correlation_id=-5, client_id=client_id)
    assert frame.startswith(encode(header, header_version))
    assert body_offset(frame, version == 4) == len(encode(header, header_version))
    assert decode_prefix(RequestHeader, header_version, frame)[0] == header


def test_the_header_of_an_unknown_api_is_readable() -> None:
    frame = b"\x7f\xff\x01\x00\0\0\0\x2a\0\x01x" + b"whatever follows"
    assert read_request_header(frame) == RequestHeaderView(32767, 256, 42, "x")


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    frame = b"\0\x0c\0\x04\0\0\0\x01\0\x01x" + b"\x02\0\x03abc\x05\0" + b"body"
    assert frame[body_offset(frame, True) :] == b"body"


def test_response_headers() -> None:
    flexible = encode_response(HeartbeatResponse(), 4, 77, api_key=12)[4:]
    assert read_response_header(flexible, flexible=True, api_key=12) == (77, 5)
    assert decode_prefix(ResponseHeader, 1, flexible) == (ResponseHeader(correlation_id=77), 5)
    plain = encode_response(HeartbeatResponse(), 3, 77, api_key=12)[4:]
    assert read_response_header(plain, flexible=False, api_key=12) == (77, 4)
    assert read_response_header(b"\0\0\0\x01\0\0", flexible=True, api_key=18) == (1, 4)
    with pytest.raises(ProtocolError):
        read_response_header(b"\0\0\0", flexible=False, api_key=12)
    with pytest.raises(ProtocolError):
        read_response_header(b"\0\0\0\x01", flexible=True, api_key=12)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x0c\0\x04\0\0\0\x01\0",
        b"\0\x0c\0\x04\0\0\0\x01\0\x05abcd",
        b"\0\x0c\0\x04\0\0\0\x01\xff\xfeabcd",
        b"\0\x0c\0\x04\0\0\0\x01\0\x02\xc3\x28\0",
    ],
)
def test_damaged_request_headers(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame)


def test_garbage_gives_protocol_errors_only() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        frame = chance.randbytes(chance.randrange(30))
        for flexible in (True, False):
            with contextlib.suppress(ProtocolError):
                assert body_offset(frame, flexible) <= len(frame)
        for read in (read_request_header, FrameSplitter(1000).feed):
            with contextlib.suppress(ProtocolError):
                read(frame)
        with contextlib.suppress(ProtocolError):
            read_response_header(frame, flexible=True, api_key=12)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14 - 1, 2**14, 2**21, 2**28, 2**32 - 1])
def test_varints(value: int) -> None:
    data = unsigned_varint(value)
    assert len(data) <= 5
    assert read_unsigned_varint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    with pytest.raises(ProtocolError):
        read_unsigned_varint(data[:-1], 0)


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\x01", b"\xff" * 4 + b"\x10", b"\xff" * 10])
def test_overlong_varints(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_unsigned_varint(data, 0)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\0", b"\x01\0\x05abc", unsigned_varint(2**32 - 1) + bytes(50)])
def test_damaged_tagged_fields(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        skip_tagged_fields(data, 0)
