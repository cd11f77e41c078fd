"""The programs of the pages about work queues, as their processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from page_programs import programs
from queue_world import SHARES, left
from running_tasks import wait_until

from kohort.client import BlockingWorkQueue
from kohort.testing import KohortServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(**SHARES) as found:
        yield found


class Program:
    """A page's program, as a file with the server's address."""

    def __init__(self, page: str, number: int, server: KohortServer, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "program.py"
        self._file.write_text(programs(page)[number].replace("127.0.0.1:9092", server.bootstrap_servers))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self._file), *arguments]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, cwd=self._directory, env=environment, stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def test_the_tutorial(server: KohortServer, tmp_path: Path) -> None:
    program = Program("tutorials/work-queue.md", 0, server, tmp_path)
    with (
        program.start("put", "ada@example.com", "bob@down.example", "nobody") as putting,
        program.start("work") as working,
        program.start("dead") as reading,
    ):
        attempts = lines(working, 5)
        assert lines(reading, 2) == [
            "dead: nobody: not an address",
            "dead: bob@down.example: ConnectionError: no answer",
        ]
        wait_until(lambda: left(server, "mailers", "mails") == 0, "all have outcomes")
        for process in (working, reading):
            process.terminate()
        assert [process.wait() for process in (putting, working, reading)] == [0, 0, 0]
    assert sorted(attempts) == [
        "to ada@example.com, attempt 1",
        *(f"to bob@down.example, attempt {number}" for number in (1, 2, 3)),
        "to nobody, attempt 1",
    ]


def test_an_effect_that_happens_once(server: KohortServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done, and its ack is not: the job comes again, and has no second effect."""
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"__name__": "page"}
    exec(programs("how-to/work-queues.md")[1].replace("127.0.0.1:9092", server.bootstrap_servers), found)
    with BlockingWorkQueue(server.bootstrap_servers, "orders", group="orders") as queue:
        queue.put("a")
        jobs = queue.take()
        first = next(jobs)
        found["work"](first)
        first.release()
        with next(jobs) as again:
            found["work"](again)
        assert again.deliveries == 2
    found["database"].close()
    with closing(sqlite3.connect(tmp_path / "orders.sqlite")) as database:
        assert database.execute("SELECT name FROM orders").fetchall() == [("a",)]
