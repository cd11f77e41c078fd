"""Writes the measurements into docs/: every round as JSON, tables and targets between marks in a page, a picture.

The text between the marks is a function of the JSON: a test renders it again and compares, so nobody can edit a figure
by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench import _targets
from bench._run import Figures, Panel, Subject, lines

DOCS = Path(__file__).parent.parent / "docs"
PAGE, KEPT, PICTURE = "performance.md", "performance.json", "performance.svg"
COLORS = {
    "compiled": "#1b5e8c",
    "pure": "#5b9bc8",
    "kafka": "#c0504d",
    "kfake": "#a8a8a8",
    "mock": "#c8c8c8",
    "floor": "#404040",
}
COLUMNS = 3


def as_json(found: Iterable[Figures]) -> str:
    """One figure a line, for readable diffs."""
    subjects = []
    for figures in found:
        kept = figures.kept()
        each = ",\n".join("   " + json.dumps(figure) for figure in _figures(kept))
        head = json.dumps({**kept, "figures": []}, indent=1)
        subjects.append(head.replace('"figures": []', f'"figures": [\n{each}\n  ]'))
    return "[\n" + ",\n".join(subjects) + "\n]\n"


def _figures(kept: Mapping[str, object]) -> Iterable[Mapping[str, object]]:
    figures: Iterable[dict[str, object]] = kept["figures"]  # type: ignore[assignment]
    for figure in figures:
        values: Mapping[str, float] = figure["values"]  # type: ignore[assignment]
        yield {**figure, "values": {name: float(f"{value:.4g}") for name, value in values.items()}}


def read(text: str) -> list[Figures]:
    return [Figures.read(kept) for kept in json.loads(text)]


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
    return [*_filled(said), "", *lines(figures, subject)[:-1]]


def _filled(text: str, width: int = 120) -> list[str]:
    made = [""]
    for word in text.split():
        if len(made[-1]) + 1 + len(word) > width:
            made.append(word)
        else:
            made[-1] = f"{made[-1]} {word}".strip()
    return made


def draw(kept: Mapping[str, Figures], subjects: Mapping[str, Subject], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kohort", "font.size": 8})
    panels = [(name, panel) for name, subject in subjects.items() if name in kept for panel in subject.panels]
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(11, 1.55 * rows), squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for axis, (name, panel) in zip(axes.flat, panels, strict=False):
        _panel(axis, kept[name], subjects[name], panel)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    # matplotlib leaves blanks at line ends.
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


def _panel(axis: object, figures: Figures, subject: Subject, panel: Panel) -> None:
    values = {}
    for name in subject.columns:
        found = subject.shown(figures, panel.row, name)
        if found is not None and panel.value in found and (panel.floor or name != "floor"):
            values[name] = found[panel.value] * panel.scale
    names = list(reversed(values))
    axis.set_visible(bool(names))  # type: ignore[attr-defined]
    bars = axis.barh(  # type: ignore[attr-defined]
        [subject.columns[n] for n in names], [values[n] for n in names], color=[COLORS.get(n, "#888888") for n in names]
    )
    axis.bar_label(bars, [f"{values[n]:,.3g}" if values[n] < 1e3 else f"{values[n]:,.0f}" for n in names], padding=2)  # type: ignore[attr-defined]
    axis.set_title(f"{panel.title}, {panel.unit}", loc="left", fontsize=8)  # type: ignore[attr-defined]
    axis.margins(x=0.18)  # type: ignore[attr-defined]
    axis.xaxis.set_visible(False)  # type: ignore[attr-defined]
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)  # type: ignore[attr-defined]
