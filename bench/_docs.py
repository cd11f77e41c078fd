"""Writes the measurements into docs/: every round as JSON, tables and targets between marks in a page, a picture.

The text between the marks is a function of the JSON: a test renders it again and compares, so a figure that was edited
manually is noticed.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from bench import _targets
from bench._run import Figure, Figures, Panel, Subject, lines

DOCS = Path(__file__).parent.parent / "docs"
PAGE, KEPT, PICTURE = "performance.md", "performance.json", "performance.svg"
COLORS = {
    **dict.fromkeys(("compiled", "pushed", "kohort"), "#1b5e8c"),
    **dict.fromkeys(("pure", "plain"), "#5b9bc8"),
    "kafka": "#c0504d",
    "synced": "#d99694",
    **dict.fromkeys(("kfake", "librdkafka"), "#a8a8a8"),
    "mock": "#c8c8c8",
    "floor": "#404040",
}
COLUMNS = 3
PANEL_PX, NAME_PX, BAR_PX = 285, 100, 120
"""The widths of a panel, of the names in it, and of its longest bar."""
LINE_PX, TITLE_PX = 13, 16
"""The heights of a bar with its gap, and of a title."""


def as_json(found: Iterable[Figures]) -> str:
    """A line for all rounds of a row on a server that have the same values, for readable diffs."""
    return "[\n" + ",\n".join(map(_subject, found)) + "\n]\n"


def _subject(figures: Figures) -> str:
    rounds: dict[tuple[str, str, tuple[str, ...]], list[Figure]] = {}
    for figure in figures.figures:
        rounds.setdefault((figure.row, figure.server, tuple(figure.values)), []).append(figure)
    rows = [
        {
            "row": row,
            "server": server,
            "others": [figure.others for figure in some],
            "values": {name: [float(f"{figure.values[name]:.4g}") for figure in some] for name in names},
        }
        for (row, server, names), some in rounds.items()
    ]
    each = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    kept = {**asdict(figures), "figures": []}
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in kept.items())
    return "{\n" + head.replace('"figures": []', f'"figures": [\n{each}\n ]') + "\n}"


def read(text: str) -> list[Figures]:
    return [Figures(**{**kept, "figures": list(_rounds(kept["figures"]))}) for kept in json.loads(text)]


def _rounds(rows: Iterable[dict[str, Any]]) -> Iterator[Figure]:
    for row in rows:
        for n, others in enumerate(row["others"]):
            values = {name: found[n] for name, found in row["values"].items()}
            yield Figure(row["row"], row["server"], values, others)


def write(found: Sequence[Figures], subjects: Mapping[str, Subject], docs: Path = DOCS) -> None:
    """Figures of subjects that were not measured now stay."""
    path = docs / KEPT
    kept = {figures.subject: figures for figures in (read(path.read_text()) if path.exists() else [])}
    kept |= {figures.subject: figures for figures in found}
    path.write_text(as_json(kept[name] for name in subjects if name in kept))
    kept = {figures.subject: figures for figures in read(path.read_text())}
    page = docs / PAGE
    page.write_text(rendered(page.read_text(), kept, subjects))
    draw(kept, subjects, docs / PICTURE)


def rendered(page: str, kept: Mapping[str, Figures], subjects: Mapping[str, Subject]) -> str:
    """The page with new text between its marks."""
    parts = {name: section(kept[name], subjects[name]) for name in subjects if name in kept}
    parts["targets"] = _targets.table(kept)
    for name, lines_ in parts.items():
        pattern = re.compile(rf"(<!-- bench: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        assert pattern.search(page), f"no marks for {name} in {PAGE}"
        text = "\n".join(["", *lines_, ""])
        page = pattern.sub(lambda found, text=text: found[1] + text + found[2], page)
    return page


def section(figures: Figures, subject: Subject) -> list[str]:
    machine, versions = figures.machine, figures.versions
    median, late = figures.sync_ms
    known = [figure.others for figure in figures.figures if figure.others is not None]
    busy = f"; other work kept at most {max(known):.2f} cores busy" if known else ""
    said = (
        f"{machine['date']}; {machine['CPU']}, {machine['cores']} cores, {machine['memory']}, {machine['kernel']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; fdatasync of 4 KiB {median:.2f} ms in the median, {late:.2f} ms the 99th percentile{busy}; the run took "
        f"{figures.took_s / 60:.0f} minutes."
    )
    return [*textwrap.wrap(said, 120, break_on_hyphens=False), "", *lines(figures, subject)[:-1]]


def draw(kept: Mapping[str, Figures], subjects: Mapping[str, Subject], path: Path) -> None:
    """Panels of horizontal bars. The text is text, and a bar with its name and its value is one line of the file."""
    panels = [
        (panel, bars)
        for name, subject in subjects.items()
        for panel in subject.panels
        if name in kept and (bars := _bars(kept[name], subject, panel))
    ]
    drawn, top = [], 0
    for first in range(0, len(panels), COLUMNS):
        line = panels[first : first + COLUMNS]
        for n, (panel, bars) in enumerate(line):
            drawn += [f'<g transform="translate({n * PANEL_PX + 8},{top})">', *_panel(panel, bars), "</g>"]
        top += TITLE_PX + LINE_PX * (1 + max(len(bars) for _, bars in line))
    size = f'viewBox="0 0 {COLUMNS * PANEL_PX} {top}" width="{COLUMNS * PANEL_PX}" height="{top}"'
    style = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="9"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    path.write_text("\n".join([*head, *drawn, "</svg>"]) + "\n")


def _bars(figures: Figures, subject: Subject, panel: Panel) -> dict[str, tuple[str, float]]:
    """For each server its title and its value."""
    return {
        name: (title, found[panel.value] * panel.scale)
        for name, title in subject.columns.items()
        if (found := subject.shown(figures, panel.row, name)) is not None
        and panel.value in found
        and (panel.floor or name != "floor")
    }


def _panel(panel: Panel, bars: Mapping[str, tuple[str, float]]) -> Iterator[str]:
    yield f'<text y="{TITLE_PX - 4}" font-weight="bold">{escape(f"{panel.title}, {panel.unit}")}</text>'
    longest = max(value for _, value in bars.values())
    for n, (name, (title, value)) in enumerate(bars.items()):
        y, width = TITLE_PX + n * LINE_PX, value / longest * BAR_PX
        shown = f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}"
        yield (
            f'<text x="{NAME_PX}" y="{y + 9}" text-anchor="end">{escape(title)}</text>'
            f'<rect x="{NAME_PX + 4}" y="{y + 1}" width="{width:.1f}" height="{LINE_PX - 3}" fill="{COLORS[name]}"/>'
            f'<text x="{NAME_PX + 7 + width:.1f}" y="{y + 9}">{shown}</text>'
        )
