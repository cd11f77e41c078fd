"""The base install: the packages of the extras are missing, and only commands that need them say so, in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.cli.commands import COMMANDS, EXTRA_PACKAGES

PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: the import of it fails as if it were not installed
del sys.argv[1]
from kohort.cli.main import main
main()
"""


def run(command: str, *arguments: str, without: frozenset[str] = EXTRA_PACKAGES) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", PROGRAM, ",".join(without), command, *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"pipeline", "demo"}))
def test_commands_that_need_no_extra(command: str) -> None:
    ran = run(command, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "extra", "without"),
    [
        ("pipeline", "spark", EXTRA_PACKAGES),
        ("pipeline", "spark", frozenset({"numpy"})),
        ("demo", "demo", EXTRA_PACKAGES),
    ],
)
def test_commands_that_need_one(command: str, extra: str, without: frozenset[str]) -> None:
    ran = run(command, "--help", without=without)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert f"kohort: {command} needs the package" in ran.stderr
    assert f"pip install 'kohort[{extra}]'" in ran.stderr


def test_a_package_that_is_missed_later() -> None:
    ran = run("pipeline", "simulate", "--to", "/nonexistent", without=frozenset({"pyspark"}))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[1:] == [
        "kohort: pipeline needs the package pyspark; run: pip install 'kohort[spark]'"
    ], ran.stderr
