"""Writes the encoder and the decoder of one (message class, version) as Python source, and compiles them.

The generated code is one flat function: a loop for an array, the fields of a struct inlined. What makes it quick is
that fixed-size fields that stand side by side, across struct borders, become one `Struct` call; the first byte of a
compact length that follows them rides along, since it is the whole length in nearly every case.

    def decode(buf, pos):                       # HeartbeatRequest v4
        size = len(buf)
        n1, = S1(buf, pos); pos += 1            # S1 = Struct(">B").unpack_from
        if n1 > 127: n1, pos = varint(buf, pos, n1)
        if not n1: raise null("group_id")
        a1 = buf[pos:pos + n1 - 1].decode(); pos += n1 - 1
        a2, n3 = S2(buf, pos); pos += 5         # generation_id and the length of member_id
        ...

An encoder appends chunks to a list; a decoder returns the message and the position behind it. To see the source of
any pair: `print(encoder_source(cls, version))`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, calcsize, pack, unpack_from
from typing import Any

from kohort.wire.errors import ProtocolError
from kohort.wire.framing import read_unsigned_varint, unsigned_varint
from kohort.wire.schema import Field, schema_of

Encoder = Callable[[Any], list[bytes]]
Decoder = Callable[[bytes, int], tuple[Any, int]]

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Struct format of every wire type of fixed size."""


def compile_encoder(cls: type, version: int) -> Encoder:
    source, names = _EncoderWriter(cls, version).write()
    encoder: Encoder = _compiled(source, names, "encode", cls, version)
    return encoder


def compile_decoder(cls: type, version: int) -> Decoder:
    source, names = _DecoderWriter(cls, version).write()
    decoder: Decoder = _compiled(source, names, "decode", cls, version)
    return decoder


def encoder_source(cls: type, version: int) -> str:
    """The generated encoder, for reading."""
    return _EncoderWriter(cls, version).write()[0]


def decoder_source(cls: type, version: int) -> str:
    """The generated decoder, for reading."""
    return _DecoderWriter(cls, version).write()[0]


def fields_of(cls: type, version: int) -> list[Field]:
    """The untagged fields of a struct in a version, in wire order."""
    return [f for f in schema_of(cls).fields if version in f.versions and f.tag is None]


def tagged_fields_of(cls: type, version: int) -> list[Field]:
    """The tagged fields of a struct in a version, in the order of their tags."""
    tagged = [f for f in schema_of(cls).fields if version in f.versions and f.tag is not None]
    return sorted(tagged, key=lambda f: f.tag or 0)


def smallest_size(wire_type: Any, version: int, flexible: bool, nullable: bool = False) -> int:
    """The fewest bytes that a value of this type can take. Never 0, so that it bounds a count."""
    if isinstance(wire_type, str) and wire_type in FORMATS:
        return calcsize(">" + FORMATS[wire_type])
    if wire_type == "string":
        return 1 if flexible else 2
    if isinstance(wire_type, (str, list)):
        return 1 if flexible else 4
    if nullable:
        return 1
    size = sum(smallest_size(f.type, version, flexible, version in f.nullable) for f in fields_of(wire_type, version))
    return max(size + flexible, 1)


def _compiled(source: str, names: dict[str, Any], function: str, cls: type, version: int) -> Any:
    exec(compile(source, f"<{function} {cls.__name__} v{version}>", "exec"), names)
    return names[function]


def _varint(buf: bytes, pos: int, _first: int) -> tuple[int, int]:
    # The first byte was read together with the fields before it and said that more follow.
    return read_unsigned_varint(buf, pos - 1)


def _null(field: str) -> ProtocolError:
    return ProtocolError(f"{field} is null")


def _negative(field: str, length: int) -> ProtocolError:
    return ProtocolError(f"{field} has length {length}")


def _count(field: str, count: int, remaining: int) -> ProtocolError:
    return ProtocolError(f"{field} cannot have {count} elements in {max(remaining, 0)} bytes")


def _tag_size(tag: int) -> ProtocolError:
    return ProtocolError(f"tagged field {tag} does not have the size that it says")


def _skip_tags(buf: bytes, pos: int, count: int) -> int:
    # `count` was read before `pos`. See framing.skip_tagged_fields.
    size = len(buf)
    if count * 2 > size - pos:
        raise ProtocolError(f"{count} tagged fields in {max(size - pos, 0)} bytes")
    for _ in range(count):
        _, pos = read_unsigned_varint(buf, pos)
        length, pos = read_unsigned_varint(buf, pos)
        pos += length
    return pos


def _uuid(value: bytes) -> bytes:
    # struct would silently pad or cut a value of another length.
    if len(value) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
    return value


def _elements(format: str, values: Any) -> bytes:
    return pack(f">{len(values)}{format}", *values)


_SHARED: dict[str, Any] = {
    "varint": _varint,
    "null": _null,
    "negative": _negative,
    "bad_count": _count,
    "tag_size": _tag_size,
    "skip_tags": _skip_tags,
    "uuid": _uuid,
    "elements": _elements,
    "one_byte": [bytes((value,)) for value in range(128)],
    "unsigned_varint": unsigned_varint,
    "read_varint": read_unsigned_varint,
    "unpack_from": unpack_from,
}


class _Writer:
    """What both directions share: lines with indentation, fresh names, and the run of fixed fields in hand.

    `run` collects (format, variable or expression) until something of variable size comes, and then becomes one
    Struct call.
    """

    def __init__(self, cls: type, version: int) -> None:
        schema = schema_of(cls)
        if schema.versions is not None and version not in schema.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.cls = cls
        self.version = version
        self.flexible = version in schema.flexible
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(_SHARED)
        self.run: list[tuple[str, str]] = []
        self.depth = 1
        self._counter = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def compact(self, field: Field) -> bool:
        return self.flexible and field.compact


class _EncoderWriter(_Writer):
    out = "w"
    """The name of the `append` that chunks go to: the message's own, or that of a tagged field's buffer."""

    def write(self) -> tuple[str, dict[str, Any]]:
        self.struct(self.cls, "m")
        self.flush()
        body = "\n".join(self.lines)
        return f"def encode(m):\n    out = []\n    w = out.append\n{body}\n    return out\n", self.names

    def flush(self) -> None:
        if self.run == [("B", "0")]:
            self.line(f"{self.out}(b'\\0')")
        elif self.run:
            self.line(f"{self.out}({self.packed()})")
        self.run = []

    def packed(self, *extra: tuple[str, str]) -> str:
        run = [*self.run, *extra]
        packer = self.constant("S", Struct(">" + "".join(f for f, _ in run)).pack)
        return f"{packer}({', '.join(value for _, value in run)})"

    def struct(self, cls: type, value: str) -> None:
        for field in fields_of(cls, self.version):
            self.value(field, field.type, f"{value}.{field.name}", self.version in field.nullable)
        if self.flexible:
            self.tags(tagged_fields_of(cls, self.version), value)

    def value(self, field: Field, wire_type: Any, value: str, nullable: bool) -> None:
        if isinstance(wire_type, list):
            self.array(field, wire_type[0], value, nullable)
        elif not isinstance(wire_type, str):
            self.nested(wire_type, value, nullable)
        elif wire_type == "uuid":
            self.run.append(("16s", f"uuid({value})"))
        elif wire_type in FORMATS:
            self.run.append((FORMATS[wire_type], value))
        else:
            self.blob(field, wire_type, value, nullable)

    def blob(self, field: Field, wire_type: str, value: str, nullable: bool) -> None:
        data, length = self.fresh("b"), self.fresh("n")
        compact = self.compact(field)
        encoded = f"{value}.encode()" if wire_type == "string" else value
        self.line(f"{data} = {encoded}" if not nullable else f"{data} = {value}")
        if nullable:
            self.line(f"if {data} is None:")
            self.line(f"    {data} = b''; {length} = {0 if compact else -1}")
            self.line("else:")
            if wire_type == "string":
                self.line(f"    {data} = {data}.encode()")
            self.line(f"    {length} = len({data}){' + 1' if compact else ''}")
        else:
            self.line(f"{length} = len({data}){' + 1' if compact else ''}")
        self.length(length, compact, "h" if wire_type == "string" else "i")
        self.line(f"{self.out}({data})")

    def length(self, length: str, compact: bool, format: str) -> None:
        """Append a length or count (for compact ones: already plus 1) to the run, and end the run."""
        if not compact:
            self.run.append((format, length))
            self.flush()
            return
        if not self.run:
            self.line(f"{self.out}(one_byte[{length}] if {length} < 128 else unsigned_varint({length}))")
            return
        self.line(f"if {length} < 128:")
        self.line(f"    {self.out}({self.packed(('B', length))})")
        self.line("else:")
        self.line(f"    {self.out}({self.packed()} + unsigned_varint({length}))")
        self.run = []

    def array(self, field: Field, element: Any, value: str, nullable: bool) -> None:
        items, length = self.fresh("v"), self.fresh("n")
        compact = self.compact(field)
        self.line(f"{items} = {value}")
        plus_one = " + 1" if compact else ""
        if nullable:
            self.line(f"if {items} is None:")
            self.line(f"    {items} = (); {length} = {0 if compact else -1}")
            self.line("else:")
            self.line(f"    {length} = len({items}){plus_one}")
        else:
            self.line(f"{length} = len({items}){plus_one}")
        self.length(length, compact, "i")
        if isinstance(element, str) and element in FORMATS and element != "uuid":
            self.line(f"if {items}: {self.out}(elements({FORMATS[element]!r}, {items}))")
            return
        item = self.fresh("e")
        self.line(f"for {item} in {items}:")
        self.depth += 1
        self.value(field, element, item, False)
        self.flush()
        self.depth -= 1

    def nested(self, cls: type, value: str, nullable: bool) -> None:
        if not nullable:
            self.struct(cls, value)
            return
        self.flush()
        item = self.fresh("e")
        self.line(f"{item} = {value}")
        self.line(f"if {item} is None:")
        self.line(f"    {self.out}(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self.struct(cls, item)
        self.flush()
        self.depth -= 1

    def tags(self, fields: list[Field], value: str) -> None:
        """The section of tagged fields: only those whose value is not the default are written."""
        if not fields:
            self.run.append(("B", "0"))
            return
        tests = []
        for field in fields:
            attribute = f"{value}.{field.name}"
            if field.default == ():
                tests.append(f"(len({attribute}) > 0)")
            else:
                default = self.constant("D", field.default)
                tests.append(f"({attribute} is not {default} and {attribute} != {default})")
        count = self.fresh("n")
        self.line(f"{count} = {' + '.join(tests)}")
        self.run.append(("B", count))  # the tables have far fewer than 128 tagged fields a struct
        self.flush()
        self.line(f"if {count}:")
        self.depth += 1
        for field, test in zip(fields, tests, strict=True):
            self.line(f"if {test}:")
            self.depth += 1
            self.tagged(field, f"{value}.{field.name}")
            self.depth -= 1
        self.depth -= 1

    def tagged(self, field: Field, value: str) -> None:
        assert field.tag is not None
        buffer, outer = self.fresh("t"), self.out
        self.line(f"{buffer} = []")
        self.out = f"{buffer}.append"
        self.value(field, field.type, value, self.version in field.nullable)
        self.flush()
        self.out = outer
        self.line(f"{buffer} = b''.join({buffer})")
        self.line(f"{outer}({unsigned_varint(field.tag)!r} + unsigned_varint(len({buffer})) + {buffer})")


class _DecoderWriter(_Writer):
    def write(self) -> tuple[str, dict[str, Any]]:
        message = self.struct(self.cls)
        self.flush()
        body = "\n".join(self.lines)
        return f"def decode(buf, pos):\n    size = len(buf)\n{body}\n    return {message}, pos\n", self.names

    def flush(self, *extra: tuple[str, str]) -> None:
        """Read the run of fixed fields in hand, and `extra` with it."""
        run = [*self.run, *extra]
        self.run = []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self.line(f"{run[0][1]} = buf[pos]; pos += 1")
            return
        struct = Struct(">" + "".join(f for f, _ in run))
        unpacker = self.constant("S", struct.unpack_from)
        targets = ", ".join(name for _, name in run) + ("," if len(run) == 1 else "")
        self.line(f"{targets} = {unpacker}(buf, pos); pos += {struct.size}")

    def struct(self, cls: type) -> str:
        """Read a struct's fields into variables. Returns the expression that builds it, to be used after `flush`.

        All fields up to the last present one are passed by position, defaults included: it is the quickest call.
        """
        arguments: dict[str, str] = {}
        for field in fields_of(cls, self.version):
            arguments[field.name] = self.value(field, field.type, self.version in field.nullable)
        if self.flexible:
            arguments |= self.tags(tagged_fields_of(cls, self.version))
        builder = self.constant("C", cls)
        ordered: list[str] = []
        for field in schema_of(cls).fields:
            if field.name in arguments:
                ordered.append(arguments[field.name])
            else:
                ordered.append(self.constant("D", field.default))
        return f"{builder}({', '.join(ordered)})"

    def value(self, field: Field, wire_type: Any, nullable: bool) -> str:
        """Read one value. Returns the expression for it, to be used after `flush`."""
        if isinstance(wire_type, list):
            return self.array(field, wire_type[0], nullable)
        if not isinstance(wire_type, str):
            return self.nested(wire_type, nullable)
        if wire_type in FORMATS:
            name = self.fresh("a")
            self.run.append((FORMATS[wire_type], name))
            return name
        return self.blob(field, wire_type, nullable)

    def length(self, field: Field, nullable: bool, format: str) -> tuple[str, str]:
        """Read a length or count and refuse an impossible one; the variable, and the test for null."""
        length = self.fresh("n")
        if self.compact(field):
            self.flush(("B", length))
            self.line(f"if {length} > 127: {length}, pos = varint(buf, pos, {length})")
            if not nullable:
                self.line(f"if not {length}: raise null({field.name!r})")
            self.line(f"{length} -= 1")
        else:
            self.flush((format, length))
            self.line(f"if {length} < {-1 if nullable else 0}: raise negative({field.name!r}, {length})")
        return length, f"{length} < 0"

    def blob(self, field: Field, wire_type: str, nullable: bool) -> str:
        length, is_null = self.length(field, nullable, "h" if wire_type == "string" else "i")
        data = self.fresh("a")
        read = f"{data} = buf[pos:pos + {length}]{'.decode()' if wire_type == 'string' else ''}; pos += {length}"
        if nullable:
            self.line(f"if {is_null}: {data} = None")
            self.line(f"else: {read}")
        else:
            self.line(read)
        return data

    def array(self, field: Field, element: Any, nullable: bool) -> str:
        length, is_null = self.length(field, nullable, "i")
        items = self.fresh("v")
        if nullable:
            self.line(f"if {is_null}: {items} = None")
            self.line("else:")
            self.depth += 1
        smallest = smallest_size(element, self.version, self.flexible)
        bound = f"{length} * {smallest}" if smallest > 1 else length
        self.line(f"if {bound} > size - pos: raise bad_count({field.name!r}, {length}, size - pos)")
        if isinstance(element, str) and element in FORMATS and element != "uuid":
            self.line(f"{items} = unpack_from(f'>{{{length}}}{FORMATS[element]}', buf, pos); pos += {bound}")
        else:
            self.loop(field, element, items, length)
        if nullable:
            self.depth -= 1
        return items

    def loop(self, field: Field, element: Any, items: str, length: str) -> None:
        add = self.fresh("p")
        self.line(f"{items} = []; {add} = {items}.append")
        self.line(f"for _ in range({length}):")
        self.depth += 1
        value = self.value(field, element, False)
        self.flush()
        self.line(f"{add}({value})")
        self.depth -= 1
        self.line(f"{items} = tuple({items})")

    def nested(self, cls: type, nullable: bool) -> str:
        if not nullable:
            return self.struct(cls)
        marker, name = self.fresh("n"), self.fresh("a")
        self.flush(("b", marker))
        self.line(f"if {marker} < 0: {name} = None")
        self.line("else:")
        self.depth += 1
        value = self.struct(cls)
        self.flush()
        self.line(f"{name} = {value}")
        self.depth -= 1
        return name

    def tags(self, fields: list[Field]) -> dict[str, str]:
        """The section of tagged fields: known ones are read, the others skipped and forgotten."""
        count = self.fresh("n")
        self.flush(("B", count))
        names = {field.name: self.fresh("a") for field in fields}
        for field in fields:
            self.line(f"{names[field.name]} = {self.constant('D', field.default)}")
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"if {count} > 127: {count}, pos = varint(buf, pos, {count})")
        if not fields:
            self.line(f"pos = skip_tags(buf, pos, {count})")
        else:
            self.known_tags(fields, names, count)
        self.depth -= 1
        return names

    def known_tags(self, fields: list[Field], names: dict[str, str], count: str) -> None:
        tag, end = self.fresh("t"), self.fresh("z")
        self.line(f"if {count} * 2 > size - pos: raise bad_count('tagged fields', {count}, size - pos)")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, pos = read_varint(buf, pos); {end}, pos = read_varint(buf, pos); {end} += pos")
        self.line(f"if {end} > size: raise tag_size({tag})")
        for field in fields:
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            value = self.value(field, field.type, self.version in field.nullable)
            self.flush()
            self.line(f"{names[field.name]} = {value}")
            self.line(f"if pos != {end}: raise tag_size({tag})")
            self.depth -= 1
        self.line(f"pos = {end}")
        self.depth -= 1
