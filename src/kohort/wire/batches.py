"""Record batches of magic 2: the header that the broker reads and patches, and whole batches to write.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | CRC-32C 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records

`length` counts what follows it. The checksum covers everything from the attributes on, so that a broker may set base
offset and leader epoch (`patch`) without touching it. The records may be compressed together; `records.py` reads
them. The broker stores batches as opaque bytes.

Magic 0 and 1 (message sets of Kafka before 0.11) raise an exception of their own, not that of damage, since Produce has
an error code for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, pack_into
from typing import NamedTuple

from google_crc32c import value as crc32c

from kohort.wire.compression import DEFAULT_MAX_BYTES, compress, decompress
from kohort.wire.errors import ProtocolError
from kohort.wire.records import (
    CorruptBatch,
    NewRecord,
    Record,
    RecordColumns,
    encode_record,
    moved_records,
    read_records,
)

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "CorruptBatch",
    "NewRecord",
    "Record",
    "RecordColumns",
    "UnsupportedMagic",
    "batch_around",
    "check_crc",
    "decode_columns",
    "decode_records",
    "encode_batch",
    "find_batches",
    "join_batches",
    "last_header",
    "patch",
    "read_header",
    "set_log_append_time",
    "split_batches",
]

HEADER_SIZE = 61
LENGTH_AT, LENGTH_END = 8, 12
"""Where the length is, and where the bytes that it counts begin."""
SHORTEST = HEADER_SIZE - LENGTH_END
"""The length of a batch without records."""

CRC_START = 21
"""The checksum covers everything from here on."""

COMPRESSION_MASK = 0b111
LOG_APPEND_TIME = 0b1000
TRANSACTIONAL = 0b1_0000
CONTROL = 0b10_0000

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_AFTER_CRC = Struct(">hiqqqhii")
_BEFORE_CRC = Struct(">qiib")
_MAGIC_AT = 16


class UnsupportedMagic(ProtocolError):
    """A message set of magic 0 or 1, or of an unknown newer format."""


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0: the timestamps are the producer's. 1: the broker's, `max_timestamp` for every record."""
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(data: bytes, position: int = 0) -> BatchHeader:
    """The header at `position`. Checks neither the checksum nor that the batch is complete."""
    if len(data) > position + _MAGIC_AT and data[position + _MAGIC_AT] != 2:
        raise UnsupportedMagic(f"magic {data[position + _MAGIC_AT]}; only record batches of magic 2 are read")
    try:
        header = BatchHeader(*_HEADER.unpack_from(data, position))
    except error:
        raise CorruptBatch(f"batch header cut short at {len(data) - position} bytes") from None
    if header[1] < SHORTEST:
        raise CorruptBatch(f"batch of {header.batch_length} bytes, less than its header has")
    if header[12] < 0 or header[6] < 0:
        raise CorruptBatch(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    return header


def last_header(data: bytes) -> BatchHeader | None:
    """The header of the last whole batch; None if there is none. Reads only the lengths of those before."""
    last, position, size = -1, 0, len(data)
    while size - position >= HEADER_SIZE:
        (length,) = _LENGTH.unpack_from(data, position + LENGTH_AT)
        if length < SHORTEST:
            raise CorruptBatch(f"batch of {length} bytes, less than its header has")
        end = position + LENGTH_END + length
        if end > size:
            break
        last, position = position, end
    return None if last < 0 else read_header(data, last)


def split_batches(data: bytes, *, strict: bool = True) -> list[tuple[BatchHeader, bytes]]:
    """The whole batches in `data`.

    A partial one at the end raises CorruptBatch; with `strict=False` it is dropped, since a fetch may end in one."""
    return [(header, data[start : start + header.size]) for header, start in find_batches(data, strict=strict)]


def find_batches(data: bytes, *, strict: bool = True) -> list[tuple[BatchHeader, int]]:
    """Like `split_batches`, with each batch's position instead of a copy."""
    batches = []
    position = 0
    size = len(data)
    while position < size:
        if size - position < LENGTH_END or (not strict and size - position < HEADER_SIZE):
            if strict:
                raise CorruptBatch(f"{size - position} bytes after the last batch")
            break
        header = read_header(data, position)
        end = position + header[1] + LENGTH_END  # its size
        if end > size:
            if strict:
                raise CorruptBatch(f"batch of {header.size} bytes with {size - position} left")
            break
        batches.append((header, position))
        position = end
    return batches


def check_crc(data: bytes, header: BatchHeader, start: int = 0) -> bool:
    """True if the checksum fits the bytes of the batch that begins at `start`."""
    return bool(crc32c(data[start + CRC_START : start + header.size]) == header.crc)


def patch(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The batch for the log: with its base offset and leader epoch, else unchanged."""
    return b"".join(
        (base_offset.to_bytes(8, "big"), batch[8:12], leader_epoch.to_bytes(4, "big"), memoryview(batch)[16:])
    )


def set_log_append_time(batch: bytes, timestamp: int) -> bytes:
    """The batch with the broker's time for all of its records (message.timestamp.type=LogAppendTime)."""
    changed = bytearray(batch)
    changed[22] |= LOG_APPEND_TIME
    pack_into(">q", changed, 35, timestamp)
    _CRC.pack_into(changed, 17, crc32c(bytes(memoryview(changed)[CRC_START:])))
    return bytes(changed)


def recompress(batch: bytes, header: BatchHeader, codec: int, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The batch with its records compressed by another codec (compression.type of a topic)."""
    body = compress(codec, decompress(header.compression, batch[HEADER_SIZE : header.size], max_bytes))
    return with_body(batch, header, codec, body)


def with_body(batch: bytes, header: BatchHeader, codec: int, body: bytes) -> bytes:
    """The batch with its records as `body`, which is compressed by `codec`."""
    changed = bytearray(batch[:HEADER_SIZE]) + body
    pack_into(">i", changed, 8, len(changed) - LENGTH_END)
    pack_into(">h", changed, 21, header.attributes & ~COMPRESSION_MASK | codec)
    _CRC.pack_into(changed, 17, crc32c(bytes(memoryview(changed)[CRC_START:])))
    return bytes(changed)


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
    offsets: Sequence[int] | None = None,
    is_control: bool = False,
    is_transactional: bool = False,
) -> bytes:
    """A batch of at least one record. `offsets` are deltas to the base offset; without them: 0, 1, 2, ..."""
    if not records:
        raise ValueError("a batch has at least one record")
    deltas: Sequence[int] = range(len(records)) if offsets is None else offsets
    base_timestamp = newest = records[0].timestamp
    body = []
    for record, delta in zip(records, deltas, strict=True):
        newest = max(newest, record.timestamp)
        body.append(encode_record(record, record.timestamp - base_timestamp, delta))
    attributes = compression | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    covered = _AFTER_CRC.pack(
        attributes,
        deltas[-1],
        base_timestamp,
        newest,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + compress(compression, b"".join(body))
    return _with_crc(base_offset, leader_epoch, covered)


def batch_around(records: bytes, count: int, timestamp: int, *, base_offset: int, leader_epoch: int) -> bytes:
    """A batch of records that are encoded already, all of them of this time."""
    covered = _AFTER_CRC.pack(0, count - 1, timestamp, timestamp, -1, -1, -1, count) + records
    return _with_crc(base_offset, leader_epoch, covered)


def _with_crc(base_offset: int, leader_epoch: int, covered: bytes) -> bytes:
    """A whole batch; `covered` are its bytes from the attributes on."""
    header = _BEFORE_CRC.pack(base_offset, len(covered) + CRC_START - LENGTH_END, leader_epoch, 2)
    return b"".join((header, _CRC.pack(crc32c(covered)), covered))


def join_batches(batches: Sequence[bytes]) -> bytes:
    """Join uncompressed batches without producer ids into one batch. They must be in order, complete, and of one leader
    epoch; nothing else has checked their records."""
    first = read_header(batches[0])
    parts: list[bytes] = []
    newest, last_offset, count = first.max_timestamp, first.last_offset, 0
    for data in batches:
        header = read_header(data)
        newest = max(newest, header.max_timestamp)
        last_offset = header.last_offset
        count += header.record_count
        parts += moved_records(
            data, HEADER_SIZE, header.base_timestamp - first.base_timestamp, header.base_offset - first.base_offset
        )
    covered = _AFTER_CRC.pack(
        0, last_offset - first.base_offset, first.base_timestamp, newest, -1, -1, -1, count
    ) + b"".join(parts)
    return _with_crc(first.base_offset, first.partition_leader_epoch, covered)


def decode_records(
    batch: bytes, header: BatchHeader | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> list[Record]:
    """The records of one batch, control records included. ProtocolError (mostly CorruptBatch) when it is damaged."""
    offsets, timestamps, keys, values, headers = decode_columns(batch, header, max_bytes=max_bytes)
    if headers is None:
        return list(map(Record, offsets, timestamps, keys, values))
    return list(map(Record, offsets, timestamps, keys, values, headers))


def decode_columns(
    batch: bytes, header: BatchHeader | None = None, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> RecordColumns:
    """The records of one batch as columns, without an object a record. `headers` is None when no record has any."""
    if header is None:
        header = read_header(batch)
    if header.size > len(batch):
        raise CorruptBatch(f"batch of {header.size} bytes with {len(batch)} there")
    return read_records(header, batch[HEADER_SIZE : header.size], max_bytes)
