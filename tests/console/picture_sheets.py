"""Sheets of pictures: a screen in all WIDTHS and SCHEMES on one picture, and the page of the docs that shows them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from browser import Browser
from PIL import Image

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "console"
SHEETS = DOCS / "screens"
PAGE = ROOT / "docs" / "how-to" / "console-screens.md"
WIDTHS = {360: 780, 900: 900, 1400: 900}
"""And the height of the browser's window."""
SCHEMES = ("light", "dark")
TALLEST = 1_300
GAP = 24
GROUND = (128, 132, 136)
END = "Math.ceil((document.querySelector('footer') ?? document.querySelector('main')).getBoundingClientRect().bottom)"

Shots = dict[tuple[int, str], Image.Image]


def shoot(browser: Browser) -> Image.Image:
    """The page to its end, at most TALLEST high."""
    return picture(browser, min(int(browser.evaluate(END)), TALLEST))


def picture(browser: Browser, height: int) -> Image.Image:
    return Image.open(io.BytesIO(browser.shot(height))).convert("RGB")


def write_example(browser: Browser, height: int, name: str) -> None:
    picture(browser, height).save(DOCS / f"{name}.png", optimize=True)


def shots_of(browser: Browser, show: Callable[[], None]) -> Shots:
    """Of what `show` shows: it is called for each width and scheme."""
    found: Shots = {}
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            browser.screen(width, height, scheme)
            show()
            found[width, scheme] = shoot(browser)
    return found


def write_sheet(shots: Shots, name: str) -> None:
    """Widths beside each other, schemes below each other."""
    rows = [[shots[width, scheme] for width in WIDTHS] for scheme in SCHEMES]
    heights = [max(shot.height for shot in row) for row in rows]
    size = sum(WIDTHS) + GAP * (len(WIDTHS) + 1), sum(heights) + GAP * (len(rows) + 1)
    sheet = Image.new("RGB", size, GROUND)
    top = GAP
    for row, height in zip(rows, heights, strict=True):
        left = GAP
        for shot in row:
            sheet.paste(shot, (left, top))
            left += shot.width + GAP
        top += height + GAP
    sheet.save(SHEETS / f"{name}.webp", lossless=True, quality=100, method=4)


INTRODUCTION = """# The console's screens

Every screen of [the console](console.md) at a width of 360, 900 and 1,400 pixels, light and dark. Open a picture to see
it at its full size. Long pages are cut. `make console-pictures` makes all pictures anew, on groups that it starts.
"""


def write_page(sections: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Files and what they show, by heading."""
    lines = [INTRODUCTION]
    for heading, screens in sections.items():
        lines.append(f"## {heading}\n")
        for name, title in screens:
            file = f"../console/screens/{name}.webp"
            lines.append(f"{title}:\n\n[![{title}]({file})]({file})\n")
    PAGE.write_text("\n".join(lines), encoding="utf-8")
