"""A run of `make bench`: the servers, the number of rounds, the measurements, and their presentation.

A figure is one round of one row on one server. Rounds alternate between the servers, so that disturbances of the
machine affect all of them. The tables show the best of the rounds: the least CPU, the shortest times, the highest
rates; for subjects with random results the median and the worst. A round on a busy machine is repeated, at most twice,
and records how busy the machine was.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

from bench import _peers
from bench._machine import Others, machine, sync_probe, versions
from bench._peers import TITLES, Server, Settings
from bench._process import pinned

QUIET_CORES = 0.15
TRIES = 3
ROUNDS, QUICK_ROUNDS = 3, 2
SECONDS, QUICK_SECONDS = 1.2, 0.7
HIGHEST = {"rate", "half_rate", "mb_s", "records_s", "load_share"}
"""Values whose highest round is shown; the load's share is among them, because a high share casts doubt on a rate."""

WORST = "worst "

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
    cell: Callable[[Values], str]
    """A cell from the values of a row. A KeyError means that the row has none of them: the cell stays empty."""

    def text(self, values: Values | None) -> str:
        with suppress(KeyError):
            return self.cell(values) if values else ""
        return ""


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


@dataclass
class Run:
    subject: str
    columns: Mapping[str, str] = field(default_factory=lambda: TITLES)
    quick: bool = False
    only: Sequence[str] = ()
    asked: int = 0
    """The requested number of rounds; 0 for the subject's own number."""

    def __post_init__(self) -> None:
        self.rounds = self.asked or (QUICK_ROUNDS if self.quick else ROUNDS)
        self.seconds = QUICK_SECONDS if self.quick else SECONDS
        self.result = Figures(self.subject, machine(), versions())

    def names(self, wanted: Sequence[str]) -> list[str]:
        """The servers of `wanted` that were requested and can be started here."""
        names = [name for name in wanted if name not in _peers.missing() and (not self.only or name in self.only)]
        self.result.versions.update(_peers.versions(set(names)))
        return names

    def chosen(self, kind: Sequence[str], kinds: Sequence[Sequence[str]]) -> list[str]:
        """The requested words of a kind; all of them if none of the kind was requested. None if a word of another
        subject, which is in none of the `kinds`, was requested."""
        strange = set(self.only) - {word for each in kinds for word in each}
        return [word for word in kind if word in self.only or not (strange or set(self.only) & set(kind))]

    @contextmanager
    def servers(self, wanted: Sequence[str], settings: Settings) -> Iterator[list[Server]]:
        """Start all servers at once. An idle one uses little CPU while another is measured, and all do so equally."""
        with ExitStack() as stack:
            yield [stack.enter_context(_peers.started(name, settings)) for name in self.names(wanted)]

    def measure(
        self,
        row: str,
        server: Server,
        work: Callable[[], Values],
        values: Callable[[Values, float], Values] = lambda done, _: done,
    ) -> Values:
        """`work` once, or up to three times on a busy machine. `values` is given its result and the server's CPU
        from before until after it, connections included."""
        tries: list[tuple[float, Values]] = []
        while len(tries) < TRIES:
            others, before = Others(), server.cpu_seconds()
            done = work()
            found = values(done, server.cpu_seconds() - before)
            tries.append((others.cores, found))
            if tries[-1][0] <= QUIET_CORES:
                break
        busy, kept = min(tries, key=lambda found: found[0])
        self.add(row, server.name, kept, busy)
        return kept

    def add(self, row: str, server: str, values: Values, others: float | None) -> None:
        self.result.figures.append(Figure(row, server, values, others))
        shown = "  ".join(f"{name} {value:,.4g}" for name, value in values.items())
        print(f"  {row:34} {self.columns[server]:22} {shown}", flush=True)


def taken(subject: Subject, *, quick: bool, only: Sequence[str], rounds: int = 0) -> Figures:
    """Measure a subject. A pinned one has the load on its core."""
    run = Run(subject.name, subject.columns, quick, only, rounds)
    for name, why in _peers.missing().items():
        if not only or name in only:
            print(f"left out: {why}")
    if subject.needs_load and "floor" in _peers.missing():
        print(f"{subject.name} is not measured: it needs {_peers.COMPILER}")
        return run.result
    began = time.monotonic()
    run.result.sync_ms = sync_probe()
    with pinned(_peers.LOAD_CORE) if subject.pinned else nullcontext():
        subject.measure(run)
    run.result.took_s = time.monotonic() - began
    return run.result


def lines(found: Figures, subject: Subject) -> list[str]:
    """The tables, in Markdown."""
    made: list[str] = []
    for table in subject.tables:
        rows = {row: [table.text(subject.shown(found, row, name)) for name in subject.columns] for row in found.rows()}
        used = [n for n, cells in enumerate(zip(*rows.values(), strict=True)) if any(cells)]
        if not used:
            continue
        titles = list(subject.columns.values())
        made += [table.title, "", f"| | {' | '.join(titles[n] for n in used)} |", f"| --- |{' --: |' * len(used)}"]
        made += [f"| {row} | {' | '.join(cells[n] for n in used)} |" for row, cells in rows.items() if any(cells)]
        made.append("")
    return made
