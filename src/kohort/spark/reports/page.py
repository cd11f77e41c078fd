"""A report in one HTML file: words, numbers, plots and tables, readable in light and dark, on a phone, and without a
network.

Plots are matplotlib figures, put into the page as SVG. So that they follow the reader's colours, they are drawn with
the colours below, and each of these becomes a CSS variable with a light and a dark value; text stays text in the page's
own font. A figure is drawn inside of `drawing()`, without pyplot's global state:

    with drawing():
        figure = new_figure(8, 3)
        figure.subplots().plot(xs, ys, color=SERIES[0])
    page = Page("Groups", "a day of history")
    page.section("Lag", "What was written and not yet read.")
    page.figure(figure, "Lag of each group")
    page.write("report.html")

A plot that is wide is unreadable on a phone, so `figure` takes a second one, drawn narrow, which small screens show in
its place. Text given as HTML (`text`, captions, explanations, table cells wrapped in `Html`) stands as it is;
everything else is escaped. Nothing in a page comes from elsewhere and nothing in it runs.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

INK, MUTED, GRID, SURFACE = "#17181b", "#63656b", "#dfe0e4", "#fdfdfc"
SERIES = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#4a3aa7", "#00838a", "#8a6d3b")
"""Told apart in this order; more than eight lines in one plot are better drawn as one grey and a few of these."""
GOOD, WARN, BAD = "#15803d", "#e08a00", "#d03b3b"

_DARK = {
    INK: "#ececee",
    MUTED: "#9b9da4",
    GRID: "#33353b",
    SURFACE: "#191a1d",
    "#2a78d6": "#5b9ff0",
    "#eb6834": "#ee7d4f",
    "#1baf7a": "#2cc48d",
    "#eda100": "#e0a526",
    "#e87ba4": "#e887ac",
    "#4a3aa7": "#9c90f0",
    "#00838a": "#2bb3ba",
    "#8a6d3b": "#b89a66",
    GOOD: "#37b26a",
    WARN: "#eba53a",
    BAD: "#f06a6a",
}
_NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    SURFACE: "surface",
    GOOD: "good",
    WARN: "warn",
    BAD: "bad",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES, 1)},
}

_STYLE: Any = {
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # names have dollars
    "axes.facecolor": "none",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


class Html(str):
    """A cell of a table that is HTML already."""

    __slots__ = ()


class Number(NamedTuple):
    """A figure that stands by itself. `tone` is "good", "warn", "bad" or empty."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


@contextmanager
def drawing() -> Iterator[None]:
    """The look of the plots, for as long as they are being drawn."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches; 8 is the width of the page, 4 that of a phone."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


class Page:
    """A page that is filled from top to bottom and written at the end."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._subtitle = subtitle
        self._parts: list[str] = []
        self._sections: list[tuple[str, str]] = []
        self._drawn = 0

    def text(self, content: str) -> None:
        """A piece of HTML, as it is."""
        self._parts.append(f'<div class="text">{content}</div>')

    def numbers(self, numbers: Sequence[Number]) -> None:
        """Numbers side by side."""
        self._parts.append(
            '<dl class="numbers">'
            + "".join(
                f'<div class="{html.escape(one.tone)}"><dt>{html.escape(one.label)}</dt>'
                f"<dd>{html.escape(one.value)}</dd>"
                + (f"<dd class=note>{html.escape(one.note)}</dd>" if one.note else "")
                + "</div>"
                for one in numbers
            )
            + "</dl>"
        )

    def section(self, title: str, explanation: str = "") -> None:
        """A heading, and a few words (HTML) that say what is seen below it."""
        anchor = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        anchor += f"-{len(self._sections)}"
        self._sections.append((anchor, title))
        self._parts.append(f'<h2 id="{anchor}">{html.escape(title)}</h2>')
        if explanation:
            self._parts.append(f'<p class="explanation">{explanation}</p>')

    def findings(self, findings: Sequence[tuple[str, str, str]]) -> None:
        """What a reader must know first: (tone, headline, details as HTML), tones as of `Number`."""
        self._parts.append(
            '<ul class="findings">'
            + "".join(
                f'<li class="{html.escape(tone)}"><b>{html.escape(headline)}</b>'
                + (f"<span>{details}</span>" if details else "")
                + "</li>"
                for tone, headline, details in findings
            )
            + "</ul>"
        )

    def figure(self, figure: Any, caption: str = "", *, narrow: Any = None, alt: str = "") -> None:
        """A matplotlib figure, and the one that a small screen shows in its place. `caption` is HTML."""
        drawn = f'<div class="{"wide" if narrow is not None else "only"}">{self._svg(figure, alt)}</div>'
        if narrow is not None:
            drawn += f'<div class="narrow">{self._svg(narrow, alt)}</div>'
        told = f"<figcaption>{caption}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{drawn}{told}</figure>")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "", *, folded: bool = False
    ) -> None:
        """A table; numbers stand to the right, None as a dash. `folded`: to be opened. `caption` is HTML."""
        right = [
            bool(rows) and all(row[n] is None or isinstance(row[n], int | float) for row in rows)
            for n in range(len(columns))
        ]
        head = "".join(
            f"<th{_right(to_right)}>{html.escape(name)}</th>" for name, to_right in zip(columns, right, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(f"<td{_right(to_right)}>{_cell(cell)}</td>" for cell, to_right in zip(row, right, strict=True))
            + "</tr>"
            for row in rows
        )
        table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        if folded:
            table = f"<details><summary>{caption or 'Table'}</summary>{table}</details>"
        elif caption:
            table = f'<p class="caption">{caption}</p>{table}'
        self._parts.append(table)

    def write(self, path: str | Path) -> None:
        """Write the file, all of it or none."""
        target = Path(path)
        partial = target.with_name(target.name + ".partial")
        partial.write_text(self.html(), encoding="utf-8")
        partial.replace(target)

    def html(self) -> str:
        """The whole page."""
        links = "".join(f'<a href="#{anchor}">{html.escape(title)}</a>' for anchor, title in self._sections)
        subtitle = f'<p class="subtitle">{html.escape(self._subtitle)}</p>' if self._subtitle else ""
        navigation = f"<nav>{links}</nav>" if len(self._sections) > 2 else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{html.escape(self._title)}</title><style>{_css()}</style></head>\n<body><main>"
            f"<header><h1>{html.escape(self._title)}</h1>{subtitle}{navigation}</header>\n"
            + "\n".join(self._parts)
            + "\n</main></body></html>\n"
        )

    def _svg(self, figure: Any, alt: str) -> str:
        import matplotlib

        self._drawn += 1
        written = io.StringIO()
        # Figures share one document: the names inside of each must be its own.
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"figure {self._drawn}"}):
            figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
        text = written.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text))
        text = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: var(--font)", text)
        text = re.sub(r"\b(id=\"|href=\"#|url\(#)", rf"\g<1>f{self._drawn}-", text)
        for colour, name in _NAMES.items():
            text = text.replace(colour, f"var(--{name})")
        return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"', 1)


def _right(to_right: bool) -> str:
    return " class=right" if to_right else ""


def _cell(cell: object) -> str:
    match cell:
        case None:
            return "–"
        case Html():
            return str(cell)
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:,.1f}"
    return html.escape(str(cell))


def _css() -> str:
    light = "".join(f"--{name}:{colour};" for colour, name in _NAMES.items())
    dark = "".join(f"--{name}:{_DARK[colour]};" for colour, name in _NAMES.items())
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{_LAYOUT}"


_LAYOUT = """
:root{--font:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
*{box-sizing:border-box}
body{margin:0;background:var(--surface);color:var(--ink);font:16px/1.5 var(--font);-webkit-text-size-adjust:100%}
main{max-width:960px;margin:0 auto;padding:32px 20px 80px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:20px;margin:48px 0 4px;letter-spacing:-.005em}
p{margin:8px 0}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.subtitle,.explanation,figcaption,.caption,.note{color:var(--muted)}
.explanation,.text{max-width:72ch}
.text{margin:12px 0}
figcaption,.caption,.note{font-size:14px}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:12px;font-size:14px}
a{color:var(--series-1);text-decoration:none}a:hover{text-decoration:underline}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin:24px 0}
.numbers>div{border:1px solid var(--grid);border-radius:10px;padding:12px 14px}
.numbers dt{font-size:13px;color:var(--muted)}
.numbers dd{margin:0;font-size:24px;font-weight:600;line-height:1.25;letter-spacing:-.01em}
.numbers dd.note{font-size:13px;font-weight:400;letter-spacing:0}
.numbers .bad dd:nth-child(2){color:var(--bad)}.numbers .warn dd:nth-child(2){color:var(--warn)}
.numbers .good dd:nth-child(2){color:var(--good)}
.findings{list-style:none;margin:20px 0;padding:0;display:grid;gap:8px}
.findings li{border:1px solid var(--grid);border-left:4px solid var(--muted);border-radius:8px;padding:10px 14px}
.findings li.bad{border-left-color:var(--bad)}.findings li.warn{border-left-color:var(--warn)}
.findings li.good{border-left-color:var(--good)}
.findings span{display:block;color:var(--muted);font-size:14px}
figure{margin:16px 0 24px}
figure svg{display:block;width:100%;height:auto}
.narrow{display:none}
.scroll,.only{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums;margin:8px 0}
th{text-align:left;font-weight:600;color:var(--muted);white-space:nowrap}
th,td{padding:6px 12px 6px 0;border-bottom:1px solid var(--grid);vertical-align:top}
th.right,td.right{text-align:right;padding-left:12px}
details{margin:12px 0}summary{cursor:pointer;color:var(--muted);font-size:14px}
.tag{display:inline-block;border-radius:999px;padding:0 8px;font-size:12px;border:1px solid currentColor}
.tag.bad{color:var(--bad)}.tag.warn{color:var(--warn)}.tag.good{color:var(--good)}
@media(max-width:640px){main{padding:20px 14px 60px}h1{font-size:24px}.wide{display:none}.narrow{display:block}
.only svg{min-width:600px}.numbers{grid-template-columns:repeat(2,1fr)}}
@media print{body{background:none}figure,li{break-inside:avoid}}
"""
