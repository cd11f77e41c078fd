"""The layout of a message in one version: fields in wire order, their formats, their minimum sizes."""

from __future__ import annotations

from struct import calcsize
from typing import Any

from kohort.wire.schema import Field, schema_of

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


def is_flexible(cls: type, version: int) -> bool:
    """True if this version of a message has compact types and tagged fields (KIP-482). ValueError if there is none."""
    schema = schema_of(cls)
    if schema.versions is not None and version not in schema.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    return version in schema.flexible


def fields_of(cls: type, version: int) -> list[Field]:
    """The untagged fields of a struct in a version, in wire order."""
    return [f for f in schema_of(cls).fields if version in f.versions and f.tag is None]


def tagged_fields_of(cls: type, version: int) -> list[Field]:
    """The tagged fields of a struct in a version, in the order of their tags."""
    tagged = [f for f in schema_of(cls).fields if version in f.versions and f.tag is not None]
    return sorted(tagged, key=lambda f: f.tag or 0)


def smallest_size(wire_type: Any, version: int, flexible: bool, nullable: bool = False) -> int:
    """The minimum size of a value of this type. Never 0, so it bounds a count."""
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


def row_format(cls: type, version: int) -> str | None:
    """The Struct format of a struct of fixed size (tagged fields apart), or None.

    Its fields must be the first ones of the class, so that a row's values can be passed by position."""
    fields = fields_of(cls, version)
    if not fields or fields != list(schema_of(cls).fields[: len(fields)]) or tagged_fields_of(cls, version):
        return None
    if not all(isinstance(f.type, str) and f.type in FORMATS for f in fields):
        return None
    return ">" + "".join(FORMATS[f.type] for f in fields)
