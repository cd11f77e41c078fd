"""The base install: the packages of the extras are missing, and only commands that need them say so, in one line."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kohort.cli.commands import COMMANDS, EXTRA_PACKAGES

PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: the import of it fails as if it were not installed
from kohort.cli.main import main
for command in sys.argv[2:]:
    try:
        main(command.split())
    except SystemExit as ended:
        if ended.code:
            raise
"""


def run(*commands: str, without: frozenset[str] = EXTRA_PACKAGES) -> subprocess.CompletedProcess[str]:
    """All in one process, up to the first that fails."""
    program = [sys.executable, "-c", PROGRAM, ",".join(without), *commands]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


def test_commands_that_need_no_extra() -> None:
    commands = sorted(COMMANDS.keys() - {"demo"})
    ran = run(*(f"{command} --help" for command in commands))
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert [line.split()[2] for line in ran.stdout.splitlines() if line.startswith("Usage: ")] == commands


@pytest.mark.parametrize(
    ("command", "extra", "without"),
    [
        ("pipeline history", "history", frozenset({"pyarrow"})),
        ("demo", "demo", EXTRA_PACKAGES),
    ],
)
def test_commands_that_need_one(command: str, extra: str, without: frozenset[str]) -> None:
    ran = run(f"{command} --help", without=without)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert f"kohort: {command} needs the package" in ran.stderr
    assert f"pip install 'kohort[{extra}]'" in ran.stderr


def test_a_history_does_not_wait_for_imports_of_the_simulator() -> None:
    assert run("pipeline history --help", without=frozenset({"kohort.simulator"})).returncode == 0


def test_a_package_that_is_missed_later() -> None:
    ran = run("pipeline simulate --to /nonexistent", without=frozenset({"pyspark"}))
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[1:] == [
        "kohort: pipeline simulate needs the package pyspark; run: pip install 'kohort[spark]'"
    ], ran.stderr


def test_the_console_needs_its_own() -> None:
    ran = run("console --listen 127.0.0.1:0 -b 127.0.0.1:1")
    assert ran.returncode == 1
    assert re.fullmatch(r"kohort: console needs the package \w+; run: pip install 'kohort\[console\]'\n", ran.stderr), (
        ran.stderr
    )


def test_the_demo_needs_spark_but_for_the_console() -> None:
    ran = run("demo", without=frozenset({"pyspark"}))
    assert ran.returncode == 1
    assert "kohort: the demo needs the package pyspark; run: pip install 'kohort[demo,spark]'" in ran.stderr
    assert run("demo --help", without=frozenset({"pyspark", "pandas", "numba", "matplotlib"})).returncode == 0


def test_the_demo_may_need_the_console_too() -> None:
    ran = run("demo --console", without=frozenset({"uvicorn"}))
    assert ran.returncode == 1
    assert ran.stderr == "kohort: demo --console needs the package uvicorn; run: pip install 'kohort[demo,console]'\n"
