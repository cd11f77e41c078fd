"""A run of `make bench`: the servers, the number of rounds, the measurements, and their presentation.

A figure is one round of one row on one server. Rounds alternate between the servers, so that disturbances of the
machine affect all of them. The tables show the best of the rounds: the least CPU, the shortest times, the highest
rates; for subjects with random results the median and the worst. A round on a busy machine is repeated, at most twice,
and records how busy the machine was.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from bench import _native, _peers
from bench._machine import Others, machine, sync_probe, versions
from bench._peers import TITLES, Server, Settings

QUIET_CORES = 0.15
TRIES = 3
ROUNDS, QUICK_ROUNDS = 3, 2
SECONDS, QUICK_SECONDS = 1.2, 0.7
RATES = {"rate", "half_rate", "mb_s", "records_s"}
"""Values for which more is better; for all others less is."""
HIGHEST = {*RATES, "load_share"}
"""Values whose highest round is shown; the load's share is among them, because a high share casts doubt on a rate."""

WORST = "worst "

Result = TypeVar("Result")
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figure:
    row: str
    server: str
    values: Values
    others: float | None
    """Cores that other processes kept busy meanwhile; None if that is unknown."""


@dataclass(slots=True)
class Figures:
    """The figures of one subject, with machine and versions."""

    subject: str
    machine: Mapping[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    sync_ms: tuple[float, float] = (0.0, 0.0)
    """fdatasync of 4 KiB: median, 99th percentile."""
    took_s: float = 0.0
    figures: list[Figure] = field(default_factory=list)

    def rows(self) -> list[str]:
        return list(dict.fromkeys(figure.row for figure in self.figures))

    def servers(self) -> set[str]:
        return {figure.server for figure in self.figures}

    def best(self, row: str, server: str) -> Values | None:
        """The best round of each value; None without measurements."""
        return {
            name: (max if name in HIGHEST else min)(found) for name, found in self._rounds(row, server).items()
        } or None

    def typical(self, row: str, server: str) -> Values | None:
        """The median of each value under its name, the largest under WORST and its name, and the number of rounds."""
        rounds = self._rounds(row, server)
        if not rounds:
            return None
        made = {name: statistics.median(found) for name, found in rounds.items()}
        made |= {WORST + name: max(found) for name, found in rounds.items()}
        return {**made, "rounds": max(map(len, rounds.values()))}

    def _rounds(self, row: str, server: str) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for figure in self.figures:
            if (figure.row, figure.server) == (row, server):
                for name, value in figure.values.items():
                    found.setdefault(name, []).append(value)
        return found


@dataclass(frozen=True, slots=True)
class Table:
    """One line for each row, one column for each server."""

    title: str
    cell: Callable[[Values], str | None]
    """A cell from the values of a row; None if the table has none of them."""


LOAD_SHARE = Table(
    "The load's share of its own core", lambda v: f"{v['load_share']:.0%}" if "load_share" in v else None
)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the picture."""

    title: str
    row: str
    value: str
    unit: str
    scale: float = 1.0
    floor: bool = True
    """Whether to show the floor: some floors would make the other bars too small to see."""


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    measure: Callable[[Run], None]
    tables: Sequence[Table]
    panels: Sequence[Panel]
    columns: Mapping[str, str] = field(default_factory=lambda: TITLES)
    """The columns and their titles."""
    shown: Callable[[Figures, str, str], Values | None] = Figures.best
    """The values to show for a row and a server."""
    needs_load: bool = False
    """Whether it sends the load of native/load.c, which needs gcc."""
    pinned: bool = True
    """Servers on one core and the load on the other; otherwise all use the whole machine."""


class Run:
    def __init__(
        self,
        subject: str,
        *,
        quick: bool = False,
        only: Sequence[str] = (),
        rounds: int = 0,
        columns: Mapping[str, str] = TITLES,
    ) -> None:
        """`rounds`: the requested number, 0 for the subject's own number."""
        self.quick = quick
        self.only = only
        self.columns = columns
        self.asked = rounds
        self.rounds = rounds or (QUICK_ROUNDS if quick else ROUNDS)
        self.seconds = QUICK_SECONDS if quick else SECONDS
        self.result = Figures(subject, machine(), versions())

    @contextmanager
    def beside(self, *, pinned: bool) -> Iterator[None]:
        """Pin the load to its core, probe the disk, and take the total time."""
        began = time.monotonic()
        self.result.sync_ms = sync_probe()
        allowed = os.sched_getaffinity(0)
        if pinned:
            os.sched_setaffinity(0, {_peers.LOAD_CORE})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
            self.result.took_s = time.monotonic() - began

    def names(self, wanted: Sequence[str]) -> list[str]:
        """The servers of `wanted` that were requested and can be started here."""
        names = [name for name in wanted if name not in _peers.missing() and (not self.only or name in self.only)]
        self.result.versions.update(_peers.versions(set(names)))
        return names

    @contextmanager
    def servers(self, wanted: Sequence[str], settings: Settings) -> Iterator[list[Server]]:
        """Start all servers at once. An idle one uses little CPU while another is measured, and all do so equally."""
        with ExitStack() as stack:
            yield [stack.enter_context(_peers.started(name, settings)) for name in self.names(wanted)]

    def measure(
        self, row: str, server: Server, work: Callable[[], Result], values: Callable[[Result, float], Values]
    ) -> Values:
        """`work` once, or up to three times on a busy machine. `values` is given its result and the server's CPU
        from before until after it, connections included."""
        kept: Figure | None = None
        least = 0.0
        for _ in range(TRIES):
            others, before = Others(), server.cpu_seconds()
            done = work()
            used = values(done, server.cpu_seconds() - before)
            busy = round(others.cores, 2)
            if kept is None or busy < least:
                kept, least = Figure(row, server.name, used, busy), busy
            if least <= QUIET_CORES:
                break
        assert kept is not None
        self.add(kept)
        return kept.values

    def add(self, figure: Figure) -> None:
        self.result.figures.append(figure)
        shown = "  ".join(f"{name} {value:,.4g}" for name, value in figure.values.items())
        print(f"  {figure.row:34} {self.columns[figure.server]:22} {shown}", flush=True)


def taken(subject: Subject, *, quick: bool, only: Sequence[str], rounds: int = 0) -> Figures:
    run = Run(subject.name, quick=quick, only=only, rounds=rounds, columns=subject.columns)
    for name, why in _peers.missing().items():
        if not only or name in only:
            print(f"left out: {why}")
    if subject.needs_load and not _native.available():
        print(f"{subject.name} is not measured: it needs {_native.COMPILER}")
        return run.result
    with run.beside(pinned=subject.pinned):
        subject.measure(run)
    return run.result


def lines(found: Figures, subject: Subject) -> list[str]:
    """The tables, in Markdown."""
    made: list[str] = []
    servers = [name for name in subject.columns if name in found.servers()]
    for table in subject.tables:
        cells = {
            row: [table.cell(values) if (values := subject.shown(found, row, name)) else None for name in servers]
            for row in found.rows()
        }
        used = [n for n, _ in enumerate(servers) if any(row[n] for row in cells.values())]
        if not used:
            continue
        titles = [subject.columns[servers[n]] for n in used]
        made += [table.title, "", f"| | {' | '.join(titles)} |", f"| --- |{' --: |' * len(used)}"]
        made += [f"| {row} | {' | '.join(line[n] or '' for n in used)} |" for row, line in cells.items() if any(line)]
        made.append("")
    return made
