"""Kind `batches`: record batches through the readers of the wire layer, and through the checks of a produce request.

A drawn batch is written here, field by field, with marks in its header and in its records; compressed or not. The
mutations change the records before they are compressed, the compressed bytes, the header, or several batches in a
row. In most cases length and checksum are corrected afterwards; otherwise no later check would ever run. Bombs
are batches that are small and would be large.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from functools import cache, partial

import cramjam
from fuzz_checks import Stream
from fuzz_grammar import Mark, Pen, varint
from fuzz_mutations import Mutations
from google_crc32c import value as crc32c

from kohort.broker.logs.validation import InvalidAppend, validate
from kohort.broker.topics.topic_configs import resolve
from kohort.config import Config
from kohort.wire import compression
from kohort.wire.batches import (
    BatchHeader,
    check_crc,
    decode_columns,
    decode_records,
    find_batches,
    read_header,
    recompress,
    split_batches,
)
from kohort.wire.errors import ProtocolError

NOW = 1_760_000_000_000
MOST_EXPANDED = 262_144
"""The size to which the readers may expand a batch in these tests."""
MOST_TAKEN = 12 * MOST_EXPANDED + 200_000
"""Bytes that the readers may take for records, which are objects, of so many bytes."""
PER_BATCH = 48
CODECS = (0, 0, 1, 2, 3, 4)
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_CONFIG = Config(message_max_uncompressed_bytes=MOST_EXPANDED)
SETTINGS = tuple(
    resolve(configs, _CONFIG)
    for configs in (
        {},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": "1000", "compression.type": "zstd"},
    )
)


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def _records(chance: random.Random) -> tuple[Pen, int]:
    """Records as a batch contains them, and their number."""
    pen = Pen()
    count = chance.choice((1, 1, 2, 3, 8))
    for index in range(count):
        body = Pen()
        body.put("int8", b"\0")
        body.put("varint", zigzag(chance.choice((0, 1, -1, 250, 2**40))))
        body.put("varint", zigzag(index))
        for size in (chance.choice((-1, 0, 3, 70)), chance.choice((-1, 0, 5, 100))):
            body.put("varint", zigzag(size), size)
            if size > 0:
                body.put("blob", chance.randbytes(size) if size < 50 else bytes(size))
        headers = chance.choice((0, 0, 1, 2))
        body.put("varint", zigzag(headers), headers)
        for _ in range(headers):
            body.put("varint", zigzag(2), 2)
            body.put("text", b"h\xc3"[:1] + b"1")
            size = chance.choice((-1, 0, 4))
            body.put("varint", zigzag(size), size)
            if size > 0:
                body.put("blob", bytes(size))
        pen.put("varint", zigzag(len(body.data)), len(body.data))
        pen.take(body)
    return pen, count


_HEADER_FIELDS = (
    ("int64", 0), ("int32", 8), ("int32", 12), ("int8", 16), ("int32", 17), ("int16", 21), ("int32", 23), ("int64", 27),
    ("int64", 35), ("int64", 43), ("int16", 51), ("int32", 53), ("int32", 57),
)  # fmt: skip
_SIZES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}
HEADER_MARKS = [Mark(kind, at, at + _SIZES[kind]) for kind, at in _HEADER_FIELDS]


def whole(
    body: bytes,
    count: int,
    attributes: int = 0,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    max_timestamp: int = NOW,
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch with a right length and checksum around `body`."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    covered = struct.pack(">hiqqqhii", attributes, last, NOW, max_timestamp, *producer, count) + body
    return struct.pack(">qiibI", 0, len(covered) + 9, 0, 2, crc32c(covered)) + covered


def righted(batch: bytes) -> bytes:
    """The batch with the length and the checksum that it should have."""
    if len(batch) < 61:
        return batch
    covered = batch[21:]
    return batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:17] + struct.pack(">I", crc32c(covered)) + covered


def packed(codec: int, data: bytes, chance: random.Random) -> bytes:
    """The bytes compressed in one of the forms of each codec."""
    form = chance.random()
    if codec == 2 and form < 0.4:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == 2 and form < 0.6:
        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL + struct.pack(">i", len(block)) + block + (XERIAL if form < 0.5 else b"")
    if codec == 1 and form < 0.3:
        half = len(data) // 2
        return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)
    if codec == 3 and form < 0.3:
        return bytes(cramjam.lz4.compress(data))
    return compression.compress(codec, data)


@cache
def bombs() -> tuple[tuple[int, bytes, int], ...]:
    """Codec, compressed bytes, and their size when expanded: a few kilobytes would become many megabytes."""
    size = 24_000_000
    data = bytes(size)
    raw = bytes(cramjam.snappy.compress_raw(data[:6_000_000]))
    twice = zlib.compressobj(9, wbits=31)
    inner = gzip.compress(data)
    return (
        (1, inner, size),
        (1, twice.compress(inner) + twice.flush(), len(inner)),
        (1, inner * 8, 8 * size),
        (2, XERIAL + (struct.pack(">i", len(raw)) + raw) * 2, 12_000_000),
        (2, raw, 6_000_000),
        (2, b"\xff\xff\xff\xff\x0f" + raw[:100], 2**32 - 1),
        (2, b"\xff\xff\xff\x7f" + b"\xfe\xff\xff" * 40_000, 2**28 - 1),
        (3, bytes(cramjam.lz4.compress(data)), size),
        (4, bytes(cramjam.zstd.compress(data)), size),
        (4, bytes(cramjam.zstd.compress(data)) * 8, 8 * size),
    )


def drawn_batch(chance: random.Random) -> bytes:
    """For produce requests: mostly a valid batch, sometimes a mutated one, now and then a bomb."""
    pick = chance.random()
    if pick < 0.02:
        codec, data, _ = chance.choice(bombs())
        return whole(data, chance.choice((1, 1000)), codec)
    pen, count = _records(chance)
    codec = chance.choice(CODECS)
    data = bytes(pen.data)
    if pick < 0.2:
        data = Mutations(data, pen.marks, chance).one()
    producer = (-1, -1, -1) if pick < 0.8 else (chance.choice((0, 1, 5)), 0, chance.choice((0, 0, 1, 2**31 - 1, -1)))
    batch = whole(packed(codec, data, chance), count, codec, producer=producer)
    if pick < 0.4:
        batch = Mutations(batch, HEADER_MARKS, chance).one()
        if pick > 0.25:
            batch = righted(batch)
    return batch


class BatchFuzz(Stream[bytes]):
    kind = "batches"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        bombs()

    def some(self, most: int) -> int:
        chance = self.chance
        made = self.made(PER_BATCH)
        self.check(made)
        if chance.random() < 0.004:
            for codec, data, _ in bombs():
                self.check([whole(data, chance.choice((1, 3, 100_000)), codec)])
        return len(made)

    def made(self, count_made: int) -> list[bytes]:
        """A batch, and this many mutations of it."""
        chance = self.chance
        pen, count = _records(chance)
        plain = bytes(pen.data)
        codec = chance.choice(CODECS)
        attributes = codec | chance.choice((0, 0, 0, 8, 16, 32, 48, 64, 7, 5))
        producer = chance.choice(((-1, -1, -1), (5, 0, 0), (5, -1, -1), (2**63 - 1, 32767, 2**31 - 1)))
        body = packed(codec, plain, chance)
        base = whole(body, count, attributes, producer=producer)
        made = [base]
        records = Mutations(plain, pen.marks, chance)
        bodies = Mutations(body, [Mark("blob", 0, len(body)), Mark("int32", 0, min(4, len(body)))], chance)
        headers = Mutations(base, HEADER_MARKS, chance)
        for _ in range(count_made):
            pick = chance.random()
            if pick < 0.45:
                data = whole(packed(codec, records.one(), chance), count, attributes, producer=producer)
            elif pick < 0.65:
                data = whole(bodies.one(), count, attributes, producer=producer)
            elif pick < 0.8:
                data = righted(headers.one())
            elif pick < 0.9:
                data = headers.one()
            elif pick < 0.95:
                data = base + headers.one()
            else:
                nested = whole(packed(chance.choice(CODECS), base, chance), 1, chance.choice(CODECS))
                data = righted(nested)
            made.append(data)
        return made

    def check(self, made: list[bytes]) -> None:
        self.each("batch", made, exercised)
        for data in made[:: max(len(made) // 2, 1)]:
            self.check_memory("batch", data, partial(exercised, data), MOST_TAKEN + 64 * len(data))


def exercised(data: bytes) -> None:
    """Everything that looks into record batches, as the broker and clients call it."""
    found: list[tuple[BatchHeader, int]] = []
    for strict in (True, False):
        try:
            found = find_batches(data, strict=strict)
        except ProtocolError:
            continue
        whole_ones = split_batches(data, strict=strict)
        assert all(len(batch) == header.size for header, batch in whole_ones)
    for header, start in found[:4]:
        batch = data[start : start + header.size]
        check_crc(data, header, start)
        try:
            columns = decode_columns(batch, header, max_bytes=MOST_EXPANDED)
        except ProtocolError:
            continue
        assert len(columns.offsets) == header.record_count
        decode_records(batch, max_bytes=MOST_EXPANDED)
        try:
            changed = recompress(batch, header, 1, max_bytes=MOST_EXPANDED)
        except ProtocolError:
            continue
        again = decode_columns(changed, read_header(changed), max_bytes=MOST_EXPANDED)
        assert again == columns
    for settings in SETTINGS:
        try:
            validate(data, settings, NOW)
        except InvalidAppend:
            continue
