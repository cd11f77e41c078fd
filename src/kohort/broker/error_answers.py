"""The answer to a request of any API that says one error, as Kafka's `getErrorResponse` gives it.

It is derived from the schemas: the answer's own error code; or, if it has none in the request's version, that of each
row. Then a row of the request, such as a topic, becomes a row of the answer with the same names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from kohort.broker.apis import Api
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import Field, Schema, all_schemas, schema_of

ERRORS = ("error_code", "partition_error_code")


def error_answer(api: Api, request: Any, version: int, error: ErrorCode) -> Any:
    """The response message."""
    return _answer(_response_of(api.key), request, version, error)


@cache
def _response_of(key: int) -> Schema:
    return next(each for each in all_schemas() if each.api_key == key and each.name.endswith("Response"))


def _answer(schema: Schema, asked: Any, version: int, error: ErrorCode) -> Any:
    """`asked`: the request, or a row of it."""
    names = {known.name: known for known in schema.fields if version in known.versions}
    if own := [name for name in ERRORS if name in names]:
        return schema.cls(**_copied(names.values(), asked) | {own[0]: error})
    rows = {}
    lists = [each for each in names.values() if _row_of(each) is not None and _has_error(each, version)]
    for each in lists:
        row = _row_of(each)
        assert row is not None
        rows[each.name] = tuple(_answer(row, one, version, error) for one in _asked_rows(asked, each.name, version))
    return schema.cls(**_copied(names.values(), asked) | rows)


def _copied(fields: Iterable[Field], asked: Any) -> dict[str, Any]:
    """What a row of the request and one of the answer have in common."""
    if isinstance(asked, str | bytes | int):
        kinds = {str: "string", bytes: "uuid", int: "int32"}
        first = next((each.name for each in fields if each.type == kinds[type(asked)]), None)
        return {} if first is None else {first: asked}
    return {each.name: getattr(asked, each.name) for each in fields if isinstance(each.type, str) and _has(asked, each)}


def _has(asked: Any, field: Field) -> bool:
    known = next((each for each in schema_of(type(asked)).fields if each.name == field.name), None)
    return known is not None and known.type == field.type


def _row_of(field: Field) -> Schema | None:
    """The schema of a list's rows."""
    kind = field.type[0] if isinstance(field.type, list) else None
    return schema_of(kind) if isinstance(kind, type) else None


def _has_error(field: Field, version: int) -> bool:
    row = _row_of(field)
    if row is None:
        return False
    own = [each for each in row.fields if version in each.versions]
    return any(each.name in ERRORS or _has_error(each, version) for each in own)


def _asked_rows(asked: Any, name: str, version: int) -> tuple[Any, ...]:
    """The list of that name in the request, or else its first one."""
    if isinstance(asked, str | bytes | int):
        return ()
    lists = {
        each.name: value
        for each in schema_of(type(asked)).fields
        if version in each.versions and isinstance(each.type, list) and (value := getattr(asked, each.name))
    }
    return tuple(lists[name] if name in lists else next(iter(lists.values()), ()))
