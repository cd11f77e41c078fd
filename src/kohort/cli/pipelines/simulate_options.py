"""The options of `kohort pipeline simulate`, and the question that they ask of the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.simulator.sizing import BadPoint, Grid, Point, grid_in
from kohort.simulator.sizing.advice import Ask, points_of
from kohort.simulator.sizing.plan import Fleet
from kohort.simulator.sizing.plan import points_of as points_of_fleet
from kohort.simulator.sizing.point import FIELDS

YES_NO = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class GridOptions:
    """The parameters that vary over the runs."""

    members: Annotated[str | None, typer.Option(metavar="N,...", help="Members of the group [default: 10,50].")] = None
    partitions: Annotated[
        str | None, typer.Option(metavar="N,...", help="Partitions; 6x for six times the members [default: 6x].")
    ] = None
    protocols: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="From eager, cooperative, consumer [default: all].")
    ] = None
    assignors: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Each protocol uses those that it supports [default: its usual one]."),
    ] = None
    pushed: Annotated[
        str | None, typer.Option(metavar="yes,no", help="Whether the server pushes rebalances [default: no,yes].")
    ] = None
    gradual: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Partitions that move at a time to a newcomer; 0 for all [default: 0]."),
    ] = None
    patterns: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="NAME,...",
            help="Of steady, rolling, rolling-static, rolling-hold, stop-start, scale-out, scale-in, crash, "
            "crash-static, zone, flap, failover [default: rolling,scale-out,crash].",
        ),
    ] = None
    clients: Annotated[
        str | None,
        typer.Option("--client", metavar="NAME,...", help="The members' client: java, librdkafka [default: java]."),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of every run, as session_ms=30000."),
    ] = None
    grid: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The grid in TOML or JSON; options override it.")
    ] = None

    def given(self) -> dict[str, tuple[Any, ...]]:
        """The values of the options that are there, by the grid's names."""
        lists: dict[str, tuple[Any, ...] | None] = {
            "members": _numbers("--members", self.members),
            "partitions": _words(self.partitions),
            "protocols": _words(self.protocols),
            "assignors": _words(self.assignors),
            "pushed": _switches(self.pushed),
            "handover": _numbers("--gradual", self.gradual),
            "patterns": _words(self.patterns),
            "clients": _words(self.clients),
        }
        return {key: values for key, values in lists.items() if values is not None}


@dataclass(frozen=True, slots=True)
class DayOptions:
    """Instead of a grid: a day of one group, or of many."""

    size: Annotated[
        str | None,
        typer.Option(metavar="MEMBERS,PARTITIONS", help="Instead of a grid: how to run a group of this size."),
    ] = None
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="GROUPS,MEMBERS,PARTITIONS",
            help="Instead of a grid: the load of this many groups on their coordinators.",
        ),
    ] = None
    deploys: Annotated[
        float, typer.Option(min=0, metavar="N", help="Deployments of each group a day, for --size and --fleet.")
    ] = 1.0
    crashes: Annotated[
        float, typer.Option(min=0, metavar="N", help="Crashes of a member of each group a day, likewise.")
    ] = 1.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each point.")] = 2
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")] = 0
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Keep the runs there as Parquet, and the report.")
    ] = None
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report in one HTML file [default: report.html in --to].")
    ] = None


def question(grid: GridOptions, day: DayOptions) -> tuple[Ask | Fleet | None, list[Point]]:
    """The question (None for a grid), and the points to simulate. Raises BadParameter."""
    given, settings = grid.given(), _settings(grid.settings or ())
    try:
        if (day.size is not None or day.fleet is not None) and (
            given or grid.grid is not None or (day.size and day.fleet)
        ):
            raise typer.BadParameter("--size, --fleet and a grid are three questions: ask one")
        if day.size is not None:
            members, partitions = _several("--size", day.size, "24,96")
            ask = Ask(members, partitions, day.deploys, day.crashes, settings)
            return ask, points_of(ask)
        if day.fleet is not None:
            groups, members, partitions = _several("--fleet", day.fleet, "1000,10,40")
            many = Fleet(groups, members, partitions, day.deploys, day.crashes, settings)
            return many, points_of_fleet(many)
        base = grid_in(grid.grid) if grid.grid is not None else Grid()
        return None, replace(base, **given, settings={**base.settings, **settings}).points()
    except (BadPoint, OSError) as error:
        raise typer.BadParameter(str(error)) from None


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    words = _words(text)
    if words is None:
        return None
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise typer.BadParameter(f"{option}: {word!r} is not a whole number")
    return tuple(map(int, words))


def _switches(text: str | None) -> tuple[bool, ...] | None:
    words = _words(text)
    if words is None:
        return None
    if set(words) - set(YES_NO):
        raise typer.BadParameter(f"--pushed: {text!r} is neither yes nor no nor both")
    return tuple(YES_NO[word] for word in words)


def _several(option: str, text: str, example: str) -> tuple[int, ...]:
    numbers = _numbers(option, text) or ()
    if len(numbers) != example.count(",") + 1:
        raise typer.BadParameter(f"{option}: it takes {example.count(',') + 1} numbers, as {example}")
    return numbers


def _settings(given: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for entry in given:
        key, equals, text = entry.partition("=")
        if not equals or key not in FIELDS:
            raise typer.BadParameter(f"--set {entry}: write NAME=VALUE; the names are {', '.join(FIELDS)}")
        try:
            settings[key] = YES_NO[text] if FIELDS[key] is bool else FIELDS[key](text)
        except (ValueError, KeyError):
            wanted = "neither yes nor no" if FIELDS[key] is bool else "no number"
            raise typer.BadParameter(f"--set {entry}: {text!r} is {wanted}") from None
    return settings
