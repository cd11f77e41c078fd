"""The four compressions of record batches, with bounded output.

A few hundred bytes can expand into gigabytes, so the caller's limit bounds every expansion: gzip is inflated piece by
piece, snappy states its size first, and lz4 and zstd write into a buffer that grows up to the limit as needed.

The writers use formats that every client reads: gzip, snappy in xerial framing, lz4 frames of independent blocks
(Kafka's Java client refuses linked ones, KIP-57), zstd frames. The readers also accept raw snappy, linked lz4 blocks,
zstd without a content size, and several frames or members in a row.
"""

from __future__ import annotations

import zlib
from struct import Struct, error

import cramjam

from kohort.wire.errors import ProtocolError

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


def decompress(codec: int, data: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Expand into at most `max_bytes`. ProtocolError if the data is damaged or larger."""
    expanded = expand(codec, data, max_bytes)
    return expanded if isinstance(expanded, bytes) else bytes(expanded)


def expand(codec: int, data: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes | memoryview:
    """Like `decompress`, but returns a read-only view without a last copy."""
    if codec == NONE:
        if len(data) > max_bytes:
            raise ExpansionLimit(max_bytes)
        return data
    if codec == GZIP:
        return _inflate(data, max_bytes)
    if codec == SNAPPY:
        if data.startswith(_XERIAL_MAGIC):
            return _decompress_xerial(data, max_bytes)
        return _decompress_snappy(data, max_bytes)
    if codec in (LZ4, ZSTD):
        return _decompress_frames(codec, data, max_bytes)
    raise CorruptCompression(f"there is no compression {codec}")


def _inflate(data: bytes, max_bytes: int) -> bytes:
    pieces = []
    room = max_bytes
    try:
        while data:
            member = zlib.decompressobj(wbits=31)
            # One byte more than allowed distinguishes data that fits exactly from larger data.
            piece = member.decompress(data, room + 1)
            room -= len(piece)
            if room < 0:
                raise ExpansionLimit(max_bytes)
            if not member.eof:
                raise CorruptCompression("gzip: cut short")
            pieces.append(piece)
            data = member.unused_data
    except zlib.error as failure:
        raise CorruptCompression(f"gzip: {failure}") from None
    if not pieces:
        raise CorruptCompression("gzip: empty")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


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


def _decompress_xerial(data: bytes, max_bytes: int) -> bytes:
    pieces = []
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
    return b"".join(pieces)


def _decompress_frames(codec: int, data: bytes, max_bytes: int) -> memoryview:
    expand_into = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
    size = min(max(_FIRST_BUFFER, 4 * len(data)), max_bytes)
    while True:
        buffer = bytearray(size)
        try:
            written = expand_into(data, buffer)
        except cramjam.DecompressionError as failure:
            # Retry only if the buffer was full: damage fails with any size.
            if "failed to write whole buffer" not in str(failure):
                raise CorruptCompression(f"{NAMES[codec]}: {failure}") from None
        else:
            return memoryview(buffer)[:written]
        if size == max_bytes:
            raise ExpansionLimit(max_bytes)
        size = min(size * 8, max_bytes)
