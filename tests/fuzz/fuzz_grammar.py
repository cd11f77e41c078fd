"""Valid messages drawn from the schema tables, with the positions of their structure.

This writes the bytes itself, from `kohort.wire.schema` alone: it is a second encoder, and so the oracle of the first.
The writer notes the position of every number, length, count, tag and text (`Mark`), so that a mutation can aim at one
of them instead of at any byte. A drawn message is given as a value too: the codec must read the bytes as it, and
write it as the bytes.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import kohort.wire.schemas
from kohort.wire import schema
from kohort.wire.layout import FORMATS, fields_of, is_flexible, tagged_fields_of
from kohort.wire.schema import Field

BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


class Mark(NamedTuple):
    """Something at `start` to `end` that a mutation can aim at.

    `kind` is a wire type of fixed size, or: `length16`, `length32`, `varlength` (of a string or bytes), `count32`,
    `varcount` (of an array), `tagcount`, `tag`, `tagsize`, `null` (the marker of a struct), `text`, `blob`.
    `value` is the number at that position. `body` is the end of the bytes that a length or count describes.
    """

    kind: str
    start: int
    end: int
    value: int = 0
    body: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A message: its class and version, its value, its bytes, its marks in the order of their places."""

    cls: type
    version: int
    message: Any
    data: bytes
    marks: list[Mark]


def all_messages() -> list[tuple[type, int]]:
    """Every (message class, version) of the schema tables, in a fixed order."""
    for module in pkgutil.iter_modules(kohort.wire.schemas.__path__):
        importlib.import_module(f"kohort.wire.schemas.{module.name}")
    top = [known for known in schema._SCHEMAS.values() if known.versions is not None]
    top.sort(key=lambda known: (known.name, known.cls.__module__))
    return [(known.cls, version) for known in top for version in known.versions or ()]


def varint(value: int) -> bytes:
    """An unsigned varint, encoded without kohort's code."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Words:
    """The values of the fields. Subclasses say more of some fields, by their names."""

    owner: type = object
    """The class of the struct that has the field."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def number(self, field: Field, wire_type: str) -> int:
        bits = BITS[wire_type]
        low = 0 if wire_type.startswith("u") else -(1 << bits - 1)
        high = low + (1 << bits) - 1
        pick = self.chance.random()
        if pick < 0.6:
            return int(pick * 10)
        if pick < 0.8:
            return self.chance.choice((low, low + 1, -1 if low else high, high - 1, high))
        return self.chance.randint(low, high)

    def text(self, field: Field) -> str:
        pick = self.chance.random()
        if pick < 0.75:
            return self.chance.choice(("", "a", "orders", "group-1", "é", "日本語", "a.b-c_d", "\0", "x" * 30))
        if pick < 0.97:
            return "t" * self.chance.choice((62, 63, 64, 126, 127, 128, 129))
        return self.chance.choice("xé") * self.chance.randint(100, 4000)

    def blob(self, field: Field) -> bytes:
        pick = self.chance.random()
        if pick < 0.9:
            return self.chance.randbytes(self.chance.choice((0, 1, 4, 20)))
        return bytes(self.chance.choice((126, 127, 128, 1000)))

    def uuid(self, field: Field) -> bytes:
        return self.chance.choice((schema.NO_UUID, b"\xff" * 16, self.chance.randbytes(16)))

    def count(self, field: Field, depth: int) -> int:
        return self.chance.choice((0, 1, 1, 2, 3) if depth < 2 else (0, 1, 1, 2))

    def is_null(self, field: Field) -> bool:
        return self.chance.random() < 0.25

    def has_tag(self, field: Field) -> bool:
        return self.chance.random() < 0.5


class Pen:
    """Bytes under construction, and the marks in them."""

    __slots__ = ("data", "marks")

    def __init__(self) -> None:
        self.data = bytearray()
        self.marks: list[Mark] = []

    def put(self, kind: str, data: bytes, value: int = 0) -> int:
        """Returns the index of the mark."""
        start = len(self.data)
        self.data += data
        self.marks.append(Mark(kind, start, start + len(data), value, start + len(data)))
        return len(self.marks) - 1

    def encloses(self, mark: int) -> None:
        """Mark the end of the bytes or elements that the length or count at `mark` describes."""
        self.marks[mark] = self.marks[mark]._replace(body=len(self.data))

    def take(self, other: Pen) -> None:
        shift = len(self.data)
        self.data += other.data
        for kind, start, end, value, body in other.marks:
            self.marks.append(Mark(kind, start + shift, end + shift, value, body + shift))


def draw(cls: type, version: int, words: Words) -> Drawn:
    """A valid message."""
    pen = Pen()
    message = _Draw(version, is_flexible(cls, version), words, pen).struct(cls, 0)
    return Drawn(cls, version, message, bytes(pen.data), pen.marks)


class _Draw:
    def __init__(self, version: int, flexible: bool, words: Words, pen: Pen) -> None:
        self.version = version
        self.flexible = flexible
        self.words = words
        self.pen = pen

    def struct(self, cls: type, depth: int) -> Any:
        values = {}
        for field in fields_of(cls, self.version):
            self.words.owner = cls
            values[field.name] = self.value(field, field.type, self.version in field.nullable, depth)
        if self.flexible:
            self.words.owner = cls
            values |= self.tags(tagged_fields_of(cls, self.version), depth)
        return cls(**values)

    def value(self, field: Field, wire_type: Any, nullable: bool, depth: int) -> Any:
        if isinstance(wire_type, list):
            return self.array(field, wire_type[0], nullable, depth)
        if not isinstance(wire_type, str):
            return self.nested(field, wire_type, nullable, depth)
        if wire_type == "uuid":
            value: Any = self.words.uuid(field)
            self.pen.put("uuid", value)
            return value
        if wire_type == "bool":
            value = self.words.chance.random() < 0.5
        elif wire_type == "float64":
            value = float(self.words.chance.randint(-5, 5))
        elif wire_type in FORMATS:
            value = self.words.number(field, wire_type)
        else:
            return self.blob(field, wire_type, nullable)
        self.pen.put(wire_type, struct.pack(">" + FORMATS[wire_type], value), int(value))
        return value

    def length(self, field: Field, kind: str, value: int) -> int:
        """`value` is -1 for null. `kind` is length or count, with the width of what is not compact."""
        if self.flexible and field.compact:
            return self.pen.put("var" + kind.rstrip("0123456789"), varint(value + 1), value)
        return self.pen.put(kind, value.to_bytes(2 if kind.endswith("16") else 4, "big", signed=True), value)

    def blob(self, field: Field, wire_type: str, nullable: bool) -> Any:
        kind = "length16" if wire_type == "string" else "length32"
        if nullable and self.words.is_null(field):
            self.length(field, kind, -1)
            return None
        value = self.words.text(field) if wire_type == "string" else self.words.blob(field)
        data = value.encode() if isinstance(value, str) else value
        if kind == "length16" and len(data) > 32767 and not (self.flexible and field.compact):
            data = data[:32766]
            value = data.decode()
        mark = self.length(field, kind, len(data))
        self.pen.put("text" if wire_type == "string" else "blob", data)
        self.pen.encloses(mark)
        return value

    def array(self, field: Field, element: Any, nullable: bool, depth: int) -> Any:
        if nullable and self.words.is_null(field):
            self.length(field, "count32", -1)
            return None
        count = self.words.count(field, depth)
        mark = self.length(field, "count32", count)
        items = tuple(self.value(field, element, False, depth + 1) for _ in range(count))
        self.pen.encloses(mark)
        return items

    def nested(self, field: Field, cls: type, nullable: bool, depth: int) -> Any:
        if not nullable:
            return self.struct(cls, depth + 1)
        if self.words.is_null(field):
            self.pen.put("null", b"\0" if field.tag is not None else b"\xff", -1)
            return None
        self.pen.put("null", b"\x01", 1)
        return self.struct(cls, depth + 1)

    def tags(self, fields: list[Field], depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        sections = []
        for field in fields:
            values[field.name] = field.default
            if not self.words.has_tag(field):
                continue
            outer, self.pen = self.pen, Pen()
            value = self.value(field, field.type, self.version in field.nullable, depth)
            section, self.pen = self.pen, outer
            if value != field.default:  # a default is not written
                values[field.name] = value
                sections.append((field.tag or 0, section))
        mark = self.pen.put("tagcount", varint(len(sections)), len(sections))
        for tag, section in sections:
            self.pen.put("tag", varint(tag), tag)
            size = self.pen.put("tagsize", varint(len(section.data)), len(section.data))
            self.pen.take(section)
            self.pen.encloses(size)
        self.pen.encloses(mark)
        return values
