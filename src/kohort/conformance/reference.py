"""What Apache Kafka 4.3 answered to the files, in answers/: recorded by `make peers-conformance ANSWERS=all`.

An answer that hashes or the clock decide differs from run to run in Kafka too: of such a command only the errors count,
and any that Kafka has given will do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kohort.conformance.files import FOLDER, SCENARIOS, SEQUENCES, Scenario, commands_of
from kohort.conformance.play.hints import from_json
from kohort.conformance.play.profiles import Profile, profile_for
from kohort.conformance.play.transcript import is_command, parse, settings_of

ANSWERS = FOLDER / "answers"
NAME = "Apache Kafka 4.3"

Lines = tuple[str, ...]


class Expected(NamedTuple):
    lines: Lines
    errors: frozenset[str] | None = None
    """For answers that vary: the sets of errors that Kafka has given, each as text. None: the lines are the answer."""

    def fits(self, came: Sequence[str]) -> bool:
        return tuple(came) == self.lines if self.errors is None else errors_of(came) in self.errors


def errors_of(lines: Sequence[str]) -> str:
    return "+".join(sorted(set(re.findall(r"error=(-?\d+)", " ".join(lines))), key=int))


class Reference(NamedTuple):
    scenario: Scenario
    expected: tuple[Expected, ...]


@cache
def scenario(name: str) -> Reference:
    found = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    commands = commands_of(SCENARIOS / f"{name}.txt")
    varying = found.get("varies", {})
    expected = [
        Expected(tuple(lines), frozenset(varying[str(number)]) if str(number) in varying else None)
        for number, lines in enumerate(found["answers"])
    ]
    profile: Profile = profile_for(name, commands)
    return Reference(Scenario(name, commands, from_json(found["hints"]), profile), tuple(expected))


def is_recorded(scenario: str) -> bool:
    return (ANSWERS / f"{scenario}.json").exists()


class Step(NamedTuple):
    """A line of a sequence at the margin: a command, or a comment."""

    text: str
    expected: Expected

    @property
    def is_command(self) -> bool:
        return is_command(self.text)


@cache
def sequence(name: str) -> tuple[Step, ...]:
    steps = parse((SEQUENCES / f"{name}.txt").read_text(encoding="utf-8"))
    return tuple(Step(step.command, Expected(tuple(step.answers["kafka"]))) for step in steps)


NEEDS: dict[str, dict[str, str]] = {}
"""By sequence: settings without which Kafka answers otherwise."""


def needs(name: str) -> dict[str, str]:
    """The settings that a sequence counts on."""
    return settings_of(parse((SEQUENCES / f"{name}.txt").read_text(encoding="utf-8"))) | NEEDS.get(name, {})


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.txt"))
