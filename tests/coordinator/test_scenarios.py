"""Scenarios: files of commands and of what they print. `pytest --rewrite` writes what is printed as what is expected.

A file begins with the rows of docs/conformance.md that it proves (`# J3 J29: …`); tests/structure/test_conformance.py
checks that there are such rows. Then come blocks: commands, `----`, and the printed world up to an empty line.
"""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest
from shard_world import ShardWorld

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


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


def play(world: ShardWorld, commands: list[str]) -> list[str]:
    """Run a block of commands. Returns what is printed."""
    for command in commands:
        if not command.startswith("#"):
            world.run(command)
    printed, world.printed = world.printed + world.describe(), []
    return printed


def rows_of(header: list[str]) -> list[str]:
    return [row for line in header if ":" in line for row in re.findall(r"\b[A-Z]{1,2}\d+\b", line.split(":")[0])]


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    header, blocks = parse(path.read_text(encoding="utf-8"))
    assert rows_of(header), "the first line names the rows that the scenario proves"
    world = ShardWorld()
    output = []
    for commands, expected in blocks:
        printed = play(world, commands)
        output.append("\n".join([*commands, "----", *printed]))
        if not request.config.getoption("--rewrite"):
            assert printed == expected, f"after {commands} in {path.name}; pytest --rewrite, then read the difference"
    if request.config.getoption("--rewrite"):
        path.write_text("\n".join(header) + "\n" + "\n\n".join(output) + "\n", encoding="utf-8")
