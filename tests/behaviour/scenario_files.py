"""The scenario files that are run over sockets, those that are not and why, and where the two servers are known to
differ.

`not_run.txt` has a line for each file that a client cannot show: its name and the reason. `differences.txt` has an
entry for each file in which Kafka and kohort differ: the ids of the differences in docs/differences.md, and each
command whose answers are not the same, with both answers. With `varies` after the ids, it has only the errors of both.
`make peers-behaviour RECORD=yes` writes what they answer now; people write the ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from guide import hints_for
from lanes import STRICT, USUAL, Lane
from test_scenarios import SCENARIOS

from kohort.conformance.files import SEQUENCES, Scenario, commands_of, parse, rows_of
from kohort.conformance.play.profiles import profile_for

FOLDER = Path(__file__).parent
NOT_RUN = FOLDER / "not_run.txt"
SERVERS = ("kafka", "kohort")
VARIES = "varies"

Transcripts = Mapping[str, Sequence[Sequence[str]]]
"""For each server, the lines after each command."""


@dataclass(frozen=True)
class Difference:
    """A command that is answered differently."""

    command: str
    lines: tuple[str, ...]
    """`kafka …` and `kohort …`, as in the file."""

    @property
    def errors(self) -> tuple[frozenset[str], ...]:
        """Those of each server."""
        found = {server: [line for line in self.lines if line.startswith(server)] for server in SERVERS}
        return tuple(frozenset(re.findall(r"error=(-?\d+)", " ".join(found[server]))) for server in SERVERS)

    def example(self) -> Difference:
        """The part that is recorded if answers vary: the lines with errors."""
        return Difference(self.command, tuple(line for line in self.lines if "error=" in line))


@dataclass(frozen=True)
class Known:
    ids: tuple[str, ...]
    differences: tuple[Difference, ...]
    varies: bool = False
    """True if hashes or the clock decide which of these commands differ, and how. Errors never vary: both servers
    answer with the same errors, or with the recorded ones."""

    def fits(self, found: Sequence[Difference]) -> bool:
        if not self.varies:
            return tuple(found) == self.differences
        examples = {(row.command, *row.errors) for row in self.differences}
        commands = {row.command for row in self.differences}
        return all(
            row.command in commands and (row.errors[0] == row.errors[1] or (row.command, *row.errors) in examples)
            for row in found
        )

    def explains(self, row: Difference) -> bool:
        return row in self.differences or (self.varies and self.fits([row]))


NOTHING = Known((), ())


def scenarios(lane: Lane = USUAL) -> list[Scenario]:
    found = []
    skipped = reasons(NOT_RUN)
    for path in SCENARIOS:
        if path.stem not in skipped:
            commands = commands_of(path)
            found.append(Scenario(path.stem, commands, hints_for(commands, lane), profile_for(path.stem, commands)))
    return found


def rows_shown() -> set[str]:
    """The rows that a scenario on the wire names, or a comment of a recorded sequence."""
    skipped = reasons(NOT_RUN)
    lines = [line for path in SCENARIOS if path.stem not in skipped for line in parse(path.read_text("utf-8"))[0]]
    for path in SEQUENCES.glob("*.txt"):
        lines += [line for line in path.read_text("utf-8").splitlines() if line.startswith("# ")]
    return set(rows_of(lines))


def reasons(path: Path) -> dict[str, str]:
    """The reasons that a file lists, by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.partition(":") for line in lines if line[:1] not in ("", "#"))
    return {name.strip(): reason.strip() for name, _, reason in rows}


def differences(commands: Sequence[str], transcripts: Transcripts) -> tuple[Difference, ...]:
    """The commands whose answers are not the same."""
    found = []
    for number, command in enumerate(commands):
        answers = {server: transcripts[server][number] for server in SERVERS}
        if answers["kafka"] != answers["kohort"]:
            lines = tuple(f"{server:6} {line}" for server in SERVERS for line in answers[server] or ("nothing",))
            found.append(Difference(command, lines))
    return tuple(found)


# -- the file of known differences


def known(lane: Lane = USUAL) -> dict[str, Known]:
    text = lane.differences.read_text(encoding="utf-8") if lane.differences.exists() else ""
    found = {}
    for entry in filter(None, text.split("\n\n")):
        lines = [line for line in entry.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        name, *ids = lines[0].split()
        varies = VARIES in ids
        rows: list[Difference] = []
        for line in lines[1:]:
            if line.startswith("    "):
                rows[-1] = Difference(rows[-1].command, (*rows[-1].lines, line[4:]))
            else:
                rows.append(Difference(line[2:], ()))
        found[name.removesuffix(".txt")] = Known(tuple(id for id in ids if id != VARIES), tuple(rows), varies)
    return found


def record(found: Mapping[str, Sequence[Difference]], ran: Iterable[str], lane: Lane = USUAL) -> None:
    """Record the differences of the scenarios that ran. Entries of others stay, and so do all ids, and the earlier
    errors of an entry that varies."""
    entries = known(lane)
    for name in ran:
        before, rows = entries.get(name, NOTHING), list(found.get(name, ()))
        if before.varies:
            rows += [row for row in before.differences if row.command not in {row.command for row in rows}]
            rows = list(dict.fromkeys(row.example() for row in rows))
        entries.pop(name, None)
        if rows:
            entries[name] = Known(before.ids, tuple(rows), before.varies)
    server = "a strict kohort" if lane is STRICT else "kohort"
    target = f"make peers-behaviour RECORD=yes{' STRICT=yes' if lane is STRICT else ''}"
    parts = [
        f"# What Apache Kafka and {server} answer differently in scenarios, by the ids of docs/differences.md.\n"
        f"# Written by {target}, but for the ids."
    ]
    for name, entry in sorted(entries.items()):
        lines = [" ".join([f"{name}.txt", *entry.ids, *[VARIES] * entry.varies])]
        for row in entry.differences:
            lines += [f"  {row.command}", *(f"    {line}".rstrip() for line in row.lines)]
        parts.append("\n".join(lines))
    lane.differences.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
