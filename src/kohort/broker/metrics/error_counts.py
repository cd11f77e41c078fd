"""How many errors answers have, by API. A server without /metrics counts none.

An answer has one error, or one for each of its topics, partitions, members or other rows. The places of the errors are
found once for each kind of answer; of an answer with many rows, the first MOST_ROWS are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kohort.broker.apis import APIS
from kohort.broker.metrics import families as f
from kohort.broker.metrics.samples import Samples
from kohort.wire.errors import ErrorCode
from kohort.wire.schema import schema_of

MOST_ROWS = 1_000
CODES = ("error_code", "partition_error_code")
_NAMES = {int(code): code.name for code in ErrorCode}

_Places = tuple[str, tuple[tuple[str, "Any"], ...]]
"""The field with an error, or ""; and the fields with rows that have errors."""
_KNOWN: dict[type, _Places] = {}


class ErrorCounts:
    def __init__(self) -> None:
        self.counts: dict[tuple[int, int], int] = {}
        """By API and error code."""

    def add(self, api_key: int, answer: Any) -> None:
        for code in islice(_codes(answer, _places(type(answer))), MOST_ROWS):
            if code:
                self.counts[api_key, code] = self.counts.get((api_key, code), 0) + 1


def _codes(row: Any, places: _Places) -> Iterator[int]:
    own, nested = places
    if own:
        yield getattr(row, own)
    for name, inner in nested:
        for each in getattr(row, name) or ():
            yield from _codes(each, inner)


def _places(kind: type) -> _Places:
    found = _KNOWN.get(kind)
    if found is None:
        found = _KNOWN[kind] = _look(kind)
    return found


def _look(kind: type) -> _Places:
    own, nested = "", []
    for field in schema_of(kind).fields:
        if field.name in CODES:
            own = field.name
        elif isinstance(field.type, list) and isinstance(field.type[0], type):
            inner = _places(field.type[0])
            if inner[0] or inner[1]:
                nested.append((field.name, inner))
    return own, tuple(nested)


def add_errors(samples: Samples, errors: ErrorCounts) -> None:
    for (key, code), count in sorted(errors.counts.items()):
        samples.add(f.REQUEST_ERRORS, count, APIS[key].name, _NAMES.get(code, str(code)))
