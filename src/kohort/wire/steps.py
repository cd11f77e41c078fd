"""Encodes a response with many rows in steps, so that other work can be done between them. The bytes are the same.

The rows are the elements of the response's longest array, or of an array in its only element, and so on. A step encodes
the response with a part of the rows alone; what surrounds the rows is equal in all parts, and is cut off.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

import msgspec

from kohort.wire.codec import encode, response_header
from kohort.wire.framing import unsigned_varint
from kohort.wire.layout import fields_of, is_flexible
from kohort.wire.schema import schema_of

ROWS = 500
"""Rows of a step; an array inside a row counts with its elements, and so on."""
ENOUGH = 4 * ROWS
"""The rows of an array are counted up to here: to count half a million takes a tenth of a second."""


def rows_of(response: Any, version: int) -> tuple[str, ...]:
    """The fields that lead to the rows; () for a response that is encoded at once."""
    path: list[str] = []
    message = response
    while True:
        longest, most = "", ROWS
        for name in _arrays(message.__class__, version):
            rows = getattr(message, name)
            weight = _weight(rows, ENOUGH) if rows else 0
            if weight > most:
                longest, most = name, weight
        if not longest:
            return ()
        path.append(longest)
        rows = getattr(message, longest)
        if len(rows) > 1:
            return tuple(path)
        [message] = rows


@cache
def _arrays(cls: type, version: int) -> tuple[str, ...]:
    """The fields that are arrays of structs."""
    return tuple(
        field.name
        for field in fields_of(cls, version)
        if isinstance(field.type, list) and isinstance(field.type[0], type)
    )


def response_steps(
    response: Any, version: int, correlation_id: int, path: tuple[str, ...], *, api_key: int
) -> Generator[int, None, list[bytes]]:
    """Yields the size of each step. Returns the pieces of the whole response, as `response_pieces` does."""
    flexible = is_flexible(type(response), version)
    rows = _value(response, path)
    without = encode(_with(response, path, ()), version)
    with_one = encode(_with(response, path, rows[:1]), version)
    # The first difference is in the number of rows.
    start = next(at for at, (a, b) in enumerate(zip(without, with_one, strict=False)) if a != b)
    start -= 0 if flexible else 3
    after = without[start + len(_count(0, flexible)) :]
    pieces = [without[:start], _count(len(rows), flexible)]
    for part in _parts(rows):
        data = encode(_with(response, path, part), version)
        pieces.append(data[start + len(_count(len(part), flexible)) : len(data) - len(after)])
        yield len(pieces[-1])
    pieces.append(after)
    size = sum(map(len, pieces))
    return [response_header(size, correlation_id, flexible=flexible, api_key=api_key), *pieces]


def _parts(rows: Sequence[Any]) -> Generator[Sequence[Any], None, None]:
    first = weight = 0
    for at, row in enumerate(rows, 1):
        weight += _weight((row,), ROWS)
        if weight >= ROWS:
            yield rows[first:at]
            first, weight = at, 0
    if first < len(rows):
        yield rows[first:]


def _weight(rows: Sequence[Any], enough: int) -> int:
    """The number of rows, and of the elements of the arrays in them, at any depth; counted until it is `enough`."""
    weight = len(rows)
    for name, holds_structs in _inner(rows[0].__class__):
        for row in rows:
            if weight > enough:
                return weight
            if inner := getattr(row, name):
                weight += _weight(inner, enough - weight) if holds_structs else len(inner)
    return weight


@cache
def _inner(cls: type) -> tuple[tuple[str, bool], ...]:
    """The arrays of a class in any version, and whether their elements are structs."""
    return tuple(
        (field.name, isinstance(field.type[0], type)) for field in schema_of(cls).fields if isinstance(field.type, list)
    )


def _count(size: int, flexible: bool) -> bytes:
    return unsigned_varint(size + 1) if flexible else size.to_bytes(4, "big")


def _value(message: Any, path: tuple[str, ...]) -> Any:
    for name in path[:-1]:
        [message] = getattr(message, name)
    return getattr(message, path[-1])


def _with(message: Any, path: tuple[str, ...], rows: Sequence[Any]) -> Any:
    """The message with other rows."""
    name, *deeper = path
    inner = (_with(getattr(message, name)[0], tuple(deeper), rows),) if deeper else tuple(rows)
    return msgspec.structs.replace(message, **{name: inner})
