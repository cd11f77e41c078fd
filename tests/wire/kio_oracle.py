"""kio (PyPI) as the oracle of the codec: the same message as one of our classes and as one of kio's.

kio has a class for each version of a message. It gives some integers richer types (timedelta, datetime, an enum of
error codes), drops the unit from the names of those, and takes None for an all-zero UUID. The conversions here are
generic: they follow the metadata of kio's dataclass fields.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import pkgutil
import re
import typing
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

import kohort.wire.schemas
from kohort.wire import schema
from kohort.wire.schema import Schema, schema_of

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "timedelta_i32": (-(2**31), 2**31 - 1),
    "timedelta_i64": (-(2**46), 2**46),
    "datetime_i64": (0, 2**47),
}


def examples(most: int) -> settings:
    """The same in every run."""
    return settings(
        max_examples=most, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def top_level_schemas() -> list[Schema]:
    """The schema of every message that has versions of its own."""
    for module in pkgutil.iter_modules(kohort.wire.schemas.__path__):
        importlib.import_module(f"kohort.wire.schemas.{module.name}")
    found = [known for known in schema._SCHEMAS.values() if known.versions is not None]
    return sorted(found, key=lambda known: known.name)


def pairs() -> Iterator[tuple[type, int]]:
    """Every (message class, version) of the wire. Another module may have declared messages of its own by now."""
    for known in top_level_schemas():
        if known.cls.__module__.startswith("kohort.wire."):
            yield from ((known.cls, version) for version in known.versions)


@functools.cache
def kio_class(cls: type, version: int) -> Any:
    """kio's class for one version of one of our top-level messages, or None."""
    name = cls.__name__
    kind = next((kind for kind in ("Request", "Response", "Header") if name.endswith(kind)), "data")
    stem = name if kind in ("Header", "data") else name.removesuffix(kind)
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower()
    try:
        module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind.lower()}")
    except ImportError:
        return None
    return getattr(module, name)


def pairs_in_kio() -> list[tuple[type, int]]:
    return [(cls, version) for cls, version in pairs() if kio_class(cls, version) is not None]


@dataclasses.dataclass(frozen=True)
class Twin:
    """One field, ours and kio's."""

    name: str
    kio_name: str
    kio_type: str | None
    is_array: bool
    nested: Any
    """kio's class of a nested struct, or None."""
    nullable: bool
    tag: int | None
    ours: schema.Field


def is_own(field: schema.Field) -> bool:
    """A tagged field that Kafka does not have. Unless a client asks for it, it has its default and takes no bytes."""
    return field.tag is not None and field.tag >= schema.OWN_TAGS


@functools.cache
def twins(cls: type, kio: Any, version: int) -> list[Twin]:
    """The fields of a struct in a version. An assertion fails where the tables do not agree on them."""
    theirs = {field.name: field for field in dataclasses.fields(kio)}
    hints = typing.get_type_hints(kio)
    ours = [field for field in schema_of(cls).fields if version in field.versions and not is_own(field)]
    result = []
    for field in ours:
        name = field.name if field.name in theirs else field.name.removesuffix("_ms")
        hint = hints[name]
        choices = [hint]
        if type(None) in typing.get_args(hint):
            choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        is_array = typing.get_origin(choices[0]) is tuple
        assert is_array == isinstance(field.type, list)
        element = typing.get_args(choices[0])[0] if is_array else choices[0]
        nested = element if dataclasses.is_dataclass(element) else None
        metadata = theirs[name].metadata
        assert metadata.get("tag") == field.tag
        kio_type = metadata.get("kafka_type")
        nullable = len(choices) == 1 and choices[0] is not hint
        result.append(Twin(field.name, name, kio_type, is_array, nested, nullable, field.tag, field))
    assert [twin.kio_name for twin in result] == list(theirs)
    return result


def _each(convert: Callable[..., Any], value: Any, twin: Twin, version: int) -> Any:
    if twin.is_array and value is not None:
        return tuple(convert(item, twin, version) for item in value)
    return convert(value, twin, version)


def to_kio(message: Any, kio: Any, version: int) -> Any:
    fields = twins(type(message), kio, version)
    return kio(**{f.kio_name: _each(_value_to_kio, getattr(message, f.name), f, version) for f in fields})


def _value_to_kio(value: Any, twin: Twin, version: int) -> Any:
    if value is None:
        return None
    if twin.nested:
        return to_kio(value, twin.nested, version)
    match twin.kio_type:
        case "uuid":
            return uuid.UUID(bytes=value) if value != schema.NO_UUID else None
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return None if value == -1 and twin.nullable else EPOCH + value * MILLISECOND
    return value


def from_kio(entity: Any, cls: type, version: int) -> Any:
    fields = twins(cls, type(entity), version)
    return cls(**{f.name: _each(_value_from_kio, getattr(entity, f.kio_name), f, version) for f in fields})


def _value_from_kio(value: Any, twin: Twin, version: int) -> Any:
    if twin.kio_type == "uuid":
        return schema.NO_UUID if value is None else value.bytes
    if twin.kio_type == "datetime_i64" and value is None:
        return -1
    if value is None:
        return None
    if twin.nested:
        wire_type = twin.ours.type
        return from_kio(value, wire_type[0] if isinstance(wire_type, list) else wire_type, version)
    match twin.kio_type:
        case "error_code":
            return value.value[0] if isinstance(value.value, tuple) else int(value.value)
        case "timedelta_i32" | "timedelta_i64":
            return value // MILLISECOND
        case "datetime_i64":
            return round((value - EPOCH) / MILLISECOND)  # kio goes through a float, which may be a microsecond short
    return value


def kio_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_decode(kio: Any, data: bytes) -> Any:
    entity, size = entity_reader(kio)(data, 0)
    assert size == len(data)
    return entity


@functools.cache
def messages(cls: type, kio: Any, version: int) -> st.SearchStrategy[Any]:
    """Messages of a class with any values that kio can hold as well."""
    fields = {}
    for twin in twins(cls, kio, version):
        wire_type = twin.ours.type
        strategy = _values(wire_type[0] if twin.is_array else wire_type, twin, version)
        if twin.is_array:
            strategy = st.lists(strategy, max_size=3).map(tuple)
        if version in twin.ours.nullable and twin.tag is None and (twin.nullable or twin.kio_type != "records"):
            strategy = st.none() | strategy
        if twin.tag is not None:
            strategy = st.just(twin.ours.default) | strategy
        fields[twin.name] = strategy
    return st.builds(cls, **fields)


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.integers(100, 300).map("é".__mul__)
BLOBS = st.binary(max_size=20) | st.integers(120, 20000).map(bytes)


def _values(wire_type: Any, twin: Twin, version: int) -> st.SearchStrategy[Any]:
    if twin.nested:
        return messages(wire_type, twin.nested, version)
    match twin.kio_type:
        case "bool":
            return st.booleans()
        case "string":
            return TEXTS
        case "bytes" | "records":
            return BLOBS
        case "uuid":
            return st.binary(min_size=16, max_size=16)
        case "float64":
            return st.floats(allow_nan=False)
        case "error_code":
            return st.sampled_from([_value_from_kio(code, twin, version) for code in KioErrorCode])
    strategy: st.SearchStrategy[int] = st.integers(*RANGES[twin.kio_type])
    if twin.kio_type == "datetime_i64" and twin.nullable:
        strategy = st.just(-1) | strategy
    return strategy
