"""The four compressions: data of other implementations is read, and no data expands beyond its limit."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
from collections.abc import Generator
from itertools import accumulate

import cramjam
import pytest
from aiokafka import codec as theirs

from kohort.wire.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    ExpansionLimit,
    compress,
    compress_in_steps,
    decompress,
    decompress_in_steps,
)
from kohort.wire.errors import ProtocolError

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
REAL = [GZIP, SNAPPY, LZ4, ZSTD]
SAMPLES = [b"", b"a", b"hello " * 1000, random.Random(1).randbytes(200_000), bytes(3_000_000)]
ENCODE = {GZIP: theirs.gzip_encode, SNAPPY: theirs.snappy_encode, LZ4: theirs.lz4_encode, ZSTD: theirs.zstd_encode}
DECODE = {GZIP: theirs.gzip_decode, SNAPPY: theirs.snappy_decode, LZ4: theirs.lz4_decode, ZSTD: theirs.zstd_decode}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("index", range(len(SAMPLES)))
def test_round_trip(codec: int, index: int) -> None:
    data = SAMPLES[index]
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("index", range(1, len(SAMPLES)))
def test_both_ways_with_another_client(codec: int, index: int) -> None:
    data = SAMPLES[index]
    assert decompress(codec, ENCODE[codec](data)) == data
    assert DECODE[codec](compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    for data in SAMPLES[1:]:
        packed = compress(codec, data)
        assert decompress(codec, packed, len(data)) == data
        with pytest.raises(ExpansionLimit):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(200_000_000))
    tracemalloc.start()
    with pytest.raises(ExpansionLimit):
        decompress(codec, bomb, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize("codec", REAL)
def test_truncations_are_refused(codec: int) -> None:
    packed = compress(codec, b"some text, some more text, some text " * 100)
    # An xerial stream has no end mark: cut after its header, it is a whole stream of no blocks.
    borders = {16} if codec == SNAPPY else set()
    for cut in set(range(len(packed))) - borders:
        with pytest.raises(ProtocolError):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", [*CODECS, 5, 7])
def test_garbage_gives_protocol_errors_only(codec: int) -> None:
    chance = random.Random(codec)
    packed = compress(codec, b"some text, some more text, some text " * 100) if codec <= 4 else b""
    for _ in range(500):
        with contextlib.suppress(ProtocolError):
            decompress(codec, chance.randbytes(chance.randrange(100)), 1_000_000)
        damaged = bytearray(packed)
        for _ in range(3):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with contextlib.suppress(ProtocolError):
            decompress(codec, bytes(damaged), 1_000_000)


def test_zstd_without_content_size_as_streaming_clients_write_it() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(b"b" * 300_000)
    packed = bytes(stream.flush())
    stream.compress(b"c" * 100)
    packed += bytes(stream.finish())
    assert decompress(ZSTD, packed) == b"b" * 300_000 + b"c" * 100


def test_lz4_blocks_are_independent_when_written_and_may_be_linked_when_read() -> None:
    data = b"text " * 100_000
    assert compress(LZ4, data)[4] & 0x20
    linked = bytes(cramjam.lz4.compress(data))
    assert not linked[4] & 0x20
    assert decompress(LZ4, linked) == data


def test_raw_snappy_is_read_and_xerial_is_written() -> None:
    data = b"text " * 100_000
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    packed = compress(SNAPPY, data)
    assert packed.startswith(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    assert decompress(SNAPPY, packed + packed) == data + data


def test_a_snappy_size_that_the_data_cannot_reach_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ProtocolError, match="cannot expand"):
        decompress(SNAPPY, b"\x80\x80\x80\x08aaaa", 100_000_000)


def test_gzip_members_in_a_row() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(GZIP, packed, 6) == b"onetwo"
    with pytest.raises(ExpansionLimit):
        decompress(GZIP, packed, 5)
    with pytest.raises(ProtocolError):
        decompress(GZIP, packed + b"\0\0")


def test_unknown_codecs() -> None:
    with pytest.raises(ValueError):
        compress(5, b"")
    with pytest.raises(ProtocolError):
        decompress(5, b"")


def in_steps(steps: Generator[int, None, bytes]) -> tuple[bytes, list[int]]:
    """What the steps make, and by how many bytes each takes more."""
    sizes = []
    while True:
        try:
            sizes.append(next(steps))
        except StopIteration as done:
            return done.value, sizes


@pytest.mark.parametrize("codec", CODECS)
def test_steps_make_the_same(codec: int) -> None:
    for data in [*SAMPLES, random.Random(2).randbytes(1_000) * 5_000]:
        packed, _ = in_steps(compress_in_steps(codec, data))
        assert decompress(codec, packed, len(data)) == data
        assert in_steps(decompress_in_steps(codec, packed, len(data)))[0] == data
        if codec != NONE and data:
            assert DECODE[codec](packed) == data, "other clients read it, too"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_a_step_expands_a_megabyte(codec: int) -> None:
    _, sizes = in_steps(decompress_in_steps(codec, compress(codec, bytes(9_000_000)), 10_000_000))
    *pieces, joined, _ = sizes
    assert len(pieces) >= 8
    assert max(pieces) <= 1_100_000
    assert joined == 9_000_000


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_steps_tell_what_they_take(codec: int) -> None:
    """Also the buffers that are freed before the end. A megabyte of it may be told late."""
    data = random.Random(3).randbytes(1_000_000) * 9
    for begun in (
        lambda: compress_in_steps(codec, data),
        lambda packed=compress(codec, data): decompress_in_steps(codec, packed, 10_000_000),
    ):
        tracemalloc.start()
        made, sizes = in_steps(begun())
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken <= max(accumulate(sizes)) + 1_100_000
        assert len(made) - 1_100_000 <= sum(sizes) <= len(made)


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_a_larger_buffer_is_a_step(codec: int) -> None:
    """These have no parts. What is made is copied in a step of its own."""
    _, sizes = in_steps(decompress_in_steps(codec, compress(codec, bytes(9_000_000)), 10_000_000))
    *attempts, copied, freed = sizes
    assert len(attempts) >= 3
    assert copied == sum(sizes) == 9_000_000
    assert 9_000_000 <= -freed <= 10_000_000


def test_blocks_of_snappy_may_be_small() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"x"))
    data = compress(SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 10_000
    expanded, sizes = in_steps(decompress_in_steps(SNAPPY, data, 20_000))
    assert expanded == b"x" * 10_000
    *pieces, joined, _ = sizes
    assert max(pieces) < 1_000
    assert joined == 10_000


def test_members_of_gzip_are_limited() -> None:
    member = gzip.compress(b"x")
    assert decompress(GZIP, member * 100) == b"x" * 100
    with pytest.raises(ProtocolError, match="members"):
        decompress(GZIP, member * 101)
