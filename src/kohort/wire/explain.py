"""Finds the field of a message that cannot be encoded. Runs only after an encoder has failed."""

from __future__ import annotations

from struct import error, pack
from typing import Any

from kohort.wire.layout import FORMATS, fields_of, tagged_fields_of
from kohort.wire.schema import schema_of


def explain(message: Any, version: int) -> str | None:
    """The first field that cannot be encoded, with its path; None if there is none."""
    cls = type(message)
    flexible = version in schema_of(cls).flexible
    found = _struct(message, cls, version, flexible)
    return f"{cls.__name__} v{version}: {found}" if found else None


def _struct(value: Any, cls: type, version: int, flexible: bool) -> str | None:
    if not isinstance(value, cls):
        return f"is {_shown(value)}, not a {cls.__name__}"
    tagged = tagged_fields_of(cls, version) if flexible else []
    for field in [*fields_of(cls, version), *tagged]:
        short = flexible and field.compact
        found = _value(getattr(value, field.name), field.type, version, short, version in field.nullable)
        if found:
            separator = "" if found.startswith("[") else " " if found.startswith("is ") else "."
            return f"{field.name}{separator}{found}"
    return None


def _value(value: Any, wire_type: Any, version: int, flexible: bool, nullable: bool) -> str | None:
    if value is None:
        return None if nullable else "is None, and this version has no null for it"
    if isinstance(wire_type, list):
        return _array(value, wire_type[0], version, flexible)
    if not isinstance(wire_type, str):
        return _struct(value, wire_type, version, flexible)
    if wire_type == "string":
        return _string(value, flexible)
    if wire_type in ("bytes", "records"):
        pieces = value if wire_type == "records" and isinstance(value, tuple) else (value,)
        fits = all(isinstance(piece, (bytes, bytearray, memoryview)) for piece in pieces)
        return None if fits else f"is {_shown(value)}, not bytes"
    if wire_type == "uuid":
        fits = isinstance(value, bytes) and len(value) == 16
        return None if fits else f"is {_shown(value)}, not a UUID of 16 bytes"
    try:
        pack(">" + FORMATS[wire_type], value)
    except (error, TypeError, OverflowError):
        return f"is {_shown(value)}, which is no {wire_type}"
    return None


def _array(value: Any, element: Any, version: int, flexible: bool) -> str | None:
    if not isinstance(value, (tuple, list)):
        return f"is {_shown(value)}, not a tuple"
    for index, item in enumerate(value):
        found = _value(item, element, version, flexible, False)
        if found:
            separator = " " if found.startswith("is ") else "."
            return f"[{index}]{separator}{found}"
    return None


def _string(value: Any, flexible: bool) -> str | None:
    if not isinstance(value, str):
        return f"is {_shown(value)}, not a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"is {_shown(value)}, which has no UTF-8 form"
    if size > 32767 and not flexible:
        return f"is a string of {size} bytes; this version has room for 32767"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
