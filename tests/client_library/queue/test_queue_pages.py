"""The programs of the pages about work queues, as their processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_programs import programs
from queue_world import SHARES, left
from running_tasks import wait_until

from kohort.client import BlockingWorkQueue
from kohort.testing import KohortServer

pytestmark = pytest.mark.timeout(120)


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
    with program.start("put", "ada@example.com", "bob@down.example", "nobody") as putting:
        assert putting.wait() == 0
    with program.start("work") as working:
        attempts = lines(working, 5)
        with program.start("dead") as reading:
            assert lines(reading, 2) == [
                "dead: nobody: not an address",
                "dead: bob@down.example: ConnectionError: no answer",
            ]
            reading.terminate()
            assert reading.wait() == 0
        wait_until(lambda: left(server, "mailers", "mails") == 0, "all have outcomes")
        working.terminate()
        assert working.wait() == 0
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
        job = next(queue.take())
        found["work"](job)
        job.release()
    runner = threading.Thread(target=found["main"], daemon=True)
    runner.start()
    wait_until(lambda: left(server, "orders", "orders") == 0, "the job is done")
    with sqlite3.connect(tmp_path / "orders.sqlite") as database:
        assert database.execute("SELECT name FROM orders").fetchall() == [("a",)]
    found["database"].close()
