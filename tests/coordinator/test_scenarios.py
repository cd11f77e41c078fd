"""Scenarios: files of commands and of what they print. `pytest --rewrite` writes what is printed as what is expected.

A file begins with the rows of the conformance list that it proves (`# J3 J29: …`), one comment a line. Then come
blocks: commands, `----`, and the printed world up to an empty line.
"""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest
from shard_world import ShardWorld

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))

ROWS = {"J": 37, "S": 13, "H": 14, "L": 12, "O": 25, "X": 6, "D": 10, "R": 6}
"""Rows of the conformance list that a shard of classic groups can prove, by their letter."""

ELSEWHERE = {
    **dict.fromkeys(["J34", "J35", "H13", "O13", "O20", "D7"], "consumer groups (KIP-848), which are not there yet"),
    **dict.fromkeys(["O18", "O19", "X5"], "transactions, which are not there yet"),
    **dict.fromkeys(["J33", "S8", "S9"], "a failed append stops the process (fail-stop)"),
    **dict.fromkeys(["J25", "H3", "L11"], "no request can meet a Dead group"),
    **dict.fromkeys(["O8", "O17", "O21", "O22", "D1", "D2", "D3", "D4"], "the broker (tests/broker)"),
    **dict.fromkeys(["H10", "L12", "R4", "R6"], "the wire, the clients and the broker's turn"),
}
"""Rows that no scenario of a shard can prove, and why or where."""


def parse(text: str) -> tuple[list[str], list[tuple[list[str], list[str]]]]:
    """The comment lines at the top, and for each block the commands (comments among them) and the expected output."""
    lines = text.splitlines()
    header = list(takewhile(lambda line: line.startswith("#"), lines))
    blocks = []
    commands: list[str] = []
    rest = iter(lines[len(header) :])
    for line in rest:
        if line == "----":
            expected = []
            for printed in rest:
                if not printed:
                    break
                expected.append(printed)
            blocks.append((commands, expected))
            commands = []
        elif line:
            commands.append(line)
    if commands:
        blocks.append((commands, []))
    return header, blocks


def rows_of(header: list[str]) -> list[str]:
    return [row for line in header if ":" in line for row in re.findall(r"\b[A-Z]\d+\b", line.split(":")[0])]


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    header, blocks = parse(path.read_text(encoding="utf-8"))
    rows = rows_of(header)
    assert rows, "the first line names the rows that the scenario proves"
    for row in rows:
        assert 1 <= int(row[1:]) <= ROWS.get(row[0], 0), f"there is no row {row}"
        assert row not in ELSEWHERE, f"{row}: {ELSEWHERE[row]}"
    world = ShardWorld()
    output = []
    for commands, expected in blocks:
        for command in commands:
            if not command.startswith("#"):
                world.run(command)
        printed = world.printed + world.describe()
        world.printed = []
        output.append("\n".join([*commands, "----", *printed]))
        if not request.config.getoption("--rewrite"):
            assert printed == expected, f"after {commands} in {path.name}; pytest --rewrite, then read the difference"
    if request.config.getoption("--rewrite"):
        path.write_text("\n".join(header) + "\n" + "\n\n".join(output) + "\n", encoding="utf-8")


def test_rows() -> None:
    """Informative: which rows are proved."""
    proved = {row for path in SCENARIOS for row in rows_of(parse(path.read_text(encoding="utf-8"))[0])}
    every = [f"{letter}{number}" for letter, last in ROWS.items() for number in range(1, last + 1)]
    unproved = [row for row in every if row not in proved and row not in ELSEWHERE]
    print(f"proved by scenarios: {len(proved)} of {len(every)}; not provable here: {len(ELSEWHERE)}")
    print(f"unproved: {' '.join(unproved) or 'none'}")
