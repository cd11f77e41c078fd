"""The course of a group's lag as a line: small for a row of the list, and wide for the group's page.

The width of the wide one is the page's: its picture is stretched, and its texts stand beside it as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kohort.cli.groups.wording import duration
from kohort.console.reading.trends import Point
from kohort.console.words import count

SMALL_WIDTH, SMALL_HEIGHT = 72, 20
WIDE_WIDTH, WIDE_HEIGHT = 1000, 64
EDGE = 2
"""Above and below the line, so that its stroke is not cut."""


@dataclass(frozen=True, slots=True)
class Course:
    """The picture, and what it shows in words."""

    svg: Markup
    words: str
    length: str
    most: str


def in_words(points: Sequence[Point]) -> str:
    first, last = points[0], points[-1]
    most = max(point.lag for point in points)
    length = duration(last.at_ms - first.at_ms)
    return f"lag in {length}: from {count(first.lag)} to {count(last.lag)}, highest {count(most)}"


def small(points: Sequence[Point]) -> Markup:
    """For a row. Empty with fewer than two points."""
    if len(points) < 2:
        return Markup("")
    line = _line(points, SMALL_WIDTH, SMALL_HEIGHT)
    return Markup(
        '<svg class="course" role="img" width="{0}" height="{1}" aria-label="{2}"><polyline points="{3}"/></svg>'
    ).format(SMALL_WIDTH, SMALL_HEIGHT, in_words(points), line)


def wide(points: Sequence[Point]) -> Course | None:
    """None with fewer than two points."""
    if len(points) < 2:
        return None
    line = _line(points, WIDE_WIDTH, WIDE_HEIGHT)
    area = f"0,{WIDE_HEIGHT} {line} {WIDE_WIDTH},{WIDE_HEIGHT}"
    words = in_words(points)
    svg = Markup(
        '<svg class="course wide" role="img" viewBox="0 0 {0} {1}" preserveAspectRatio="none" width="100%" height="{1}"'
        ' aria-label="{2}"><polygon points="{3}"/><polyline points="{4}"/></svg>'
    ).format(WIDE_WIDTH, WIDE_HEIGHT, words, area, line)
    most = count(max(point.lag for point in points))
    return Course(svg, words, duration(points[-1].at_ms - points[0].at_ms), most)


def _line(points: Sequence[Point], width: int, height: int) -> str:
    """The lag 0 is at the bottom, the largest one at the top."""
    start, length = points[0].at_ms, points[-1].at_ms - points[0].at_ms
    most = max(max(point.lag for point in points), 1)
    room = height - 2 * EDGE
    return " ".join(
        f"{(at - start) / length * width:.4g},{height - EDGE - lag / most * room:.3g}" for at, lag in points
    )
