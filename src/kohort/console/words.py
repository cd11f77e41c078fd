"""States, numbers and instants as pages show them."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from markupsafe import Markup, escape

from kohort.cli.groups.wording import duration, plain

NOTHING = "–"
PLACES = re.compile(r"(?<=[^\W\d_])[._:@=,/]+(?=[^\W_])|(?<=[^\W_])[._:@=,/]+(?=[^\W\d_])|(?<=[a-z])(?=[A-Z])")
"""Where a long name may go on in the next line: not between digits, as in an IP address. A browser finds hyphens and
spaces itself. console.js has the same."""


class Chip(NamedTuple):
    """A state: a shape and a word, never a colour alone. `kind` is a class of the style sheet."""

    label: str
    kind: str


STATES = {
    "Stable": Chip("Stable", "ok"),
    "Empty": Chip("Empty", "idle"),
    "PreparingRebalance": Chip("Preparing rebalance", "busy"),
    "CompletingRebalance": Chip("Completing rebalance", "busy"),
    "Assigning": Chip("Assigning", "busy"),
    "Reconciling": Chip("Reconciling", "busy"),
    "Dead": Chip("Dead", "gone"),
    "NotReady": Chip("Not ready", "busy"),
}
UNKNOWN = Chip("unknown", "idle")
OUTCOMES = {
    "Stable": Chip("Stable", "ok"),
    "Empty": Chip("Empty", "idle"),
    "superseded": Chip("overtaken", "busy"),
    "interrupted": Chip("interrupted", "gone"),
    "noted": Chip("no rebalance", "idle"),
    "": Chip("running", "busy"),
}


def breakable(name: object) -> Markup:
    """A name as HTML that breaks at its dots and between its words, if it is too long for a line."""
    return Markup(PLACES.sub(r"\g<0><wbr>", str(escape(plain(str(name))))))


def state_chip(state: str) -> Chip:
    return STATES.get(state) or (Chip(plain(state), "idle") if state else UNKNOWN)


def outcome_chip(outcome: str) -> Chip:
    return OUTCOMES.get(outcome) or Chip(plain(outcome), "idle")


def count(number: int | None) -> str:
    """`1,234`; a dash if it is unknown."""
    return NOTHING if number is None else f"{number:,}"


def rate(per_second: float | None) -> str:
    """`114/s`, `3.8/s`; a dash if it is unknown."""
    if per_second is None:
        return NOTHING
    return f"{per_second:,.0f}/s" if per_second >= 9.95 else f"{per_second:.1f}/s" if per_second else "0/s"


def age(age_ms: int | None, *, told: bool) -> str:
    """A lag in time: `12 s`, `3 min 20 s`. An estimate is marked: `≈ 12 s`; `0 s` is none, as there is no lag."""
    if age_ms is None:
        return NOTHING
    if age_ms == 0:
        return "0 s"
    if told and age_ms < 1_000:
        return "< 1 s"
    text = f"{max(round(age_ms / 1000), 1)} s" if age_ms < 59_500 else duration(age_ms)
    return text if told else f"≈ {text}"


def utc(milliseconds: int) -> str:
    """For the `datetime` of a time element."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))
