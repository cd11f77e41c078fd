"""A schema from a sample of JSON values, and names for its columns. Pure: no Spark, no IO.

Every value of the sample fits the inferred schema without loss. These become a string with the JSON text: an integer
beyond 64 bits, an array of different types, and a field with an object in one value and a number in another. A field
that is null or empty in all values is a string, too. Types are those of Spark's JSON form of a schema: "long",
"double", "boolean", "string", {"type": "array", …}, {"type": "struct", …}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_FIELDS = 1000
"""An object with more different names than this is a map rather than a record, and becomes a string. At the top level
the first fields become columns and the others stay in `_rest`."""

LONG = 2**63
EXACT = 2**53
"""Integers up to here are exact as doubles."""

Type = Any
"""A type in JSON form: a name, or an object for arrays and structs."""


@dataclass(slots=True)
class _Seen:
    """The values seen so far at one position in the values."""

    kinds: set[str]
    fields: dict[str, _Seen]
    elements: _Seen | None = None
    inexact: bool = False
    """True if there was an integer that a double cannot represent."""

    @classmethod
    def nothing(cls) -> _Seen:
        return cls(set(), {})

    def see(self, value: Any) -> None:
        match value:
            case None:
                pass
            case bool():
                self.kinds.add("boolean")
            case int():
                self.kinds.add("long" if -LONG <= value < LONG else "string")
                self.inexact |= abs(value) > EXACT
            case float():
                self.kinds.add("double" if math.isfinite(value) else "string")
            case str():
                self.kinds.add("string")
            case list():
                self.kinds.add("array")
                self.elements = self.elements or _Seen.nothing()
                for element in value:
                    self.elements.see(element)
            case dict():
                self.kinds.add("struct")
                for name, inner in value.items():
                    if len(self.fields) <= MOST_FIELDS or name in self.fields:
                        self.fields.setdefault(name, _Seen.nothing()).see(inner)

    def type(self) -> Type:
        if self.kinds == {"long", "double"} and not self.inexact:
            return "double"
        if len(self.kinds) != 1:
            return "string"
        [kind] = self.kinds
        if kind == "array":
            assert self.elements is not None
            return {"type": "array", "elementType": self.elements.type(), "containsNull": True}
        if kind == "struct":
            return self.struct() if 0 < len(self.fields) <= MOST_FIELDS else "string"
        return kind

    def struct(self) -> Type:
        rest = {"nullable": True, "metadata": {}}
        fields = [{"name": name, "type": seen.type(), **rest} for name, seen in self.fields.items()]
        return {"type": "struct", "fields": fields}


def infer(values: Iterable[bytes | None]) -> Type | None:
    """The struct of the JSON objects among the values, with the fields in the order of their first appearance.

    Skips values that are not JSON objects, which will be dead letters. None if there are no objects.
    """
    seen = _Seen.nothing()
    for value in values:
        try:
            parsed = json.loads(value.decode()) if value is not None else None
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            seen.see(parsed)
    if not seen.fields:
        return None
    struct = seen.struct()
    struct["fields"] = struct["fields"][:MOST_FIELDS]
    return struct


def extended(known: Type, found: Type) -> Type:
    """A struct with the fields of `known` and then those that only `found` has, at every depth.

    No type changes, so the existing files keep their meaning.
    """
    if not (_is(known, "struct") and _is(found, "struct")):
        if _is(known, "array") and _is(found, "array"):
            return {**known, "elementType": extended(known["elementType"], found["elementType"])}
        return known
    fields = {field["name"]: field for field in known["fields"]}
    for field in found["fields"]:
        before = fields.setdefault(field["name"], field)
        fields[field["name"]] = {**before, "type": extended(before["type"], field["type"])}
    return {**known, "fields": list(fields.values())}


def _is(kind: Type, name: str) -> bool:
    return isinstance(kind, dict) and kind.get("type") == name


def column_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """A column name for each field: the field's name, or `value_NAME` if a column of the record has that name.

    If two names differ only in case, which Spark and many catalogs ignore, the second one gets a number.
    """
    record = {name.lower() for name in taken}
    used = set(record)
    columns = []
    for name in names:
        plain = name or "_"
        wanted = f"value_{plain}" if plain.lower() in record else plain
        chosen, number = wanted, 2
        while chosen.lower() in used:
            chosen, number = f"{wanted}_{number}", number + 1
        used.add(chosen.lower())
        columns.append(chosen)
    return columns


def renamed(kind: Type, taken: Collection[str] = ()) -> Type:
    """The same type with names that a table allows, at every depth. Fields keep their order."""
    if _is(kind, "struct"):
        names = column_names([field["name"] for field in kind["fields"]], taken)
        return {
            **kind,
            "fields": [
                {**field, "name": name, "type": renamed(field["type"])}
                for field, name in zip(kind["fields"], names, strict=True)
            ],
        }
    if _is(kind, "array"):
        return {**kind, "elementType": renamed(kind["elementType"])}
    if _is(kind, "map"):
        return {**kind, "valueType": renamed(kind["valueType"])}
    return kind


def describe(kind: Type) -> str:
    """A type in SQL: `bigint`, `array<string>`, `struct<a: double>`."""
    if _is(kind, "struct"):
        return "struct<" + ", ".join(f"{f['name']}: {describe(f['type'])}" for f in kind["fields"]) + ">"
    if _is(kind, "array"):
        return f"array<{describe(kind['elementType'])}>"
    if _is(kind, "map"):
        return f"map<{describe(kind['keyType'])}, {describe(kind['valueType'])}>"
    return {"long": "bigint", "integer": "int"}.get(kind, kind) if isinstance(kind, str) else str(kind)
