"""The files that are played, scenarios and sequences, and the rows of behaviour that each of them shows.

A scenario begins with the rows that it shows (`# J3 J29: …`). Then come blocks: commands, `----`, and what
kohort's own coordinator prints in a test, up to an empty line; a player ignores that. A sequence has comments with the
rows, and after each command the answers (play/transcript.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from kohort.conformance.play.hints import Hints
from kohort.conformance.play.profiles import Profile

FOLDER = Path(__file__).parent
SCENARIOS = FOLDER / "scenarios"
SEQUENCES = FOLDER / "sequences"


@dataclass(frozen=True)
class Scenario:
    name: str
    commands: tuple[str, ...]
    hints: Hints
    profile: Profile

    @property
    def own_topics(self) -> dict[str, str] | None:
        """Topics that exist before the first command and belong to this run alone, because commands delete them. None
        if commands create all topics, or share some with other runs."""
        return {"t": "4", "u": "4"} if any(command.startswith("topics-deleted") for command in self.commands) else None

    @property
    def makes_topics(self) -> bool:
        return self.own_topics is not None or any(command.startswith("topics ") for command in self.commands)

    @property
    def is_alone(self) -> bool:
        """True if it restarts the server, or uses the group without a name, of which a server has one."""
        return any(command.startswith("restart") or " ''" in command for command in self.commands)

    @property
    def changes_settings(self) -> bool:
        return any(command.startswith("restart ") for command in self.commands)


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


def rows_of(lines: Iterable[str]) -> list[str]:
    return [row for line in lines if ":" in line for row in re.findall(r"\b[A-Z]{1,2}\d+\b", line.split(":")[0])]


def commands_of(path: Path) -> tuple[str, ...]:
    _, blocks = parse(path.read_text(encoding="utf-8"))
    return tuple(command for commands, _ in blocks for command in commands if not command.startswith("#"))


def headed(path: Path) -> tuple[str, ...]:
    """The rows that a scenario's first lines name, or all comments of a sequence."""
    text = path.read_text(encoding="utf-8")
    lines = parse(text)[0] if path.parent == SCENARIOS else [line for line in text.splitlines() if line[:2] == "# "]
    return tuple(dict.fromkeys(rows_of(lines)))
