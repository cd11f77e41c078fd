"""Scenarios: files of commands and of what they print. `pytest --rewrite` writes what is printed as what is expected.

A file begins with the rows of docs/conformance.md that it proves (`# J3 J29: …`); tests/structure/test_conformance.py
checks that there are such rows. Then come blocks: commands, `----`, and the printed world up to an empty line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from shard_world import ShardWorld

from kohort.conformance.files import SCENARIOS as ON_THE_WIRE
from kohort.conformance.files import parse, rows_of

OWN = Path(__file__).parent / "scenarios"
"""Scenarios that no client can show; the others are in `kohort.conformance`."""
SCENARIOS = sorted([*OWN.glob("*.txt"), *ON_THE_WIRE.glob("*.txt")], key=lambda path: path.name)


def path_of(name: str) -> Path:
    return next(path for path in SCENARIOS if path.name == name)


def play(world: ShardWorld, commands: list[str]) -> list[str]:
    """Run a block of commands. Returns what is printed."""
    for command in commands:
        if not command.startswith("#"):
            world.run(command)
    printed, world.printed = world.printed + world.describe(), []
    return printed


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
