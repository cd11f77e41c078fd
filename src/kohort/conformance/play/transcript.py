"""A sequence with its answers: a file in sequences/.

A line that begins at the margin is a command or a comment. The indented lines after a command are the answer that both
servers give; where they differ, each has its own, and a comment before the command says why:

    # departs stale-epoch: a lost answer costs nobody its place
    beat a epoch=~1
        kafka   error=110 FENCED_MEMBER_EPOCH
        kohort  member_id='a' member_epoch=2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kohort.conformance.play.broker import Address
from kohort.conformance.play.stage import Stage

INDENT = "    "
SERVERS = ("kafka", "kohort")


@dataclass(slots=True)
class Step:
    command: str
    answers: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in SERVERS})


def parse(text: str) -> list[Step]:
    """The commands at the margin, with their recorded answers."""
    steps: list[Step] = []
    for line in text.splitlines():
        if not line.startswith(INDENT):
            steps.append(Step(line))
            continue
        body = line[len(INDENT) :]
        server, _, own = body.partition(" ")
        if server in SERVERS:
            steps[-1].answers[server].append(own.removeprefix(" " * (7 - len(server))))
        else:
            for answers in steps[-1].answers.values():
                answers.append(body)
    return steps


def written(steps: Iterable[Step]) -> str:
    lines: list[str] = []
    for step in steps:
        lines.append(step.command)
        kafkas, kohorts = (step.answers[name] for name in SERVERS)
        if kafkas == kohorts:
            lines += [INDENT + line for line in kafkas]
        else:
            lines += [f"{INDENT}{name:7} {line}" for name in SERVERS for line in step.answers[name]]
    return "\n".join(lines) + "\n"


def is_command(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def play(address: Address, sequence: str, commands: Sequence[str]) -> list[list[str]]:
    """The answers of a server, a list of lines for each line at the margin."""
    stage = Stage(address, sequence)
    try:
        return [stage.run(line) if is_command(line) else [] for line in commands]
    finally:
        stage.close()


def unexplained(steps: Sequence[Step]) -> list[str]:
    """Commands that are not explained right. Before a command whose answers differ, a comment must name a row of
    docs/differences.md, as `# departs ID: …`; before any other command there must be no such comment."""
    wrong = []
    for before, step in zip([Step(""), *steps], steps, strict=False):
        differs = step.answers["kafka"] != step.answers["kohort"]
        if differs != bool(difference_of(before.command)) and is_command(step.command):
            wrong.append(step.command)
    return wrong


def difference_of(line: str) -> str:
    """The id of a difference that a comment names; "" for none."""
    return line.removeprefix("# departs ").partition(":")[0] if line.startswith("# departs ") else ""


def settings_of(steps: Sequence[Step]) -> dict[str, str]:
    """`# with name=value …` in the first line: the servers' settings besides the usual ones."""
    first = steps[0].command
    words = first.removeprefix("# with ").split() if first.startswith("# with ") else []
    return dict(word.split("=", 1) for word in words)
