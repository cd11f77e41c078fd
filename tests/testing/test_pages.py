"""The programs of testing.md, strict-mode.md and the tutorials run unchanged except for the server's address."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_programs import programs

from kohort.testing import KohortServer

QUICK = ("-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:xdist.looponfail", "-p", "no:anyio")
"""Without plugins that take as long as pytest itself."""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *QUICK]


def run(directory: Path, command: list[str]) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_about_the_strict_mode(tmp_path: Path) -> None:
    [program] = programs("how-to/strict-mode.md")
    (tmp_path / "test_page.py").write_text(program, encoding="utf-8")
    assert "1 passed" in run(tmp_path, PYTEST)


@pytest.mark.client
def test_the_page_about_the_fixture(tmp_path: Path) -> None:
    found = programs("how-to/testing.md")
    for number, program in enumerate(found):
        (tmp_path / f"test_page_{number}.py").write_text(program, encoding="utf-8")
    assert len(found) == 7
    assert "8 passed" in run(tmp_path, PYTEST)


@pytest.mark.client
def test_the_tutorial_about_tests(tmp_path: Path) -> None:
    for name, program in zip(("totals.py", "test_totals.py"), programs("tutorials/tests.md"), strict=True):
        (tmp_path / name).write_text(program, encoding="utf-8")
    assert "3 passed" in run(tmp_path, PYTEST)


@pytest.mark.client
def test_the_first_server(kohort_server: KohortServer, tmp_path: Path) -> None:
    [program] = programs("tutorials/first-server.md")
    text = program.replace("127.0.0.1:9092", kohort_server.bootstrap_servers)
    assert run(tmp_path, [sys.executable, "-c", text]).splitlines() == [f"0 {n} order {n}" for n in range(10)]


@pytest.mark.client
def test_the_leader_election(kohort_server: KohortServer, tmp_path: Path) -> None:
    [program] = programs("tutorials/leader-election.md")
    text = program.replace("127.0.0.1:9092", kohort_server.bootstrap_servers)
    with subprocess.Popen(
        [sys.executable, "-c", text, "first"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert re.fullmatch(r"first leads, token \d+\n", line)
