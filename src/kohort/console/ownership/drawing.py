"""A window of ownership as SVG: a row a partition, a bar a period, a band a rebalance. Its x is in percent.

A bar's name is in an svg element of its own, which cuts it at the bar's end. Every text is escaped here.
"""

from __future__ import annotations

import time

from markupsafe import Markup

from kohort.cli.groups.wording import duration, plain
from kohort.console.ownership.periods import Period
from kohort.console.ownership.window import Row, Window

TOP = 30
ROW = 46
BAR_TOP, BAR_HEIGHT = 20, 20
TICKS = 4
LETTER, PHONE_LETTER = 0.7, 2.6
"""Percent: the width of a letter on 1,200 pixels, and on a phone. A bar without room for its name has none."""
DAY_MS = 86_400_000


def svg(window: Window, chosen: str, label: str) -> Markup:
    """`chosen` is the identity of a member whose bars stand out; "" for none."""
    height = TOP + ROW * len(window.rows) + 8
    tones = {identity: number % 2 for number, (identity, _) in enumerate(window.members)}
    parts = [
        Markup('<svg class="chart" role="img" width="100%" height="{}" aria-label="{}">').format(height, plain(label)),
        *_rebalances(window, height),
        *_ticks(window, height),
    ]
    for number, row in enumerate(window.rows):
        parts += _row(window, row, TOP + ROW * number, tones, chosen)
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _x(window: Window, at_ms: int) -> float:
    return 100 * (at_ms - window.begin_ms) / (window.end_ms - window.begin_ms)


def _rebalances(window: Window, height: int) -> list[Markup]:
    parts = []
    for span in window.rebalances:
        left, right = max(_x(window, span.start_ms), 0), min(_x(window, span.end_ms), 100)
        title = f"rebalance {span.number}: {duration(span.end_ms - span.start_ms)}"
        parts.append(
            Markup('<rect class="pause" x="{}%" width="{}%" y="22" height="{}"><title>{}</title></rect>').format(
                f"{left:.2f}", f"{max(right - left, 0.2):.2f}", height - 22, title
            )
        )
    return parts


def _ticks(window: Window, height: int) -> list[Markup]:
    length = window.end_ms - window.begin_ms
    form = "%m-%d %H:%M" if length > DAY_MS else "%H:%M:%S"
    parts = []
    for number in range(TICKS):
        at_ms = window.begin_ms + length * number // TICKS
        x = f"{100 * number / TICKS:g}"
        parts.append(Markup('<line class="tick" x1="{0}%" x2="{0}%" y1="22" y2="{1}"/>').format(x, height))
        text = time.strftime(form, time.localtime(at_ms / 1000))
        parts.append(Markup('<text class="time" x="{}%" y="16">{}</text>').format(x, text))
    return parts


def _row(window: Window, row: Row, top: int, tones: dict[str, int], chosen: str) -> list[Markup]:
    parts = [
        Markup('<text class="lane" x="0" y="{}">{} <tspan class="place">{}</tspan></text>').format(
            top + 14, plain(row.topic), row.partition
        )
    ]
    for period in row.periods:
        css = "chosen" if period.identity == chosen else f"tone-{tones[period.identity]}"
        parts.append(_bar(window, period, css, top + BAR_TOP))
    return parts


def _bar(window: Window, period: Period, css: str, y: int) -> Markup:
    left, right = _x(window, period.start_ms), _x(window, period.end_ms)
    width = max(right - left, 0.2)
    name = plain(period.name)
    place = Markup('x="{}%" y="{}" width="{}%" height="{}"').format(f"{left:.2f}", y, f"{width:.2f}", BAR_HEIGHT)
    letters = len(name) + 2
    if width < LETTER * letters:
        return Markup('<rect class="{}" {}><title>{}</title></rect>').format(css, place, name)
    slim = " slim" if width < PHONE_LETTER * letters else ""
    return Markup(
        '<svg {}><title>{}</title><rect class="{}" width="100%" height="100%"/>'
        '<text class="on-{}{}" x="6" y="14">{}</text></svg>'
    ).format(place, name, css, css, slim, name)
