"""Writes the encoder of a (message class, version); `compiler.py` shows generated code.

An encoder takes a message and the version (which it ignores), and returns the chunks of its bytes. The caller joins
them once, or keeps large ones apart, so a megabyte of records is not copied. The encoder checks nothing: for a value
that does not fit, `struct`, `len` or `encode` fails, and `explain.py` finds the field afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, pack
from typing import Any

from kohort.wire.compiler import Source
from kohort.wire.framing import unsigned_varint
from kohort.wire.layout import FORMATS, fields_of, is_flexible, tagged_fields_of
from kohort.wire.schema import Field

Encoder = Callable[[Any, int], list[bytes]]


def compile_encoder(cls: type, version: int) -> Encoder:
    encoder: Encoder = _EncoderWriter(cls, version).code.compile("encode(m, v)", f"{cls.__name__} v{version}")
    return encoder


def encoder_source(cls: type, version: int) -> str:
    return _EncoderWriter(cls, version).code.text("encode(m, v)")


def _uuid(value: bytes) -> bytes:
    # struct would silently pad or cut a value of another length.
    if len(value) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
    return value


def _elements(format: str, values: Any) -> bytes:
    return pack(f">{len(values)}{format}", *values)


_NAMES = {
    "uuid": _uuid,
    "elements": _elements,
    "one_byte": [bytes((value,)) for value in range(128)],
    "unsigned_varint": unsigned_varint,
}


class _EncoderWriter:
    def __init__(self, cls: type, version: int) -> None:
        self.version = version
        self.flexible = is_flexible(cls, version)
        self.code = Source(_NAMES)
        self.out = "w"
        """The name of the `append` that takes chunks: the message's, or that of a tagged field's buffer."""
        self.code.line("out = []; w = out.append")
        self.struct(cls, "m")
        self.flush()
        self.code.line("return out")

    def flush(self) -> None:
        if self.code.run == [("B", "0")]:
            self.code.line(f"{self.out}(b'\\0')")
        elif self.code.run:
            self.code.line(f"{self.out}({self.packed()})")
        self.code.run = []

    def packed(self, *extra: tuple[str, str]) -> str:
        run = [*self.code.run, *extra]
        packer = self.code.constant("S", Struct(">" + "".join(f for f, _ in run)).pack)
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
            self.nested(wire_type, value, nullable, tagged=field.tag is not None)
        elif wire_type == "uuid":
            self.code.run.append(("16s", f"uuid({value})"))
        elif wire_type in FORMATS:
            self.code.run.append((FORMATS[wire_type], value))
        else:
            self.blob(field, wire_type, value, nullable)

    def blob(self, field: Field, wire_type: str, value: str, nullable: bool) -> None:
        data, length = self.code.fresh("b"), self.code.fresh("n")
        compact = self.flexible and field.compact
        plus_one = " + 1" if compact else ""
        encode = ".encode()" if wire_type == "string" else ""
        size = f"len({data})"
        if wire_type == "records":
            size = f"(sum(map(len, {data})) if type({data}) is tuple else len({data}))"
        if nullable:
            self.code.line(f"{data} = {value}")
            self.code.line(f"if {data} is None: {data} = b''; {length} = {0 if compact else -1}")
            self.code.line(f"else: {data} = {data}{encode}; {length} = {size}{plus_one}")
        else:
            self.code.line(f"{data} = {value}{encode}; {length} = {size}{plus_one}")
        self.length(length, compact, "h" if wire_type == "string" else "i")
        if wire_type == "records":
            piece = self.code.fresh("p")
            self.code.line(f"for {piece} in {data} if type({data}) is tuple else ({data},): {self.out}({piece})")
        else:
            self.code.line(f"{self.out}({data})")

    def length(self, length: str, compact: bool, format: str) -> None:
        """Append a length or count (for compact ones: already plus 1) to the run, and end the run."""
        if not compact:
            self.code.run.append((format, length))
            self.flush()
            return
        if not self.code.run:
            self.code.line(f"{self.out}(one_byte[{length}] if {length} < 128 else unsigned_varint({length}))")
            return
        self.code.line(f"if {length} < 128:")
        self.code.line(f"    {self.out}({self.packed(('B', length))})")
        self.code.line("else:")
        self.code.line(f"    {self.out}({self.packed()} + unsigned_varint({length}))")
        self.code.run = []

    def array(self, field: Field, element: Any, value: str, nullable: bool) -> None:
        items, length = self.code.fresh("v"), self.code.fresh("n")
        compact = self.flexible and field.compact
        plus_one = " + 1" if compact else ""
        self.code.line(f"{items} = {value}")
        if nullable:
            self.code.line(f"if {items} is None: {items} = (); {length} = {0 if compact else -1}")
            self.code.line(f"else: {length} = len({items}){plus_one}")
        else:
            self.code.line(f"{length} = len({items}){plus_one}")
        self.length(length, compact, "i")
        if isinstance(element, str) and element in FORMATS and element != "uuid":
            self.code.line(f"if {items}: {self.out}(elements({FORMATS[element]!r}, {items}))")
            return
        item = self.code.fresh("e")
        self.code.line(f"for {item} in {items}:")
        with self.code.indented():
            self.value(field, element, item, False)
            self.flush()

    def nested(self, cls: type, value: str, nullable: bool, *, tagged: bool) -> None:
        """A nullable struct follows a marker: 1, or -1 for null (0 in a tagged field)."""
        if not nullable:
            self.struct(cls, value)
            return
        self.flush()
        item = self.code.fresh("e")
        self.code.line(f"{item} = {value}")
        null = b"\0" if tagged else b"\xff"
        self.code.line(f"if {item} is None: {self.out}({null!r})")
        self.code.line("else:")
        with self.code.indented():
            self.code.run.append(("b", "1"))
            self.struct(cls, item)
            self.flush()

    def tags(self, fields: list[Field], value: str) -> None:
        """The section of tagged fields: only those whose value is not the default are written."""
        if not fields:
            self.code.run.append(("B", "0"))
            return
        tests = []
        for field in fields:
            attribute = f"{value}.{field.name}"
            if field.default == () and self.version in field.nullable:
                tests.append(f"({attribute} is None or len({attribute}) > 0)")
            elif field.default == ():
                tests.append(f"(len({attribute}) > 0)")
            else:
                default = self.code.constant("D", field.default)
                tests.append(f"({attribute} is not {default} and {attribute} != {default})")
        count = self.code.fresh("n")
        self.code.line(f"{count} = {' + '.join(tests)}")
        self.code.run.append(("B", count))  # the tables have far fewer than 128 tagged fields a struct
        self.flush()
        self.code.line(f"if {count}:")
        with self.code.indented():
            for field, test in zip(fields, tests, strict=True):
                self.code.line(f"if {test}:")
                with self.code.indented():
                    self.tagged(field, f"{value}.{field.name}")

    def tagged(self, field: Field, value: str) -> None:
        assert field.tag is not None
        buffer, outer = self.code.fresh("t"), self.out
        self.code.line(f"{buffer} = []")
        self.out = f"{buffer}.append"
        self.value(field, field.type, value, self.version in field.nullable)
        self.flush()
        self.out = outer
        self.code.line(f"{buffer} = b''.join({buffer})")
        self.code.line(f"{outer}({unsigned_varint(field.tag)!r} + unsigned_varint(len({buffer})) + {buffer})")
