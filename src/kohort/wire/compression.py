"""The four compressions of record batches, with bounded output.

A few hundred bytes can expand into gigabytes, so the caller's limit bounds every expansion: gzip is inflated piece by
piece, snappy states its size first, and lz4 and zstd write into a buffer that grows up to the limit as needed.

The writers use formats that every client reads: gzip, snappy in xerial framing, lz4 frames of independent blocks
(Kafka's Java client refuses linked ones, KIP-57), zstd frames. The readers also accept raw snappy, linked lz4 blocks,
zstd without a content size, and several frames or members in a row.

A batch of 16 MB takes from five milliseconds (lz4) to fifty (gzip) to expand, and up to three hundred to compress.
`decompress_in_steps` and `compress_in_steps` yield between pieces, so that other work can be done there. Each step
yields by how many bytes they take more, buffers included; a negative number if they take less.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from struct import Struct, error
from typing import TypeVar

import cramjam

from kohort.wire.errors import ProtocolError

_T = TypeVar("_T")

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
"""The limit of one batch, if the caller sets none."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + Struct(">ii").pack(1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
_BLOCK_SIZE = Struct(">i")

_SNAPPY_MAX_RATIO = 22
"""A snappy copy of 64 bytes takes three."""

_FIRST_BUFFER = 64 * 1024
_EXPANDED_PIECE = 1024 * 1024
_COMPRESSED_PIECE = 128 * 1024
"""Bytes that a step makes, and bytes that a step compresses: some two milliseconds."""
_STEP_BLOCKS = 512
"""Blocks of snappy that a step expands. In Kafka's batches each has 32 kB, but it may have a byte."""
_MOST_MEMBERS = 100
"""Members of gzip. Producers write one; for each member, the rest of the data is copied."""


class CorruptCompression(ProtocolError):
    """Compressed data that cannot be expanded."""


class ExpansionLimit(ProtocolError):
    """Compressed data that expands beyond the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"compressed data expands to more than {max_bytes} bytes")
        self.max_bytes = max_bytes


def compress(codec: int, data: bytes) -> bytes:
    """Compress with the codec of a batch's attributes (0 to 4)."""
    if codec == NONE:
        return data
    if codec == GZIP:
        compressor = zlib.compressobj(wbits=31)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _compress_xerial(data)
    if codec == LZ4:
        frame = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3))
    raise ValueError(f"there is no compression {codec}")


def compress_in_steps(codec: int, data: bytes) -> Generator[int, None, bytes]:
    """Like `compress`. Yields by how many bytes a step takes more."""
    if codec == NONE or len(data) <= _COMPRESSED_PIECE:
        return compress(codec, data)
    parts = (data[start : start + _COMPRESSED_PIECE] for start in range(0, len(data), _COMPRESSED_PIECE))
    if codec in (LZ4, ZSTD):
        frame = (
            cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            if codec == LZ4
            else cramjam.zstd.Compressor(level=3)
        )
        for part in parts:
            yield frame.compress(part)  # the bytes of the part: what it has made of them is not told
        yield len(data)
        compressed = bytes(frame.finish())
        yield len(compressed) - 2 * len(data)
        return compressed
    pieces = [_XERIAL_HEADER] if codec == SNAPPY else []
    member = zlib.compressobj(wbits=31)
    for part in parts:
        pieces.append(_compress_xerial(part)[len(_XERIAL_HEADER) :] if codec == SNAPPY else member.compress(part))
        yield len(pieces[-1])
    if codec == GZIP:
        pieces.append(member.flush())
    return (yield from _join_in_steps(pieces))


def _join_in_steps(pieces: list[bytes]) -> Generator[int, None, bytes]:
    """Empties the list, whose pieces have been told."""
    if len(pieces) == 1:
        return pieces.pop()
    made = sum(map(len, pieces))
    yield made
    joined = b"".join(pieces)
    pieces.clear()
    yield -made
    return joined


def decompress(codec: int, data: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Expand into at most `max_bytes`. ProtocolError if the data is damaged or larger."""
    expanded = expand(codec, data, max_bytes)
    return expanded if isinstance(expanded, bytes) else bytes(expanded)


def decompress_in_steps(codec: int, data: bytes, max_bytes: int) -> Generator[int, None, bytes]:
    """Like `decompress`. Yields by how many bytes a step takes more. gzip and xerial snappy take many steps. lz4 and
    zstd have no parts: each attempt with a larger buffer is a step, and the copy of what was made is one."""
    if codec == GZIP:
        return (yield from _inflate_in_steps(data, max_bytes))
    if codec == SNAPPY and data.startswith(_XERIAL_MAGIC):
        return (yield from _decompress_xerial_in_steps(data, max_bytes))
    if codec in (LZ4, ZSTD):
        buffer, written = yield from _decompress_frames_in_steps(codec, data, max_bytes)
        yield written
        made = bytes(memoryview(buffer)[:written])
        taken = len(buffer)
        del buffer
        yield -taken
        return made
    expanded = decompress(codec, data, max_bytes)
    yield len(expanded)
    return expanded


def expand(codec: int, data: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes | memoryview:
    """Like `decompress`, but returns a read-only view without a last copy."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise ExpansionLimit(max_bytes)
        return data
    if codec == GZIP:
        return _at_once(_inflate_in_steps(data, max_bytes))
    if codec == SNAPPY:
        if data.startswith(_XERIAL_MAGIC):
            return _at_once(_decompress_xerial_in_steps(data, max_bytes))
        return _decompress_snappy(data, max_bytes)
    if codec in (LZ4, ZSTD):
        buffer, written = _at_once(_decompress_frames_in_steps(codec, data, max_bytes))
        return memoryview(buffer)[:written].toreadonly()
    raise CorruptCompression(f"there is no compression {codec}")


def _at_once(steps: Generator[int, None, _T]) -> _T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: _T = done.value
            return made


def _inflate_in_steps(data: bytes, max_bytes: int) -> Generator[int, None, bytes]:
    pieces = []
    room = max_bytes
    members = 1
    member = zlib.decompressobj(wbits=31)
    try:
        while data or not member.eof:
            # One byte more than allowed distinguishes data that fits exactly from larger data.
            most = min(room + 1, _EXPANDED_PIECE)
            piece = member.decompress(data, most)
            room -= len(piece)
            if room < 0:
                raise ExpansionLimit(max_bytes)
            if piece:
                pieces.append(piece)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data
                if data:
                    members += 1
                    if members > _MOST_MEMBERS:
                        raise CorruptCompression(f"gzip: more than {_MOST_MEMBERS} members")
                    member = zlib.decompressobj(wbits=31)
            elif not data and len(piece) < most:
                raise CorruptCompression("gzip: cut short")
            yield len(piece)
    except zlib.error as failure:
        raise CorruptCompression(f"gzip: {failure}") from None
    return (yield from _join_in_steps(pieces))


def _decompress_snappy(data: bytes, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise ExpansionLimit(max_bytes)
        # The stated size is unverified. A size that the data cannot reach is refused before any allocation.
        if size > len(data) * _SNAPPY_MAX_RATIO:
            raise CorruptCompression(f"snappy: {len(data)} bytes cannot expand to {size}")
        if not data:
            raise CorruptCompression("snappy: empty")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as failure:
        raise CorruptCompression(f"snappy: {failure}") from None


def _compress_xerial(data: bytes) -> bytes:
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        pieces += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(pieces)


def _decompress_xerial_in_steps(data: bytes, max_bytes: int) -> Generator[int, None, bytes]:
    pieces: list[bytes] = []
    step = 0
    room = max_bytes
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise CorruptCompression("snappy: cut short")
    while position < len(data):
        try:
            (size,) = _BLOCK_SIZE.unpack_from(data, position)
        except error:
            raise CorruptCompression("snappy: cut short") from None
        if data.startswith(_XERIAL_MAGIC, position):
            # Streams may be concatenated; the header of the next one stands where a block would.
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if size < 0 or position + size > len(data):
            raise CorruptCompression(f"snappy: block of {size} bytes with {len(data) - position} left")
        try:
            piece = _decompress_snappy(data[position : position + size], room)
        except ExpansionLimit:
            raise ExpansionLimit(max_bytes) from None
        room -= len(piece)
        pieces.append(piece)
        position += size
        step += len(piece)
        if len(pieces) % _STEP_BLOCKS == 0 or step >= _EXPANDED_PIECE:
            yield step
            step = 0
    yield step
    return (yield from _join_in_steps(pieces))


def _decompress_frames_in_steps(codec: int, data: bytes, max_bytes: int) -> Generator[int, None, tuple[bytearray, int]]:
    """Returns a buffer, and how many bytes of it are written."""
    expand_into = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    size = min(max(_FIRST_BUFFER, 4 * len(data)), max_bytes)
    while True:
        yield size
        buffer = bytearray(size)
        try:
            written = expand_into(data, buffer)
        except cramjam.DecompressionError as failure:
            # Retry only if the buffer was full: damage fails with any size.
            if "failed to write whole buffer" not in str(failure):
                raise CorruptCompression(f"{NAMES[codec]}: {failure}") from None
        else:
            return buffer, written
        if size == max_bytes:
            raise ExpansionLimit(max_bytes)
        del buffer
        yield -size
        size = min(size * 8, max_bytes)
