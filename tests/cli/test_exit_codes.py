"""The exit codes that the help of each command names are those that it returns."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.cli import connect
from kohort.cli.commands import LazyGroup, app
from kohort.cli.commands import load as loaded

ARGUMENTS = {
    name: words.split()
    for name, words in {
        "topics create": "t",
        "topics describe": "t",
        "topics delete": "t --yes",
        "topics alter": "t --config a=b",
        "topics delete-records": "t --before 1 --yes",
        "groups describe": "g",
        "groups explain": "g",
        "groups reset-offsets": "g --to-latest --all-topics",
        "groups restore": "g --before 2026-01-01T00:00Z",
        "groups delete": "g --yes",
        "groups delete-offsets": "g --topic t --yes",
        "groups remove-member": "g --all",
        "groups redeliver": "g --archived",
        "groups export": "g",
        "groups configs": "g",
        "groups hold": "g --for 5m",
        "groups release": "g",
        "groups assign": "g --dry-run --assignor uniform",
        "configs describe": "topic:t",
        "configs set": "topic:t a=b",
        "configs unset": "topic:t a",
        "transactions describe": "t",
        "transactions abort": "t --yes",
        "users delete": "alice --yes",
        "acls add": "alice read topic:t",
        "acls check": "alice read topic:t",
        "quotas set": "--user alice producer_byte_rate=1",
        "quotas delete": "--user alice --yes",
        "consume": "t",
        "pipeline history": "--to /nonexistent",
    }.items()
}
OTHERS = {"console", "groups import", "users add", "produce", "pipeline ingest", "acls remove"}
"""They ask on a terminal, read stdin or a file, or serve, before they connect; they have tests of their own."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        return [(" ".join(path), command)]
    found = []
    for name, child in children.items():
        found += leaves(command.loaded(name) if isinstance(command, LazyGroup) else child, (*path, name))
    return found


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    from kohort.cli.commands import COMMANDS

    return dict(one for name in COMMANDS for one in leaves(loaded(name), (name,)))


def codes_of(command: Any) -> set[int]:
    text = " ".join(f"{command.help or ''} {command.epilog or ''}".split())
    found = re.search(r"Exit codes: (.*)", text)
    return {int(code) for code in re.findall(r"(?:^|, )(\d+) ", found[1])} if found else set()


def asks_a_cluster(command: Any) -> bool:
    return any("--bootstrap-server" in param.opts for param in command.params)


def test_every_command_names_its_exit_codes(commands: dict[str, Any]) -> None:
    without = [name for name, command in commands.items() if not {0, 2} <= codes_of(command)]
    assert not without
    assert not [name for name, command in commands.items() if asks_a_cluster(command) and 3 not in codes_of(command)]


def test_wrong_usage_and_a_cluster_that_cannot_be_reached(
    commands: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BOOTSTRAP_TIMEOUT_MS", 1)
    returned = {}
    for name, command in commands.items():
        run = CliRunner().invoke(app, [*name.split(), "--no-such-option"], prog_name="kohort")
        assert run.exit_code == 2, name
        if asks_a_cluster(command) and name not in OTHERS:
            given = [*name.split(), *ARGUMENTS.get(name, ()), "-b", "127.0.0.1:1"]
            run = CliRunner().invoke(app, given, prog_name="kohort")
            returned[name] = run.exit_code, run.output[-200:]
    wrong = [f"{name}: {said}" for name, (code, said) in returned.items() if code != 3]
    assert not wrong, "\n".join(wrong)
