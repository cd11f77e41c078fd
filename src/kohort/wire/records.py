"""The records inside a batch: mostly zigzag varints, so reading them is a loop over single bytes.

    record: length | attributes 1 | timestamp delta | offset delta | key length, key | value length, value |
            header count, (key length, key | value length, value)*

Consumers and the Spark source spend most of their time here. So there is one loop, as source in which `READ(name)`
stands for a varint and is expanded in place: one and two bytes inline, a call for more. It makes columns, not objects,
since Spark needs columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from kohort.wire.compression import decompress
from kohort.wire.errors import ProtocolError

Headers = tuple[tuple[str, bytes | None], ...]


class CorruptBatch(ProtocolError):
    """A batch whose lengths, counts, checksum or contents are invalid."""


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to be written. `timestamp` in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it was read. `timestamp` in milliseconds since 1970, -1 when there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordColumns(NamedTuple):
    """The records of a batch, one list for each field. `headers` is None if no record has any."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None


class HeaderFields(Protocol):
    """The fields of a batch's header that the reader needs."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def compression(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...


SMALLEST_RECORD = 7
"""Seven fields of at least a byte each; bounds a record count by the available bytes."""

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1


def read_records(header: HeaderFields, payload: bytes, max_bytes: int) -> RecordColumns:
    """The records of a batch; `payload` are the bytes after the header."""
    return read_decompressed(header, decompress(header.compression, payload, max_bytes))


def read_decompressed(header: HeaderFields, data: bytes) -> RecordColumns:
    """The records of a batch; `data` are the decompressed bytes after the header."""
    count = header.record_count
    if count * SMALLEST_RECORD > len(data):
        raise CorruptBatch(f"{count} records in {len(data)} bytes")
    try:
        columns: RecordColumns = _read_loop(data, count, header.base_offset, header.base_timestamp)
    except IndexError:
        raise CorruptBatch("records cut short") from None
    except UnicodeDecodeError:
        raise CorruptBatch("a header's key is not UTF-8") from None
    if count:
        first, last = min(columns.offsets), max(columns.offsets)
        if first < header.base_offset or last > header.base_offset + header.last_offset_delta:
            raise CorruptBatch(
                f"offsets {first} to {last} in a batch from {header.base_offset} "
                f"to {header.base_offset + header.last_offset_delta}"
            )
        if header.timestamp_type:
            return columns._replace(timestamps=[header.max_timestamp] * count)
        if max(columns.timestamps) > _INT64_MAX or min(columns.timestamps) < ~_INT64_MAX:
            return columns._replace(timestamps=list(map(_wrapped, columns.timestamps)))
    return columns


def find_time(header: HeaderFields, data: bytes, wanted: int | None, first_offset: int) -> tuple[int, int] | None:
    """Time and offset of the first record from `first_offset` on with a time of `wanted` or later; with None, of the
    first record with the newest time. `data`: the decompressed records, read only as far as needed."""
    base, by_broker = header.base_timestamp, header.timestamp_type
    best: tuple[int, int] | None = None
    position, size = 0, len(data)
    try:
        for _ in range(header.record_count):
            byte = data[position]
            if byte < 0x80:
                length, position = byte >> 1 ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(data, position)
            if length < SMALLEST_RECORD - 1 or position + length > size:
                raise CorruptBatch(f"a record of {length} bytes")
            byte = data[position + 1]
            if byte < 0x80:
                delta, place = byte >> 1 ^ -(byte & 1), position + 2
            else:
                delta, place = read_varint(data, position + 1)
            position += length
            timestamp = header.max_timestamp if by_broker else base + delta
            if not ~_INT64_MAX <= timestamp <= _INT64_MAX:
                timestamp = _wrapped(timestamp)
            if timestamp < wanted if wanted is not None else best is not None and timestamp <= best[0]:
                continue
            step, _ = read_varint(data, place)
            if not 0 <= step <= header.last_offset_delta:
                raise CorruptBatch(f"a record at {timestamp}, {step} after the first offset")
            offset = header.base_offset + step
            if offset < first_offset:
                continue
            best = timestamp, offset
            if wanted is not None:
                return best
    except IndexError:
        raise CorruptBatch("records cut short") from None
    return best


def encode_record(record: NewRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    """One record with its length."""
    key, value = record.key, record.value
    body = b"".join(
        (
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            b"\1" if key is None else varint(len(key)),
            key or b"",
            b"\1" if value is None else varint(len(value)),
            value or b"",
            _encode_headers(record.headers) if record.headers else b"\0",
        )
    )
    return varint(len(body)) + body


def are_tiled(data: bytes, count: int) -> bool:
    """Whether `count` records, by their lengths, fill the data exactly. ProtocolError for an impossible length."""
    position, size = 0, len(data)
    for _ in range(count):
        if position >= size:
            return False
        byte = data[position]
        if byte < 0x80:  # lengths are zigzag varints: of up to 63 bytes in one byte, of up to 8191 in two
            length, position = byte >> 1 ^ -(byte & 1), position + 1
        else:
            try:
                length, position = read_varint(data, position)
            except IndexError:
                return False
        if length < 0:
            raise CorruptBatch(f"a record of {length} bytes")
        position += length
    return position == size


def moved_records(data: bytes, position: int, later: int, further: int) -> list[bytes]:
    """The records from `position` on, with deltas shifted for an earlier base timestamp and a lower base offset.

    Raises IndexError if they are truncated."""
    if later == 0 == further:
        return [data[position:]]
    parts: list[bytes] = []
    plain = b"\0" + varint(later)
    end = len(data)
    while position < end:
        # A byte below 128 is a whole varint; if the byte is even, it is twice the value.
        first = data[position]
        if first < 0x80 and not first & 1:
            start = position + 1
            position = start + (first >> 1)
        else:
            length, start = read_varint(data, position)
            position = start + length
        if data[start] == 0 == data[start + 1]:
            head, place = plain, start + 2
        else:
            time, place = read_varint(data, start + 1)
            head = data[start : start + 1] + varint(time + later)
        first = data[place]
        if first < 0x80 and not first & 1:
            number = varint((first >> 1) + further)
            place += 1
        else:
            offset, place = read_varint(data, place)
            number = varint(offset + further)
        parts += (varint(len(head) + len(number) + position - place), head, number, data[place:position])
    return parts


def _encode_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (b"\1",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def _wrapped(value: int) -> int:
    """The lowest 64 bits, signed. Kafka's clients add deltas of timestamps so: a batch may hold -1 and 2^63-1."""
    return (value + _INT64_MAX + 1 & _UINT64_MAX) - _INT64_MAX - 1


def varint(value: int) -> bytes:
    """The lowest 64 bits of a number as a zigzag varint."""
    if -64 <= value < 1024:
        return _SHORT[value]
    value = (value << 1 ^ -(value >> 63 & 1)) & _UINT64_MAX
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits, and the position after it. IndexError if the data ends within it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise CorruptBatch("varint of more than 64 bits")
            return value >> 1 ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch("varint of more than 10 bytes")


# Indexed by the value: Python finds -64 to -1 from the end.
_SHORT = [bytes((2 * value,)) for value in range(64)]
_SHORT += [bytes((2 * value & 0x7F | 0x80, value >> 6)) for value in range(64, 1024)]
_SHORT += [bytes((2 * -value - 1,)) for value in range(-64, 0)]

_READ = """\
name = data[pos]; pos += 1
if name < 128: name = zigzag[name]
elif data[pos] < 128: name = name & 127 | data[pos] << 7; name = name >> 1 ^ -(name & 1); pos += 1
else: name, pos = read_varint(data, pos - 1)
"""

_LOOP = """\
def read_loop(data, count, base_offset, base_timestamp):
    size = len(data)
    pos = 0
    offsets = []; timestamps = []; keys = []; values = []
    headers = None
    add_offset = offsets.append; add_timestamp = timestamps.append
    add_key = keys.append; add_value = values.append
    for index in range(count):
        READ(length)
        end = pos + length
        if length < 0 or end > size: raise corrupt("length", length)
        pos += 1
        READ(delta)
        add_timestamp(base_timestamp + delta)
        READ(delta)
        add_offset(base_offset + delta)
        READ(length)
        if length >= 0: stop = pos + length; add_key(data[pos:stop]); pos = stop
        elif length == -1: add_key(None)
        else: raise corrupt("key length", length)
        READ(length)
        if length >= 0: stop = pos + length; add_value(data[pos:stop]); pos = stop
        elif length == -1: add_value(None)
        else: raise corrupt("value length", length)
        READ(length)
        if length:
            if length < 0 or 2 * length > end - pos: raise corrupt("header count", length)
            if headers is None: headers = [()] * count
            headers[index], pos = read_headers(data, pos, length, end)
        if pos != end: raise corrupt("length", end)
    if pos != size: raise corrupt("bytes behind the last one:", size - pos)
    return columns(offsets, timestamps, keys, values, headers)
"""


def _corrupt(what: str, value: int) -> CorruptBatch:
    return CorruptBatch(f"a record with an impossible {what} {value}")


def _read_headers(data: bytes, pos: int, count: int, end: int) -> tuple[Headers, int]:
    headers = []
    for _ in range(count):
        length, pos = read_varint(data, pos)
        if length < 0 or pos + length > end:
            raise _corrupt("header key length", length)
        name = data[pos : pos + length].decode()
        pos += length
        length, pos = read_varint(data, pos)
        if length < -1 or pos + length > end:
            raise _corrupt("header value length", length)
        headers.append((name, None if length < 0 else data[pos : pos + length]))
        pos += max(length, 0)
    return tuple(headers), pos


def _compile_loop() -> Any:
    lines: list[str] = []
    for line in _LOOP.splitlines():
        text = line.lstrip()
        if text.startswith("READ("):
            indent = line[: len(line) - len(text)]
            lines += (indent + step for step in _READ.replace("name", text[5:-1]).splitlines())
        else:
            lines.append(line)
    names = {
        "read_varint": read_varint,
        "zigzag": [value >> 1 ^ -(value & 1) for value in range(128)],
        "read_headers": _read_headers,
        "corrupt": _corrupt,
        "columns": RecordColumns,
    }
    exec(compile("\n".join(lines), "<read_loop of kohort.wire.records>", "exec"), names)
    return names["read_loop"]


_read_loop = _compile_loop()
