"""A report in one HTML file: text, numbers, plots and tables, for light and dark screens and for phones.

A Page collects parts from top to bottom; the templates beside this module make HTML of them. The file needs no network
and runs no scripts. All text is escaped.

    page = Page("Groups", "a day of history")
    page.section("Lag", "Records that were written and not yet committed.")
    page.figure(figure, "Lag of each group")
    page.write("report.html")

A wide plot is unreadable on a phone, so `figure` takes a second, narrow one, which small screens show instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.reports.figures import DARK, LIGHT, css_colour, svg

T = TypeVar("T")


class Number(NamedTuple):
    """A single figure. `tone` is "good", "warn", "bad" or empty."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


class LegendEntry(NamedTuple):
    """One line of a plot: its label, its colour (of `figures`), and whether it is solid or dashed."""

    label: str
    colour: str
    solid: bool = True


class Tag(NamedTuple):
    """A table cell: one word in a coloured frame. `tone` as of `Number`."""

    text: str
    tone: str


class Annotated(NamedTuple):
    """A table cell: text with a smaller note below it."""

    text: str
    note: str


class Fact(NamedTuple):
    """An important fact. `tone` as of `Number`; `section` is the title of the section that shows more of it."""

    tone: str
    headline: str
    details: str = ""
    section: str = ""


class Unbroken(NamedTuple):
    """A table cell whose text stays on one line."""

    text: str


class Page:
    """A page that is filled from top to bottom and written at the end."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._subtitle = subtitle
        self._parts: list[tuple[str, dict[str, Any]]] = []
        """For each part its macro in the template, and the macro's arguments."""
        self._sections: list[tuple[str, str]] = []
        self._numbers = count(1)

    def _add(self, macro: str, **values: Any) -> None:
        self._parts.append((macro, values))

    def text(self, *paragraphs: str) -> None:
        self._add("text", paragraphs=paragraphs)

    def numbers(self, numbers: Sequence[Number]) -> None:
        """Numbers side by side."""
        self._add("numbers", numbers=numbers)

    def section(self, title: str, explanation: str = "") -> None:
        """A heading, and a few words that explain what is below it."""
        anchor = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        anchor += f"-{len(self._sections)}"
        self._sections.append((anchor, title))
        self._add("section", anchor=anchor, title=title, explanation=explanation)

    def findings(self, findings: Sequence[Fact | tuple[str, str, str]]) -> None:
        """The most important facts: each a Fact, or its tone, headline and details."""
        self._add("findings", findings=[Fact(*one) for one in findings])

    def notice(self, title: str, lines: Sequence[str]) -> None:
        """What the reader has to know about the page itself."""
        self._add("notice", title=title, lines=lines)

    def figure(
        self, figure: Any, caption: str = "", *, narrow: Any = None, legend: Sequence[LegendEntry] = (), alt: str = ""
    ) -> None:
        """A matplotlib figure, and the narrow one that a small screen shows instead."""
        drawn = [None if one is None else Markup(svg(one, next(self._numbers))) for one in (figure, narrow)]
        self._add("figure", wide=drawn[0], narrow=drawn[1], caption=caption, legend=legend, alt=alt)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "", *, folded: bool = False
    ) -> None:
        """A table. Numbers are aligned to the right, None is a dash. The reader opens a `folded` table."""
        numeric = [
            bool(rows) and all(row[n] is None or isinstance(row[n], int | float) for row in rows)
            for n in range(len(columns))
        ]
        heads = list(zip(columns, numeric, strict=True))
        self._add("table", columns=heads, rows=rows, caption=caption, folded=folded)

    def table_of(
        self,
        items: Iterable[T],
        columns: Mapping[str, Callable[[T], object]],
        caption: str = "",
        *,
        folded: bool = False,
    ) -> None:
        """A table with a row for each item; `columns` are functions of an item, by the heading."""
        rows = [[cell(item) for cell in columns.values()] for item in items]
        self.table(list(columns), rows, caption, folded=folded)

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        ArrowDirectory(Path(path).absolute()).write_text(self.html())

    def html(self) -> str:
        """The whole page."""
        anchors = {title: anchor for anchor, title in self._sections}
        for macro, values in self._parts:
            if macro == "findings":
                values["anchors"] = anchors
        return _templates().get_template("page.html.j2").render(
            title=self._title, subtitle=self._subtitle, sections=self._sections, parts=self._parts
        )  # fmt: skip


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("kohort.spark.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["css_colour"] = css_colour
    environment.globals.update(light=LIGHT, dark=DARK)
    return environment
