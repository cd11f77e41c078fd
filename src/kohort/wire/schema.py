"""The vocabulary of the schema tables in `kohort.wire.schemas`.

A message is one class for all versions; its fields have a wire type and the versions in which they exist. `codec.py`
compiles one encoder and one decoder for each (message, version) from these tables on first use. Source of the tables:
Apache Kafka's message definitions (trunk, August 2026).

Version ranges are written as Kafka writes them: "3+" (from 3 on), "0-9" (both included), "4" (only 4), and left
out where a field exists in every version of its message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, dataclass_transform

import msgspec

Uuid = bytes
"""Sixteen raw bytes. `NO_UUID` means absent, as on the wire."""

NO_UUID: Uuid = bytes(16)

ANY_VERSION = 32767

OWN_TAGS = 30_000
"""Tags from here on are kohort's own. Kafka's tags start at 0; readers skip unknown tags."""

PRIMITIVES: dict[str, tuple[type, Any]] = {
    "bool": (bool, False),
    "int8": (int, 0),
    "int16": (int, 0),
    "uint16": (int, 0),
    "int32": (int, 0),
    "uint32": (int, 0),
    "int64": (int, 0),
    "float64": (float, 0.0),
    "uuid": (bytes, NO_UUID),
    "string": (str, ""),
    "bytes": (bytes, b""),
    "records": (bytes, b""),
}
"""Wire type: Python type and default. Records may also be a tuple of bytes, which is written as their concatenation
without a copy."""


class Versions(msgspec.Struct, frozen=True):
    """An inclusive range of message versions."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> Any:
        return iter(range(self.first, self.last + 1))


@cache
def parse_versions(text: str) -> Versions:
    if text in ("", "none"):
        return Versions(1, 0)
    if text.endswith("+"):
        return Versions(int(text[:-1]), ANY_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


WireType = Any
"""A name from PRIMITIVES, a message class (a struct), or a list of one of them (an array)."""


class Field(msgspec.Struct, frozen=True):
    """One field of a message: its wire type and versions."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    compact: bool


class _Declared(msgspec.Struct, frozen=True):
    type: WireType
    versions: str
    nullable: str
    tag: int | None
    default: Any
    compact: bool


class Schema(msgspec.Struct, frozen=True):
    """A message class as the codec needs it."""

    name: str
    cls: type
    fields: tuple[Field, ...]
    versions: Versions | None = None
    flexible: Versions = Versions(1, 0)
    api_key: int | None = None


_UNSET: Any = object()
_T = TypeVar("_T")
_SCHEMAS: dict[type, Schema] = {}


def field(
    type: WireType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = _UNSET,
    compact: bool = True,
) -> Any:
    """Declare a field of a message. `nullable` is the range of versions in which the value may be null.

    `compact=False` keeps the plain length prefix in flexible versions too; only a request header's client id does."""
    return _Declared(type, versions, nullable, tag, default, compact)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def message(
    *, versions: str | None = None, flexible: str = "none", api_key: int | None = None
) -> Callable[[type[_T]], type[_T]]:
    """Make a frozen message class from a schema table.

    `versions` are the valid versions of a top-level message (nested structs have none of their own), `flexible`
    those with compact types and tagged fields (KIP-482), `api_key` the key of a request or response.
    Every instance is immutable, compares by value, and is built with keyword arguments."""

    def build(table: type[_T]) -> type[_T]:
        annotations = table.__annotations__
        fields = []
        for name in annotations:
            declared: _Declared = table.__dict__[name]
            default = declared.default
            if default is _UNSET:
                default = _zero(declared.type)
            fields.append(
                Field(
                    name,
                    declared.type,
                    parse_versions(declared.versions),
                    parse_versions(declared.nullable),
                    declared.tag,
                    default,
                    declared.compact,
                )
            )
        cls = msgspec.defstruct(
            table.__name__,
            [(f.name, annotations[f.name], f.default) for f in fields],
            frozen=True,
            gc=False,
            module=table.__module__,
            namespace={"__doc__": table.__doc__},
        )
        _SCHEMAS[cls] = Schema(
            table.__name__,
            cls,
            tuple(fields),
            parse_versions(versions) if versions is not None else None,
            parse_versions(flexible),
            api_key,
        )
        return cls  # type: ignore[return-value]

    return build


def schema_of(cls: type) -> Schema:
    """The schema table of a message class. KeyError if `cls` is not one."""
    return _SCHEMAS[cls]


def all_schemas() -> tuple[Schema, ...]:
    """Of all imported tables, in the order of import."""
    return tuple(_SCHEMAS.values())


def _zero(type: WireType) -> Any:
    if isinstance(type, list):
        return ()
    if isinstance(type, str):
        return PRIMITIVES[type][1]
    return type()
