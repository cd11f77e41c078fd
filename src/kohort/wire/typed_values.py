"""Reads and writes values of every wire type in native code, for the typed codec (typed.py).

Only for compilation by mypyc, with librt; the interpreter never imports it. Reads past the end raise IndexError, which
`codec.py` turns into a ProtocolError. Writes raise Python's own exceptions for a value that does not fit.
"""

from __future__ import annotations

from typing import Any

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from kohort.wire.errors import ProtocolError

LARGE = 4096
"""A blob of this size and above becomes a chunk of its own, without a copy."""

CUT_SHORT = "cut short"


# -- reading


def read_varint(buf: bytes, pos: i64) -> tuple[i64, i64]:
    """An unsigned varint of at most 32 bits in at most 5 bytes, and the position after it."""
    first: i64 = buf[pos]
    if first < 128:
        return first, pos + 1
    value: i64 = first & 0x7F
    shift: i64 = 7
    while shift <= 28:
        pos += 1
        byte: i64 = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                raise ProtocolError("varint of more than 32 bits")
            return value, pos + 1
        shift += 7
    raise ProtocolError("varint of more than 5 bytes")


def read_length(buf: bytes, pos: i64, compact: bool, nullable: bool, wide: bool, field: str) -> tuple[i64, i64]:
    """A length or a count, -1 for null. `wide`: four bytes if it is not compact."""
    length: i64
    if compact:
        length, pos = read_varint(buf, pos)
        length -= 1
        if length < 0 and not nullable:
            raise ProtocolError(f"{field} is null")
        return length, pos
    if wide:
        length = i64(read_i32_be(buf, pos))
        pos += 4
    else:
        length = i64(read_i16_be(buf, pos))
        pos += 2
    if length < 0 and (length < -1 or not nullable):
        raise ProtocolError(f"{field} has length {length}")
    return length, pos


def read_count(buf: bytes, pos: i64, compact: bool, nullable: bool, smallest: i64, field: str) -> tuple[i64, i64]:
    """A count, checked against the remaining bytes; `smallest` is the minimum size of an element."""
    count, pos = read_length(buf, pos, compact, nullable, True, field)
    left = len(buf) - pos
    if count * smallest > left:
        raise ProtocolError(f"{field} cannot have {count} elements in {max(left, 0)} bytes")
    return count, pos


def read_string(buf: bytes, pos: i64, compact: bool, field: str) -> tuple[str, i64]:
    length, pos = read_length(buf, pos, compact, False, False, field)
    end = pos + length
    if end > len(buf):
        raise IndexError(CUT_SHORT)
    return buf[pos:end].decode(), end


def read_nullable_string(buf: bytes, pos: i64, compact: bool, field: str) -> tuple[str | None, i64]:
    length, pos = read_length(buf, pos, compact, True, False, field)
    if length < 0:
        return None, pos
    end = pos + length
    if end > len(buf):
        raise IndexError(CUT_SHORT)
    return buf[pos:end].decode(), end


def read_blob(buf: bytes, pos: i64, compact: bool, field: str) -> tuple[bytes, i64]:
    length, pos = read_length(buf, pos, compact, False, True, field)
    end = pos + length
    if end > len(buf):
        raise IndexError(CUT_SHORT)
    return buf[pos:end], end


def read_nullable_blob(buf: bytes, pos: i64, compact: bool, field: str) -> tuple[bytes | None, i64]:
    length, pos = read_length(buf, pos, compact, True, True, field)
    if length < 0:
        return None, pos
    end = pos + length
    if end > len(buf):
        raise IndexError(CUT_SHORT)
    return buf[pos:end], end


def read_uuid(buf: bytes, pos: i64) -> bytes:
    if pos + 16 > len(buf):
        raise IndexError(CUT_SHORT)
    return buf[pos : pos + 16]


def read_i8(buf: bytes, pos: i64) -> i64:
    value: i64 = buf[pos]
    return value - 256 if value > 127 else value


def read_u16(buf: bytes, pos: i64) -> i64:
    value = i64(read_i16_be(buf, pos))
    return value & 0xFFFF


def read_u32(buf: bytes, pos: i64) -> i64:
    value = i64(read_i32_be(buf, pos))
    return value & 0xFFFF_FFFF


def skip_tags(buf: bytes, pos: i64) -> i64:
    """The position after a section of unknown tagged fields."""
    first: i64 = buf[pos]
    if first == 0:
        return pos + 1
    count, pos = read_tag_count(buf, pos)
    while count > 0:
        _, end, pos = read_tag(buf, pos)
        pos = end
        count -= 1
    return pos


def read_tag_count(buf: bytes, pos: i64) -> tuple[i64, i64]:
    count, pos = read_varint(buf, pos)
    left = len(buf) - pos
    if count * 2 > left:
        raise ProtocolError(f"tagged fields cannot have {count} elements in {max(left, 0)} bytes")
    return count, pos


def read_tag(buf: bytes, pos: i64) -> tuple[i64, i64, i64]:
    """A tag, the end of its value, and the start of its value."""
    tag, pos = read_varint(buf, pos)
    size, pos = read_varint(buf, pos)
    end = pos + size
    if end > len(buf):
        raise bad_tag(tag)
    return tag, end, pos


def bad_tag(tag: i64) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} does not have the size that it says")


# -- writing


def write_varint(w: BytesWriter, value: i64) -> None:
    while value > 127:
        w.append(value & 0x7F | 0x80)
        value >>= 7
    w.append(value)


def write_length(w: BytesWriter, length: i64, compact: bool, wide: bool) -> None:
    """-1 for null."""
    if compact:
        write_varint(w, length + 1)
    elif wide:
        if length > 0x7FFF_FFFF:
            raise ValueError(f"a length of {length}")
        write_i32_be(w, i32(length))
    else:
        if length > 0x7FFF:
            raise ValueError(f"a string of {length} bytes")
        write_i16_be(w, i16(length))


def write_string(w: BytesWriter, value: str, compact: bool) -> None:
    data = value.encode()
    write_length(w, len(data), compact, False)
    w.write(data)


def write_nullable_string(w: BytesWriter, value: str | None, compact: bool) -> None:
    if value is None:
        write_length(w, -1, compact, False)
    else:
        write_string(w, value, compact)


def write_blob(w: BytesWriter, out: list[bytes], value: Any, compact: bool) -> None:
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, (bytearray, memoryview)):
        data = bytes(value)
    else:
        raise TypeError("bytes are wanted")
    write_length(w, len(data), compact, True)
    if len(data) < LARGE:
        w.write(data)
    else:
        out.append(w.getvalue())
        w.truncate(0)
        out.append(data)


def write_records(w: BytesWriter, out: list[bytes], value: Any, compact: bool) -> None:
    """Bytes, or a tuple of bytes."""
    if not isinstance(value, tuple):
        write_blob(w, out, value, compact)
        return
    size: i64 = 0
    for piece in value:
        size += len(piece)
    write_length(w, size, compact, True)
    if size < LARGE:
        for piece in value:
            w.write(piece)
    else:
        out.append(w.getvalue())
        w.truncate(0)
        out.extend(value)


def write_nullable_records(w: BytesWriter, out: list[bytes], value: Any, compact: bool) -> None:
    if value is None:
        write_length(w, -1, compact, True)
    else:
        write_records(w, out, value, compact)


def write_nullable_blob(w: BytesWriter, out: list[bytes], value: Any, compact: bool) -> None:
    if value is None:
        write_length(w, -1, compact, True)
    else:
        write_blob(w, out, value, compact)


def write_uuid(w: BytesWriter, value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
    w.write(value)


def write_bool(w: BytesWriter, value: Any) -> None:
    w.append(1 if value else 0)


def write_i8(w: BytesWriter, value: i64) -> None:
    if not -128 <= value <= 127:
        raise ValueError(f"{value} is no int8")
    w.append(value & 0xFF)


def write_u16(w: BytesWriter, value: i64) -> None:
    if not 0 <= value <= 0xFFFF:
        raise ValueError(f"{value} is no uint16")
    write_i16_be(w, i16(value if value < 0x8000 else value - 0x1_0000))


def write_u32(w: BytesWriter, value: i64) -> None:
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} is no uint32")
    write_i32_be(w, i32(value if value < 0x8000_0000 else value - 0x1_0000_0000))


def write_tagged(w: BytesWriter, tag: i64, out: list[bytes], value: BytesWriter) -> None:
    """A tagged field whose value was written into chunks and a writer of its own."""
    data = value.getvalue()
    if out:
        out.append(data)
        data = b"".join(out)
    write_varint(w, tag)
    write_varint(w, len(data))
    w.write(data)


def chunks(out: list[bytes], w: BytesWriter) -> list[bytes]:
    out.append(w.getvalue())
    return out
