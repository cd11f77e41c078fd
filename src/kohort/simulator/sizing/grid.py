"""A grid: lists of values, and all points that they make.

    members = [10, 100]
    partitions = ["6x"]                      # six for each member
    protocols = ["eager", "consumer"]
    pushed = [true, false]
    patterns = ["rolling", "crash"]

    [settings]                               # of every point: any other field of a point
    session_ms = 30000

A grid may be TOML or JSON. Values that a protocol does not support make no point: only the consumer protocol has
gradual hand-overs and rollout freezes, and each protocol uses the assignors that it supports. Raises BadPoint, which
names the setting.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from kohort.simulator.sizing.point import ASSIGNORS, CONSUMER, BadPoint, Point, point_of, refuse

LISTS = ("members", "partitions", "protocols", "assignors", "pushed", "handover", "patterns", "clients")
SINGULAR = {"protocols": "protocol", "assignors": "assignor", "patterns": "pattern", "clients": "client"}
MOST_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class Grid:
    """Every valid combination of these values, in this order."""

    members: tuple[int, ...] = (10, 50)
    partitions: tuple[int | str, ...] = ("6x",)
    """Numbers, or a multiple of the members: `6x`."""
    protocols: tuple[str, ...] = tuple(ASSIGNORS)
    assignors: tuple[str, ...] = ()
    """Empty: each protocol's usual one."""
    pushed: tuple[bool, ...] = (False, True)
    handover: tuple[int, ...] = (0,)
    patterns: tuple[str, ...] = ("rolling", "scale-out", "crash")
    clients: tuple[str, ...] = ("java",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of all points."""

    def points(self) -> list[Point]:
        """The points, without duplicates. Raises BadPoint."""
        refuse(self.settings, (*LISTS, *SINGULAR.values()), "is one of the grid's lists")
        found = dict.fromkeys(self._points())
        if not found:
            raise BadPoint("the grid has no points: no protocol has these assignors, or these patterns")
        if len(found) > MOST_POINTS:
            raise BadPoint(f"the grid has {len(found)} points; {MOST_POINTS} are allowed")
        return list(found)

    def _points(self) -> Iterator[Point]:
        for name in self.assignors:
            if not any(name in known for known in ASSIGNORS.values()):
                raise BadPoint(f"assignors: there is no {name!r}")
        combinations = product(
            self.patterns, self.clients, self.members, self.partitions, self.protocols, self.pushed, self.handover
        )
        for pattern, client, members, partitions, protocol, pushed, handover in combinations:
            if pattern == "rolling-hold" and protocol != CONSUMER:
                continue
            for assignor in self._assignors_of(protocol):
                yield point_of(
                    {
                        **self.settings,
                        "members": members,
                        "partitions": _partitions(partitions, members),
                        "protocol": protocol,
                        "assignor": assignor,
                        "pushed": pushed,
                        "handover": handover,
                        "pattern": pattern,
                        "client": client,
                    }
                )

    def _assignors_of(self, protocol: str) -> Sequence[str]:
        known = ASSIGNORS.get(protocol)
        if known is None:
            raise BadPoint(f"protocols: {protocol!r} is none of {', '.join(ASSIGNORS)}")
        return [name for name in self.assignors if name in known] if self.assignors else known[:1]


def _partitions(wanted: int | str, members: int) -> int:
    text = str(wanted)
    number = text.removesuffix("x")
    if not number.isascii() or not number.isdigit():
        raise BadPoint(f"partitions: {wanted!r} is neither a number nor one for each member, as 6x")
    return int(number) * (members if text.endswith("x") else 1)


def grid_of(values: Mapping[str, Any]) -> Grid:
    """A grid from lists (or single values) by name. Raises BadPoint."""
    for name in values:
        if name not in LISTS and name != "settings":
            raise BadPoint(f"{name}: a grid has {', '.join(LISTS)} and settings")
    given: dict[str, Any] = {}
    for name in LISTS:
        if name in values:
            several = values[name]
            several = tuple(several) if isinstance(several, list | tuple) else (several,)
            if not several and name != "assignors":
                raise BadPoint(f"{name}: the list is empty")
            given[name] = several
    settings = values.get("settings", {})
    if not isinstance(settings, Mapping):
        raise BadPoint("settings: it takes names and values")
    return Grid(**given, settings=dict(settings))


def grid_in(path: Path) -> Grid:
    """A grid from a TOML or JSON file. Raises BadPoint, which names the file, and OSError."""
    text = path.read_text(encoding="utf-8")
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        if not isinstance(values, dict):
            raise BadPoint("a grid is names and values")
        return grid_of(values)
    except (ValueError, TypeError) as error:  # BadPoint is a ValueError
        raise BadPoint(f"{path}: {error}") from error
