"""The page of all recorded tables: servers × rows, and why rows of kohort are different."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import scenario_files
from lanes import STRICT, USUAL, Lane

from kohort.conformance import rows
from kohort.conformance.files import SEQUENCES
from kohort.conformance.play import transcript

Table = Mapping[str, Any]

TITLES = {
    "kohort": "kohort",
    "strict": "kohort, strict",
    "kfake": "kfake",
    "mock": "librdkafka",
}
"""The columns; those of Apache Kafka have its version."""
LANES = {"strict": STRICT, "kohort": USUAL}
MARKS = {"kept": "kept", "different": "**different**", "not shown": "–"}
HEAD = """# Conformance of brokers

What [`kohort conformance`](conformance-kit.md) found, row by row. `make peers-conformance` writes this page.
[Its section on recorded tables](conformance-kit.md#recorded-tables) says how to read it, and how it was made.

{servers}

## Counts

Rows that are kept / different / not shown, by the letters of [conformance.md](conformance.md).

"""
SHOWN = """
## Rows

Every row that at least one of these servers shows; a dash is a row that a server does not show.

"""
NOWHERE = """
None of them shows these rows ([those that no client can show](../src/kohort/conformance/rows_not_shown.txt)):
{names}.
"""
WHY = """
## Why rows of kohort are different

The ids are those of [differences.md](differences.md).

"""


def read(folder: Path, names: Sequence[str]) -> dict[str, Table]:
    """The tables that there are, by the names of their servers, in this order."""
    files = {name: folder / f"{name}.json" for name in names}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}


def page(tables: Mapping[str, Table]) -> str:
    states = {name: {row["row"]: row["state"] for row in table["rows"]} for name, table in tables.items()}
    columns = [TITLES.get(name, name.removeprefix("kafka-")) for name in tables]
    servers = "".join(f"- [{table['target']}](conformance-tables/{name}.json)\n" for name, table in tables.items())
    lines = [HEAD.format(servers=servers.rstrip())]
    lines += _head(["rows", *columns])
    known = list(rows.rows().values())
    for letters in dict.fromkeys(row.letters for row in known):
        of_letters = [row.name for row in known if row.letters == letters]
        counted = [[found.get(name, "not shown") for name in of_letters] for found in states.values()]
        lines.append(_line([letters, *(" / ".join(str(each.count(mark)) for mark in MARKS) for each in counted)]))
    sums = [" / ".join(str(table["counts"][mark]) for mark in MARKS) for table in tables.values()]
    lines += [_line(["all", *sums]), SHOWN]
    lines += _head(["row", "says", *columns])
    nowhere = []
    for row in known:
        found = [states[name].get(row.name, "not shown") for name in states]
        if set(found) == {"not shown"}:
            nowhere.append(row.name)
            continue
        lines.append(_line([row.name, row.says.replace("|", "\\|"), *(MARKS[state] for state in found)]))
    lines.append(NOWHERE.format(names=", ".join(nowhere)))
    lines.append(WHY)
    lines += _head(["row", *(TITLES[name] for name in LANES if name in tables)])
    why = {name: reasons(tables[name], lane) for name, lane in LANES.items() if name in tables}
    for row in known:
        if any(row.name in found for found in why.values()):
            cells = (" ".join(f"`{id}`" for id in found.get(row.name, ())) for found in why.values())
            lines.append(_line([row.name, *cells]))
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def unexplained(tables: Mapping[str, Table]) -> list[str]:
    """Differences of kohort without an id."""
    return [
        f"{name}: {row} in {missing}"
        for name, lane in LANES.items()
        if name in tables
        for row, found in reasons(tables[name], lane).items()
        for missing in found
        if missing not in lane.ids
    ]


def reasons(table: Table, lane: Lane) -> dict[str, tuple[str, ...]]:
    """The ids of the differences of each row; the file and the command of one without an id."""
    return {
        row["row"]: tuple(dict.fromkeys(id for each in row["differences"] for id in _ids(each, lane)))
        for row in table["rows"]
        if row["state"] == "different"
    }


def _ids(difference: Mapping[str, Any], lane: Lane) -> Iterable[str]:
    file, asked = difference["file"], difference["asked"]
    path = SEQUENCES / f"{file}.txt"
    if path.exists():
        steps = transcript.parse(path.read_text(encoding="utf-8"))
        pairs = zip([transcript.Step(""), *steps], steps, strict=False)
        found = {transcript.difference_of(before.command) for before, step in pairs if step.command == asked}
        found &= lane.ids
    else:
        known = scenario_files.known(lane).get(file, scenario_files.NOTHING)
        found = set(known.ids) if asked in {row.command for row in known.differences} else set()
    return sorted(found) or [f"{file}: {asked}"]


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), "|" + " --- |" * len(cells)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
