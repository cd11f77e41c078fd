"""The contrasts of the style sheet's colours, by WCAG 2.2, in both schemes."""

from __future__ import annotations

import re

import pytest

from kohort.console.shared import HERE

CSS = (HERE / "static" / "console.css").read_text(encoding="utf-8")
COLOURS = {
    name: {"light": light, "dark": dark}
    for name, light, dark in re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS)
}
GROUNDS = ("ground", "surface", "sunken")
TEXTS = [
    *((text, ground) for text in ("text", "quiet", "accent", "gone") for ground in GROUNDS),
    ("accent", "accent-soft"),
    ("text", "accent-soft"),
    ("on-accent", "accent"),
]
SHAPES = [
    *((shape, ground) for shape in ("edge", "ok", "busy", "gone", "quiet", "accent") for ground in GROUNDS),
    *((shape, ground) for shape in ("bar", "gives", "waits", "text") for ground in ("surface", "sunken")),
    ("gives", "gives-soft"),
]


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_texts(text: str, ground: str, scheme: str) -> None:
    assert contrast(COLOURS[text][scheme], COLOURS[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), SHAPES)
def test_shapes(shape: str, ground: str, scheme: str) -> None:
    assert contrast(COLOURS[shape][scheme], COLOURS[ground][scheme]) >= 3


def test_every_colour_is_a_variable_and_is_checked() -> None:
    rules = CSS.split(":root[data-theme", 1)[1]
    assert re.findall(r"#[0-9a-f]{3,8}\b|rgb|hsl", rules) == []
    checked = {name for pair in (*TEXTS, *SHAPES) for name in pair}
    assert COLOURS.keys() - checked == {"line"}, "a line between rows is no information"
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= COLOURS.keys() | {"radius", "gap", "font", "mono"}


def test_motion_can_be_turned_off_and_nothing_is_loaded() -> None:
    assert "prefers-reduced-motion" in CSS
    assert re.findall(r"url\(([^)]*)\)|@import", CSS) == ['"#hatch"']
