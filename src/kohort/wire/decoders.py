"""Writes the decoder of a (message class, version); `compiler.py` shows generated code.

A decoder takes bytes, a position and the version (which it ignores), and returns the message and the position after it.
It bounds counts by the remaining bytes before it builds anything. It does not check at once that a length is within the
data: a slice past the end is short, and then the next read fails, or `codec.py`'s check of the last position. A decoder
may raise `struct.error`, `IndexError` and `UnicodeDecodeError`; `codec.py` turns them into `ProtocolError`.

A megabyte may hold a million elements of one byte, which take a third of a second. So there are bounded decoders, too,
for large requests: they refuse a message whose arrays have more than `MOST_ELEMENTS` together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from struct import Struct, unpack_from
from typing import Any

from kohort.wire.compiler import Source
from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_unsigned_varint
from kohort.wire.layout import FORMATS, fields_of, is_flexible, row_format, smallest_size, tagged_fields_of
from kohort.wire.schema import Field, schema_of

MOST_ELEMENTS = 40_000
"""Elements of all arrays of a message: some twenty milliseconds."""

Decoder = Callable[[bytes, int, int], tuple[Any, int]]


def compile_decoder(cls: type, version: int, *, bounded: bool = False) -> Decoder:
    writer = _DecoderWriter(cls, version, bounded=bounded)
    decoder: Decoder = writer.code.compile("decode(buf, pos, v)", f"{cls.__name__} v{version}")
    return decoder


def decoder_source(cls: type, version: int) -> str:
    return _DecoderWriter(cls, version).code.text("decode(buf, pos, v)")


def _long(buf: bytes, pos: int) -> tuple[int, int]:
    # The first byte, read with the preceding fields, says that more bytes follow.
    return read_unsigned_varint(buf, pos - 1)


def _long_or_null(buf: bytes, pos: int, field: str) -> tuple[int, int]:
    length, pos = read_unsigned_varint(buf, pos - 1)
    if length == 0:
        raise ProtocolError(f"{field} is null")
    return length, pos


def _negative(field: str, length: int) -> ProtocolError:
    return ProtocolError(f"{field} has length {length}")


def _bad_count(field: str, count: int, remaining: int) -> ProtocolError:
    return ProtocolError(f"{field} cannot have {count} elements in {max(remaining, 0)} bytes")


def _too_many() -> ProtocolError:
    return ProtocolError(f"more than {MOST_ELEMENTS} elements")


def _tag_size(tag: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} does not have the size that it says")


def _skip_tags(buf: bytes, pos: int, count: int) -> int:
    # As framing.skip_tagged_fields, but `count` has been read.
    size = len(buf)
    if count * 2 > size - pos:
        raise _bad_count("tagged fields", count, size - pos)
    for _ in range(count):
        _, pos = read_unsigned_varint(buf, pos)
        length, pos = read_unsigned_varint(buf, pos)
        pos += length
    return pos


_NAMES = {
    "long": _long,
    "long_or_null": _long_or_null,
    "negative": _negative,
    "bad_count": _bad_count,
    "tag_size": _tag_size,
    "too_many": _too_many,
    "skip_tags": _skip_tags,
    "read_varint": read_unsigned_varint,
    "unpack_from": unpack_from,
    "starmap": starmap,
}


class _DecoderWriter:
    def __init__(self, cls: type, version: int, *, bounded: bool = False) -> None:
        self.version = version
        self.bounded = bounded
        self.flexible = is_flexible(cls, version)
        self.code = Source(_NAMES)
        self.code.line("size = len(buf)")
        if bounded:
            self.code.line(f"left = {MOST_ELEMENTS}")
        message = self.struct(cls)
        self.flush()
        self.code.line(f"return {message}, pos")

    def flush(self, *extra: tuple[str, str]) -> None:
        """Read the current run of fixed fields, together with `extra`."""
        run = [*self.code.run, *extra]
        self.code.run = []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.code.line(f"{run[0][1]} = buf[pos]; pos += 1")
            return
        struct = Struct(">" + "".join(f for f, _ in run))
        unpacker = self.code.constant("S", struct.unpack_from)
        targets = ", ".join(name for _, name in run) + ("," if len(run) == 1 else "")
        self.code.line(f"{targets} = {unpacker}(buf, pos); pos += {struct.size}")

    def struct(self, cls: type) -> str:
        """Read a struct's fields into variables. Returns the expression that builds it, to be used after `flush`.

        Pass all fields up to the last present one by position, defaults included: the fastest call."""
        arguments: dict[str, str] = {}
        for field in fields_of(cls, self.version):
            arguments[field.name] = self.value(field, field.type, self.version in field.nullable)
        if self.flexible:
            arguments |= self.tags(tagged_fields_of(cls, self.version))
        builder = self.code.constant("C", cls)
        ordered: list[str] = []
        for field in schema_of(cls).fields:
            if field.name in arguments:
                ordered.append(arguments[field.name])
            else:
                ordered.append(self.code.constant("D", field.default))
        return f"{builder}({', '.join(ordered)})"

    def value(self, field: Field, wire_type: Any, nullable: bool) -> str:
        """Read one value. Returns the expression for it, to be used after `flush`."""
        if isinstance(wire_type, list):
            return self.array(field, wire_type[0], nullable)
        if not isinstance(wire_type, str):
            return self.nested(wire_type, nullable, tagged=field.tag is not None)
        if wire_type in FORMATS:
            name = self.code.fresh("a")
            self.code.run.append((FORMATS[wire_type], name))
            return name
        return self.blob(field, wire_type, nullable)

    def length(self, field: Field, nullable: bool, format: str) -> tuple[str, str, str]:
        """Read a length or count; refuse an impossible one. Returns its variable, its value, the test for null."""
        length = self.code.fresh("n")
        if not (self.flexible and field.compact):
            self.flush((format, length))
            self.code.line(f"if {length} < {-1 if nullable else 0}: raise negative({field.name!r}, {length})")
            return length, length, f"{length} < 0"
        self.flush(("B", length))
        if nullable:
            self.code.line(f"if {length} > 127: {length}, pos = long(buf, pos)")
        else:
            # One comparison for the two rare cases, null and a length of several bytes.
            self.code.line(f"if not 0 < {length} < 128: {length}, pos = long_or_null(buf, pos, {field.name!r})")
        return length, f"{length} - 1", f"not {length}"

    def blob(self, field: Field, wire_type: str, nullable: bool) -> str:
        _, length, is_null = self.length(field, nullable, "h" if wire_type == "string" else "i")
        data, end = self.code.fresh("a"), self.code.fresh("z")
        decode = ".decode()" if wire_type == "string" else ""
        read = f"{end} = pos + {length}; {data} = buf[pos:{end}]{decode}; pos = {end}"
        if nullable:
            self.code.line(f"if {is_null}: {data} = None")
            self.code.line(f"else: {read}")
        else:
            self.code.line(read)
        return data

    def array(self, field: Field, element: Any, nullable: bool) -> str:
        count, value, is_null = self.length(field, nullable, "i")
        items = self.code.fresh("v")
        if not nullable:
            self.elements(field, element, items, count, value)
            return items
        self.code.line(f"if {is_null}: {items} = None")
        self.code.line("else:")
        with self.code.indented():
            self.elements(field, element, items, count, value)
        return items

    def elements(self, field: Field, element: Any, items: str, count: str, value: str) -> None:
        if value != count:
            self.code.line(f"{count} = {value}")
        smallest = smallest_size(element, self.version, self.flexible)
        bound = f"{count} * {smallest}" if smallest > 1 else count
        self.code.line(f"if {bound} > size - pos: raise bad_count({field.name!r}, {count}, size - pos)")
        self.take(count)
        if not isinstance(element, str) and (row := row_format(element, self.version)):
            self.rows(field, element, items, count, row)
        elif isinstance(element, str) and element in FORMATS and element != "uuid":
            self.code.line(f"{items} = unpack_from(f'>{{{count}}}{FORMATS[element]}', buf, pos); pos += {bound}")
        else:
            self.loop(field, element, items, count)

    def take(self, count: str) -> None:
        if self.bounded:
            self.code.line(f"left -= {count}")
            self.code.line("if left < 0: raise too_many()")

    def rows(self, field: Field, element: Any, items: str, count: str, row: str) -> None:
        """Unpack an array of fixed rows at once; in a flexible version only if no row has tagged fields."""
        rows = Struct(row + "x" * self.flexible)
        unpack, builder = self.code.constant("S", rows.iter_unpack), self.code.constant("C", element)
        end = self.code.fresh("z")
        read = f"{items} = tuple(starmap({builder}, {unpack}(buf[pos:{end}]))); pos = {end}"
        self.code.line(f"{end} = pos + {count} * {rows.size}")
        if not self.flexible:
            self.code.line(read)
            return
        self.code.line(f"if buf[pos + {rows.size - 1}:{end}:{rows.size}].count(0) == {count}: {read}")
        self.code.line("else:")
        with self.code.indented():
            self.loop(field, element, items, count)

    def loop(self, field: Field, element: Any, items: str, length: str) -> None:
        add = self.code.fresh("p")
        self.code.line(f"{items} = []; {add} = {items}.append")
        self.code.line(f"for _ in range({length}):")
        with self.code.indented():
            value = self.value(field, element, False)
            self.flush()
            self.code.line(f"{add}({value})")
        self.code.line(f"{items} = tuple({items})")

    def nested(self, cls: type, nullable: bool, *, tagged: bool) -> str:
        if not nullable:
            return self.struct(cls)
        marker, name = self.code.fresh("n"), self.code.fresh("a")
        self.flush(("b", marker))
        self.code.line(f"if {marker} {'<=' if tagged else '<'} 0: {name} = None")
        self.code.line("else:")
        with self.code.indented():
            value = self.struct(cls)
            self.flush()
            self.code.line(f"{name} = {value}")
        return name

    def tags(self, fields: list[Field]) -> dict[str, str]:
        """The section of tagged fields: read the known ones, skip the others."""
        count = self.code.fresh("n")
        self.flush(("B", count))
        names = {field.name: self.code.fresh("a") for field in fields}
        for field in fields:
            self.code.line(f"{names[field.name]} = {self.code.constant('D', field.default)}")
        self.code.line(f"if {count}:")
        with self.code.indented():
            self.code.line(f"if {count} > 127: {count}, pos = long(buf, pos)")
            self.take(count)
            if not fields:
                self.code.line(f"pos = skip_tags(buf, pos, {count})")
            else:
                self.known_tags(fields, names, count)
        return names

    def known_tags(self, fields: list[Field], names: dict[str, str], count: str) -> None:
        tag, end = self.code.fresh("t"), self.code.fresh("z")
        self.code.line(f"if {count} * 2 > size - pos: raise bad_count('tagged fields', {count}, size - pos)")
        self.code.line(f"for _ in range({count}):")
        with self.code.indented():
            self.code.line(f"{tag}, pos = read_varint(buf, pos); {end}, pos = read_varint(buf, pos); {end} += pos")
            self.code.line(f"if {end} > size: raise tag_size({tag})")
            for field in fields:
                self.code.line(f"if {tag} == {field.tag}:")
                with self.code.indented():
                    value = self.value(field, field.type, self.version in field.nullable)
                    self.flush()
                    self.code.line(f"{names[field.name]} = {value}")
                    self.code.line(f"if pos != {end}: raise tag_size({tag})")
            self.code.line(f"pos = {end}")
