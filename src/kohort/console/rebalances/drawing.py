"""Lanes as SVG. It has no width of its own: x is in percent, so text keeps its size on every screen.

Colours, fonts and hatching are in the style sheet, by class. Every text is escaped here: names of members come from
clients.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from kohort.cli.groups.wording import duration, plain
from kohort.console.rebalances.lanes import Chart, Lane, Mark

BEFORE, AFTER = 3.0, 3.0
"""Percent left and right of the rebalance: what members owned before and after it."""
TOP = 46
LANE = 40
BAR_TOP, BAR_HEIGHT, THIN = 22, 12, 4
LONGEST_NAME = 42
"""Together with the note at the right."""
TICKS = 4
LATE = 85.0
"""Percent from the left: the label of a tick stands left of it from here on."""
WIDTH_OF_LETTER = 2.3
"""Percent of the width of a phone's screen."""
STEPS = (1, 2, 5)


def svg(chart: Chart, label: str) -> Markup:
    lanes = [*chart.lanes, *((chart.rest,) if chart.rest else ())]
    height = TOP + LANE * len(lanes) + 8
    parts = [
        Markup('<svg class="chart" role="img" width="100%" height="{}" aria-label="{}">').format(height, plain(label)),
        Markup(
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"'
            ' patternTransform="rotate(45)">'
            '<rect class="hatch-ground" width="6" height="6"/><rect class="hatch-line" width="2" height="6"/>'
            "</pattern></defs>"
        ),
        *_bands(chart, height),
        *_ticks(chart, height),
    ]
    for index, lane in enumerate(lanes):
        parts += _lane(chart, lane, TOP + LANE * index)
    parts += [_mark(chart, mark, TOP - 8) for mark in chart.marks]
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _x(chart: Chart, at_ms: float) -> float:
    return BEFORE + (100 - BEFORE - AFTER) * min(max(at_ms / chart.length_ms, 0), 1)


def _rect(css: str, left: float, right: float, top: float, height: float, title: str = "") -> Markup:
    inner = Markup("<title>{}</title>").format(plain(title)) if title else Markup("")
    return Markup('<rect class="{}" x="{}%" width="{}%" y="{}" height="{}">{}</rect>').format(
        css, f"{left:.3f}", f"{max(right - left, 0.15):.3f}", f"{top:g}", f"{height:g}", inner
    )


def _bands(chart: Chart, height: int) -> list[Markup]:
    parts = []
    for index, band in enumerate(chart.bands):
        left, right = _x(chart, band.start_ms), _x(chart, band.end_ms)
        took = duration(band.end_ms - band.start_ms)
        ended = f", ended by: {band.ended_by}" if band.ended_by else ""
        css = f"band band-{index % 2}"
        parts.append(_rect(css, left, right, 0, height, f"{band.name}: {took}{ended}"))
        if (right - left) / WIDTH_OF_LETTER >= len(band.name) + 1:
            parts.append(
                Markup('<text class="phase" x="{}%" dx="4" y="14">{}</text>').format(f"{left:.3f}", plain(band.name))
            )
    return parts


def _ticks(chart: Chart, height: int) -> list[Markup]:
    parts = []
    for number, at in enumerate(ticks(chart.length_ms)):
        x = f"{_x(chart, at):.3f}"
        parts.append(Markup('<line class="tick" x1="{0}%" x2="{0}%" y1="36" y2="{1}"/>').format(x, height))
        css = f"time{' time-last' if _x(chart, at) > LATE else ''}{' odd' if number % 2 else ''}"
        parts.append(Markup('<text class="{}" x="{}%" y="31">{}</text>').format(css, x, duration(at) if at else "0"))
    return parts


def ticks(length_ms: int) -> list[int]:
    """Round times from 0 on, at most TICKS + 1, none after the end."""
    size = 1
    while True:
        for step in STEPS:
            if length_ms / (step * size) <= TICKS:
                return list(range(0, length_ms + 1, step * size))
        size *= 10


def cut(text: str, length: int) -> str:
    """Without its end, if it is too long."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _lane(chart: Chart, lane: Lane, top: int) -> list[Markup]:
    notes = [f"awaited {duration(lane.awaited_ms)}"] if lane.awaited_ms else []
    note = ", ".join([*notes, *(["gone"] if lane.gone else [])]) or lane.state
    host = f" on {plain(lane.host)}" if lane.host else ""
    y = top + BAR_TOP
    parts = [
        Markup(
            '<g class="{}"><text class="lane" x="0" y="{}">{}<tspan class="host">{}</tspan><title>{}</title></text>'
        ).format(
            "awaited" if lane.awaited_ms else "",
            top + 15,
            cut(plain(lane.name), LONGEST_NAME - len(note)),
            cut(host, LONGEST_NAME),
            plain(lane.name) + host,
        )
    ]
    if note:
        parts.append(Markup('<text class="note" x="100%" y="{}">{}</text>').format(top + 15, note))
    if lane.owned_before:
        parts.append(_rect("owns", 0, BEFORE, y, BAR_HEIGHT, "owned partitions before"))
    if lane.owns_after and not chart.running:
        parts.append(_rect("owns", 100 - AFTER, 100, y, BAR_HEIGHT, "owns partitions now"))
    for bar in lane.bars:
        words = f"{WORDS[bar.kind]}: {duration(bar.end_ms - bar.start_ms)}, from {duration(bar.start_ms)}"
        left, right = _x(chart, bar.start_ms), _x(chart, bar.end_ms)
        if bar.kind == "waits":  # below the bar of the partitions that it owns meanwhile
            owns = any(b.kind == "owns" and b.start_ms < bar.end_ms and bar.start_ms < b.end_ms for b in lane.bars)
            down = BAR_HEIGHT + 1 if owns else (BAR_HEIGHT - THIN) / 2
            parts.append(_rect(bar.kind, left, right, y + down, THIN, words))
        else:
            parts.append(_rect(bar.kind, left, right, y, BAR_HEIGHT, words))
    parts += [_mark(chart, mark, y + BAR_HEIGHT / 2) for mark in lane.marks]
    parts.append(Markup("</g>"))
    return parts


WORDS = {"owns": "owns partitions", "gives-up": "has not given up or rejoined yet", "waits": "waits for others"}


def _mark(chart: Chart, mark: Mark, y: float) -> Markup:
    """A ring: what happened, and when."""
    title = escape(f"{plain(mark.text)}, after {duration(mark.at_ms)}")
    return Markup('<circle class="mark" cx="{}%" cy="{}" r="5"><title>{}</title></circle>').format(
        f"{_x(chart, mark.at_ms):.3f}", f"{y:g}", title
    )
