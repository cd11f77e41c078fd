"""Writes a second codec from the same schema tables, as typed Python for mypyc.

The interpreter is fast with few calls that unpack many fields each (compiler.py). Compiled code is fast with many
simple calls and comparisons of the version. So here each class, nested ones too, gets one function that reads it and
one that writes it, in all versions of all messages that contain it:

    def read_HeartbeatRequest(buf: bytes, pos: i64, v: i64) -> tuple[Any, i64]:
        compact = v >= 4
        a1, pos = read_string(buf, pos, compact, "group_id")
        a2 = read_i32_be(buf, pos); pos += 4
        ...

Each table module gets one generated module, `kohort.wire.typed_…`, which `codec.py` loads with the first message of the
table. `kohort.compiled` says which builds are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from kohort.wire.layout import smallest_size
from kohort.wire.schema import Field, Schema, schema_of

PREFIX = "kohort.wire.typed_"
VALUES = "kohort.wire.typed_values"

_FIXED = {
    "int8": ("read_i8", "write_i8", 1),
    "int16": ("read_i16_be", "write_i16_be", 2),
    "uint16": ("read_u16", "write_u16", 2),
    "int32": ("read_i32_be", "write_i32_be", 4),
    "uint32": ("read_u32", "write_u32", 4),
    "int64": ("read_i64_be", "write_i64_be", 8),
    "float64": ("read_f64_be", "write_f64_be", 8),
    "uuid": ("read_uuid", "write_uuid", 16),
}
"""Wire types of fixed size except bool: the reading function, the writing function, the size in bytes."""

_HEAD = '''"""Written by kohort.wire.typed from the tables of {tables}; compiled, and not to be edited."""

from typing import Any, Final

from librt.strings import (
    BytesWriter, read_f64_be, read_i16_be, read_i32_be, read_i64_be,
    write_f64_be, write_i16_be, write_i32_be, write_i64_be,
)
from mypy_extensions import i64

import {tables} as tables
from kohort.wire.schema import schema_of
from kohort.wire.typed_values import (
    bad_tag, chunks, read_blob, read_count, read_i8, read_nullable_blob, read_nullable_string, read_string, read_tag,
    read_tag_count, read_u16, read_u32, read_uuid, skip_tags, write_blob, write_bool, write_i8, write_length,
    write_nullable_blob, write_nullable_records, write_nullable_string, write_records, write_string,
    write_tagged, write_u16, write_u32, write_uuid, write_varint,
)

'''


def module_name(tables: str) -> str:
    """The generated module of a module of tables."""
    return PREFIX + tables.rpartition(".")[2]


def typed_source(tables: str, schemas: Iterable[Schema]) -> str:
    """The generated module of `tables`; `schemas` are all that there are."""
    meanings = _meanings(schemas)
    classes = [cls for cls in meanings if cls.__module__ == tables]
    return _HEAD.format(tables=tables) + "\n".join(_ClassWriter(cls, meanings[cls]).text() for cls in classes)


def _meanings(schemas: Iterable[Schema]) -> dict[type, dict[int, bool]]:
    """For each class the versions of the messages that contain it, and whether they are flexible. A nested class comes
    before the class that contains it."""
    found: dict[type, dict[int, bool]] = {}

    def visit(cls: type, versions: dict[int, bool]) -> None:
        for part in _parts(cls):
            of_part = {
                version: flexible
                for version, flexible in versions.items()
                if any(version in field.versions for field in schema_of(cls).fields if part in _classes_in(field.type))
            }
            visit(part, of_part)
        known = found.setdefault(cls, {})
        for version, flexible in versions.items():
            assert known.setdefault(version, flexible) == flexible, f"{cls.__name__} v{version} means two things"

    for schema in schemas:
        if schema.versions is not None:
            visit(schema.cls, {version: version in schema.flexible for version in schema.versions})
    return found


def _classes_in(wire_type: Any) -> tuple[type, ...]:
    while isinstance(wire_type, list):
        wire_type = wire_type[0]
    return () if isinstance(wire_type, str) else (wire_type,)


def _parts(cls: type) -> list[type]:
    return [part for field in schema_of(cls).fields for part in _classes_in(field.type)]


class _ClassWriter:
    """Writes the two functions of a class, and a third that starts a whole message."""

    def __init__(self, cls: type, versions: dict[int, bool]) -> None:
        self.cls = cls
        self.schema = schema_of(cls)
        self.versions = versions
        """Of each version, whether it is flexible."""
        self.flexible = self.by_version(lambda version: versions[version])
        self.lines: list[str] = []
        self.constants: list[str] = []
        self.depth = 0
        self.count = 0
        self.within = list(versions)
        """The versions that execute the current line."""

    def text(self) -> str:
        name = self.cls.__name__
        self.line(f"def read_{name}(buf: bytes, pos: i64, v: i64) -> tuple[Any, i64]:")
        with self.indented():
            self.read()
        self.line("")
        self.line(f"def write_{name}(w: BytesWriter, out: list[bytes], m: Any, v: i64) -> None:")
        with self.indented():
            self.write()
        if self.schema.versions is not None:
            self.line("")
            self.line(f"def encode_{name}(m: Any, v: i64) -> list[bytes]:")
            with self.indented():
                self.line("w, out = BytesWriter(), list[bytes]()")
                self.line(f"write_{name}(w, out, m, v)")
                self.line("return chunks(out, w)")
        return "\n".join([*self.constants, "", *self.lines, ""])

    # -- the text

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, expression: str) -> str:
        name = f"_{self.cls.__name__}_{len(self.constants)}"
        self.constants.append(f"{name}: Final[Any] = {expression}")
        return name

    def by_version(self, of: Callable[[int], Any]) -> str:
        """An expression of the version `v`: a number or a boolean."""
        runs: list[tuple[int, Any]] = []
        for version in sorted(self.versions if not hasattr(self, "within") else self.within):
            value = of(version)
            if not runs or runs[-1][1] != value:
                runs.append((version, value))
        if len(runs) == 1:
            return repr(runs[0][1])
        if all(isinstance(value, bool) for _, value in runs) and len(runs) == 2:
            return f"v {'>=' if runs[1][1] else '<'} {runs[1][0]}"
        text = repr(runs[-1][1])
        for (_, value), (following, _) in reversed(list(pairwise(runs))):
            text = f"{value!r} if v < {following} else {text}"
        return f"({text})"

    def one_of(self, versions: list[int]) -> str:
        return self.by_version(lambda version: version in versions)

    @contextmanager
    def only_in(self, versions: list[int], otherwise: str = "") -> Iterator[None]:
        """Lines written inside run in these versions only; `otherwise` in the others."""
        outer = self.within
        if versions == outer:
            yield
            return
        condition = self.one_of(versions)
        self.line(f"if {condition}:")
        self.within = versions
        with self.indented():
            yield
        self.within = outer
        if otherwise:
            self.line("else:")
            with self.indented():
                self.line(otherwise)

    def present(self, field: Field) -> list[int]:
        return [version for version in self.within if version in field.versions]

    def is_compact(self, field: Field) -> str:
        return "compact" if field.compact else "False"

    def nullabilities(self, field: Field) -> Iterator[bool]:
        """True if the field may be null. If only some versions allow it: True, then False, around the two branches."""
        null = [version for version in self.within if version in field.nullable]
        if not null or null == self.within:
            yield bool(null)
            return
        outer = self.within
        others = [version for version in outer if version not in null]
        for nullable, versions, head in ((True, null, f"if {self.one_of(null)}:"), (False, others, "else:")):
            self.line(head)
            self.within = versions
            with self.indented():
                yield nullable
        self.within = outer

    def default(self, field: Field) -> str:
        index = [f.name for f in self.schema.fields].index(field.name)
        return self.constant(f"schema_of(tables.{self.cls.__name__}).fields[{index}].default")

    # -- reading

    def read(self) -> None:
        self.line(f"compact = {self.flexible}")
        names: dict[str, str] = {}
        for field in self.schema.fields:
            name = names[field.name] = self.fresh("a")
            present = self.present(field)
            if field.tag is not None or not present:
                self.line(f"{name}: Any = {self.default(field)}")
                continue
            self.line(f"{name}: Any")
            with self.only_in(present, f"{name} = {self.default(field)}" if present != self.within else ""):
                self.read_value(field, name)
        flexible = [version for version in self.within if self.versions[version]]
        if flexible:
            with self.only_in(flexible):
                self.read_tags(names)
        builder = self.constant(f"tables.{self.cls.__name__}")
        self.line(f"return {builder}({', '.join(names.values())}), pos")

    def read_value(self, field: Field, name: str) -> None:
        for nullable in self.nullabilities(field):
            self.read_one(field, field.type, name, nullable)

    def read_one(self, field: Field, wire_type: Any, name: str, nullable: bool) -> None:
        compact = self.is_compact(field)
        if isinstance(wire_type, list):
            self.read_array(field, wire_type[0], name, nullable)
        elif not isinstance(wire_type, str):
            self.read_nested(wire_type, name, nullable, tagged=field.tag is not None)
        elif wire_type == "bool":
            self.line(f"{name} = buf[pos] != 0")
            self.line("pos += 1")
        elif wire_type in _FIXED:
            reader, _, size = _FIXED[wire_type]
            self.line(f"{name} = {reader}(buf, pos)")
            self.line(f"pos += {size}")
        else:
            reader = "read_nullable_" if nullable else "read_"
            reader += "string" if wire_type == "string" else "blob"
            self.line(f"{name}, pos = {reader}(buf, pos, {compact}, {field.name!r})")

    def read_array(self, field: Field, element: Any, name: str, nullable: bool) -> None:
        count, items, item = self.fresh("n"), self.fresh("v"), self.fresh("e")
        smallest = self.by_version(lambda version: smallest_size(element, version, self.versions[version]))
        compact = self.is_compact(field)
        self.line(f"{count}, pos = read_count(buf, pos, {compact}, {nullable}, {smallest}, {field.name!r})")
        if nullable:
            self.line(f"if {count} < 0: {name} = None")
            self.line("else:")
        self.depth += nullable
        self.line(f"{items}: list[Any] = []")
        self.line(f"while {count} > 0:")
        with self.indented():
            self.line(f"{item}: Any")
            self.read_one(field, element, item, False)
            self.line(f"{items}.append({item})")
            self.line(f"{count} -= 1")
        self.line(f"{name} = tuple({items})")
        self.depth -= nullable

    def read_nested(self, cls: type, name: str, nullable: bool, *, tagged: bool) -> None:
        read = f"{name}, pos = read_{cls.__name__}(buf, pos, v)"
        if not nullable:
            self.line(read)
            return
        marker = self.fresh("n")
        self.line(f"{marker} = read_i8(buf, pos)")
        self.line("pos += 1")
        self.line(f"if {marker} {'<=' if tagged else '<'} 0: {name} = None")
        self.line(f"else: {read}")

    def read_tags(self, names: dict[str, str]) -> None:
        tagged = [field for field in self.schema.fields if field.tag is not None and self.present(field)]
        if not tagged:
            self.line("pos = skip_tags(buf, pos)")
            return
        count, tag, end = self.fresh("n"), self.fresh("t"), self.fresh("z")
        self.line(f"{count}, pos = read_tag_count(buf, pos)")
        self.line(f"while {count} > 0:")
        with self.indented():
            self.line(f"{tag}, {end}, pos = read_tag(buf, pos)")
            for field in tagged:
                outer, present = self.within, self.present(field)
                test = "" if present == outer else " and " + self.one_of(present)
                self.line(f"if {tag} == {field.tag}{test}:")
                self.within = present
                with self.indented():
                    self.read_value(field, names[field.name])
                    self.line(f"if pos != {end}: raise bad_tag({tag})")
                self.within = outer
            self.line(f"pos = {end}")
            self.line(f"{count} -= 1")

    # -- writing

    def write(self) -> None:
        self.line(f"compact = {self.flexible}")
        for field in self.schema.fields:
            present = self.present(field)
            if field.tag is None and present:
                with self.only_in(present):
                    self.write_value(field, f"m.{field.name}", "w", "out")
        flexible = [version for version in self.within if self.versions[version]]
        if flexible:
            with self.only_in(flexible):
                self.write_tags()

    def write_value(self, field: Field, value: str, w: str, out: str) -> None:
        for nullable in self.nullabilities(field):
            self.write_one(field, field.type, value, nullable, w, out)

    def write_one(self, field: Field, wire_type: Any, value: str, nullable: bool, w: str, out: str) -> None:
        compact = self.is_compact(field)
        null = "nullable_" if nullable else ""
        if isinstance(wire_type, list):
            self.write_array(field, wire_type[0], value, nullable, w, out)
        elif not isinstance(wire_type, str):
            self.write_nested(wire_type, value, nullable, w, out, tagged=field.tag is not None)
        elif wire_type == "bool":
            self.line(f"write_bool({w}, {value})")
        elif wire_type in _FIXED:
            self.line(f"{_FIXED[wire_type][1]}({w}, {value})")
        elif wire_type == "string":
            self.line(f"write_{null}string({w}, {value}, {compact})")
        else:
            kind = "records" if wire_type == "records" else "blob"
            self.line(f"write_{null}{kind}({w}, {out}, {value}, {compact})")

    def write_array(self, field: Field, element: Any, value: str, nullable: bool, w: str, out: str) -> None:
        items, item, compact = self.fresh("v"), self.fresh("e"), self.is_compact(field)
        self.line(f"{items}: Any = {value}")
        if nullable:
            self.line(f"if {items} is None: write_length({w}, -1, {compact}, True)")
            self.line("else:")
        self.depth += nullable
        self.line(f"write_length({w}, len({items}), {compact}, True)")
        self.line(f"for {item} in {items}:")
        with self.indented():
            self.write_one(field, element, item, False, w, out)
        self.depth -= nullable

    def write_nested(self, cls: type, value: str, nullable: bool, w: str, out: str, *, tagged: bool) -> None:
        if not nullable:
            self.line(f"write_{cls.__name__}({w}, {out}, {value}, v)")
            return
        item = self.fresh("e")
        self.line(f"{item}: Any = {value}")
        self.line(f"if {item} is None: {w}.append({0 if tagged else 255})")
        self.line("else:")
        with self.indented():
            self.line(f"{w}.append(1)")
            self.line(f"write_{cls.__name__}({w}, {out}, {item}, v)")

    def write_tags(self) -> None:
        """Only those whose value is not the default."""
        tests: list[tuple[Field, str]] = []
        for field in sorted(self.schema.fields, key=lambda f: -1 if f.tag is None else f.tag):
            present = self.present(field)
            if field.tag is None or not present:
                continue
            test, value = self.fresh("t"), self.fresh("e")
            self.line(f"{value}: Any = m.{field.name}")
            self.line(f"{test} = {self.is_told(field, value)}")
            if present != self.within:
                self.line(f"if not ({self.one_of(present)}): {test} = False")
            tests.append((field, test))
        if not tests:
            self.line("w.append(0)")
            return
        count = " + ".join(f"(1 if {test} else 0)" for _, test in tests)
        self.line(f"write_varint(w, {count})")
        for field, test in tests:
            w, out = self.fresh("w"), self.fresh("o")
            self.line(f"if {test}:")
            outer, self.within = self.within, self.present(field)
            with self.indented():
                self.line(f"{w}, {out} = BytesWriter(), list[bytes]()")
                self.write_value(field, f"m.{field.name}", w, out)
                self.line(f"write_tagged(w, {field.tag}, {out}, {w})")
            self.within = outer

    def is_told(self, field: Field, value: str) -> str:
        if field.default != ():
            return f"{value} != {self.default(field)}"
        null = self.by_version(lambda version: version in field.nullable)
        if null == "False":
            return f"len({value}) > 0"
        return f"({value} is None and {null}) or len({value}) > 0"
