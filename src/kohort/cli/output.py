"""Output of commands: tables for people, JSON and YAML for programs.

A table has plain columns, two spaces apart, for cut, sort and grep. In a pipe or file it is always whole. On a terminal
that is too narrow it leaves out columns that repeat other output, breaks headings at a hyphen and shortens long names
in the middle; if that is still too wide, it leaves out columns that can be spared, and then prints a block of lines for
each row. JSON and YAML have the same fields.
They keep their names and types over releases; releases may add fields.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from typing import Annotated, Any, TypeVar

import typer

from kohort.cli.option_objects import choice
from kohort.cli.yaml_text import yaml_text

NOTHING = "-"
GAP = "  "
SHORTEST = 8
"""A name is not shortened below this width."""


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        metavar="table|json|yaml",
        help="A table for people, JSON or YAML for programs.",
        **choice([*Format]),
    ),
]

Cell = str | int | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; `right` for numbers, `shrinks` for names to shorten. A narrow terminal omits what `repeats`, and one
    that is still too narrow what is `spare`."""

    name: str
    right: bool = False
    shrinks: bool = False
    repeats: bool = False
    spare: bool = False


def number(name: str) -> Column:
    return Column(name, right=True)


def name(name: str) -> Column:
    return Column(name, shrinks=True)


def terminal_width() -> int | None:
    """None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Print rows under headings. None prints as "-"."""
    texts = [[NOTHING if cell is None or cell == "" else str(cell) for cell in row] for row in rows]
    for heading, line in format_table(columns, texts, terminal_width()):
        typer.secho(line, bold=heading)


def print_table_of(items: Iterable[T], columns: Mapping[Column, Callable[[T], Cell]]) -> None:
    """Print a row for each item; `columns` are functions of an item, by their headings."""
    print_table(list(columns), [[cell(item) for cell in columns.values()] for item in items])


def print_document(value: Any, output: Format) -> None:
    """Print a document for programs."""
    typer.echo(yaml_text(value) if output == Format.YAML else json.dumps(value, indent=2, ensure_ascii=False))


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[tuple[bool, str]]:
    """The lines of a table and whether each is a heading; `width` None for no limit."""
    headings = [[column.name] for column in columns]
    widths = _widths(headings, rows)
    if width is not None and _total(widths) > width:
        if any(column.repeats for column in columns):
            return _format_some(columns, rows, width, [not column.repeats for column in columns])
        headings = [_broken(column.name) for column in columns]
        widths = _shrunk(columns, headings, rows, width)
        if _total(widths) > width:
            if any(column.spare for column in columns):
                return _format_some(columns, rows, width, [not column.spare for column in columns])
            return _blocks(columns, rows)
    height = max(len(heading) for heading in headings)
    lines = []
    for level in range(height):
        words = [[""] * (height - len(heading)) + heading for heading in headings]
        lines.append((True, _line(columns, [word[level] for word in words], widths)))
    lines += [(False, _line(columns, row, widths)) for row in rows]
    return lines


def _format_some(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, kept: Sequence[bool]
) -> list[tuple[bool, str]]:
    """The table without some of its columns."""
    return format_table(list(compress(columns, kept)), [list(compress(row, kept)) for row in rows], width)


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        cell = shorten(cell, width)
        padded.append(cell.rjust(width) if column.right else cell.ljust(width))
    return GAP.join(padded).rstrip()


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _widths(headings: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([*(len(word) for word in heading), *(len(row[index]) for row in rows)])
        for index, heading in enumerate(headings)
    ]


def _shrunk(
    columns: Sequence[Column], headings: Sequence[Sequence[str]], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Widths with the widest names shortened first, as far as needed and allowed."""
    widths = _widths(headings, rows)
    least = [
        max(SHORTEST, *(len(word) for word in heading)) if column.shrinks else widths[index]
        for index, (column, heading) in enumerate(zip(columns, headings, strict=True))
    ]
    while _total(widths) > width:
        candidates = [index for index in range(len(widths)) if widths[index] > least[index]]
        if not candidates:
            break
        widths[max(candidates, key=lambda index: widths[index])] -= 1
    return widths


def _broken(heading: str) -> list[str]:
    """A heading on two lines, broken after the hyphen or at the space that makes it narrowest."""
    breaks = [index + 1 for index, letter in enumerate(heading) if letter in "- "]
    if not breaks:
        return [heading]
    best = min(breaks, key=lambda index: max(index, len(heading) - index))
    return [heading[:best].rstrip(), heading[best:]]


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[tuple[bool, str]]:
    label = max(len(column.name) for column in columns)
    lines: list[tuple[bool, str]] = []
    for row in rows:
        if lines:
            lines.append((False, ""))
        lines += [(False, f"{column.name.ljust(label)}  {cell}") for column, cell in zip(columns, row, strict=True)]
    return lines


def shorten(text: str, width: int) -> str:
    """The text, its middle replaced by an ellipsis where it is longer than `width`."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def plural(count: int, noun: str) -> str:
    """`1 partition`, `6 partitions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
