"""Lists of any length, a page at a time: searched, sorted and cut on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from starlette.datastructures import QueryParams

SIZE = 50
LONGEST_SEARCH = 250

T = TypeVar("T")
Key = Callable[[T], Any]
"""What a column sorts by. None comes last in both directions."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    rows: tuple[T, ...]
    number: int
    """From 1."""
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1 if self.total else 0


@dataclass(frozen=True, slots=True)
class Order:
    """`down`: the largest first."""

    column: str
    down: bool


def page_of(rows: Sequence[T], wanted: int) -> Page[T]:
    """A page that is out of range is the nearest one."""
    pages = max(-(-len(rows) // SIZE), 1)
    number = min(max(wanted, 1), pages)
    return Page(tuple(rows[(number - 1) * SIZE : number * SIZE]), number, pages, len(rows))


def wanted_page(query: QueryParams) -> int:
    text = query.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 9 else 1


def wanted_order(query: QueryParams, columns: Mapping[str, Any], default: Order) -> Order:
    """`sort=lag` is up, `sort=-lag` down. An unknown column gives the default."""
    text = query.get("sort", "")
    column = text.removeprefix("-")
    return Order(column, text.startswith("-")) if column in columns else default


def wanted_search(query: QueryParams) -> str:
    return query.get("q", "").strip()[:LONGEST_SEARCH]


def ordered(rows: Iterable[T], key: Key[T], down: bool, name: Callable[[T], str]) -> list[T]:
    """Rows in order of `key`; equal ones in order of their names."""
    by_name = [(key(row), row) for row in sorted(rows, key=name)]
    known = [pair for pair in by_name if pair[0] is not None]
    known.sort(key=itemgetter(0), reverse=down)  # equal rows keep their order, also with `reverse`
    return [row for _, row in known] + [row for value, row in by_name if value is None]
