"""Plots for the reports: their colours, their style, and their way into a page.

Plots are matplotlib figures that a page shows as SVG. They are drawn with the colours below; in the SVG each colour
becomes a CSS variable with a light and a dark value, so a plot follows the reader's colour scheme. Text stays text, in
the page's own font. Draw a figure inside `drawing()`, without pyplot's global state:

    with drawing():
        figure = new_figure(8, 3)
        figure.subplots().plot(xs, ys, color=SERIES[0])
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INK, MUTED, GRID, SURFACE = "#17181b", "#63656b", "#dfe0e4", "#fdfdfc"
SERIES = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#4a3aa7", "#00838a", "#8a6d3b")
"""In this order neighbours are easy to tell apart. Draw more than eight lines as one grey and a few of these."""
GOOD, WARN, BAD = "#15803d", "#e08a00", "#d03b3b"

_DARK_SERIES = ("#5b9ff0", "#ee7d4f", "#2cc48d", "#e0a526", "#e887ac", "#9c90f0", "#2bb3ba", "#b89a66")
_COLOURS = (
    ("ink", INK, "#ececee"),
    ("muted", MUTED, "#9b9da4"),
    ("grid", GRID, "#33353b"),
    ("surface", SURFACE, "#191a1d"),
    ("good", GOOD, "#37b26a"),
    ("warn", WARN, "#eba53a"),
    ("bad", BAD, "#f06a6a"),
    *((f"series-{number}", *both) for number, both in enumerate(zip(SERIES, _DARK_SERIES, strict=True), 1)),
)
"""The CSS variable of each colour, and its values on light and dark screens."""
_NAMES = {light: name for name, light, _ in _COLOURS}
LIGHT = tuple((name, light) for name, light, _ in _COLOURS)
DARK = tuple((name, dark) for name, _, dark in _COLOURS)

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


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the style of the plots."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches; 8 is the width of the page, 4 that of a phone."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def css_colour(colour: str) -> str:
    """The CSS variable that stands for a colour of the plots."""
    return f"var(--{_NAMES[colour]})"


def svg(figure: Any, number: int) -> str:
    """The figure as an SVG element. `number` tells the figures of a page apart: they share one space of ids."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"figure {number}"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text))
    text = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: var(--font)", text)
    text = re.sub(r"\b(id=\"|href=\"#|url\(#)", rf"\g<1>f{number}-", text)
    for colour in _NAMES:
        text = text.replace(colour, css_colour(colour))
    return text
