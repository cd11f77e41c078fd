"""`kohort demo` as a user runs it, with fewer flights; and the parts of it that need no server."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from rich.console import Console

from kohort.cli.interrupt import Interrupts
from kohort.demo import story
from kohort.demo.flights import FLIGHTS, read_flights
from kohort.demo.screen import Screen

pytestmark = pytest.mark.timeout(600)  # two JVMs and five processes of Python start

COMMAND = [sys.executable, "-c", "from kohort.cli.main import main; main()", "demo", "--records", "20000"]


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} after {seconds} s"
        time.sleep(0.05)


class Demo:
    """A run of the demo in a session of its own, by which its processes are found; their files go to `directory`."""

    def __init__(self, directory: Path, *more: str, **environment: str) -> None:
        self.directory = directory
        self.text = ""
        self._process = subprocess.Popen(
            [*COMMAND, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(directory), **environment},
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.text += line

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text or self._process.poll() is not None, 300, text)
        assert text in self.text, self.text

    def interrupt(self) -> None:
        """Send SIGINT to all processes in the foreground, like Ctrl-C in a terminal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> int:
        code = self._process.wait(400)
        self._reader.join(10)
        return code

    def processes(self) -> dict[int, str]:
        """The processes of its session that still run: ids and command lines."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        return found

    def clean_up(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start_demo(tmp_path: Path):
    demos: list[Demo] = []

    def start(*more: str, **environment: str) -> Demo:
        demos.append(Demo(tmp_path, *more, **environment))
        return demos[-1]

    yield start
    for demo in demos:
        demo.clean_up()


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_runs_to_its_end_and_leaves_nothing(start_demo, tmp_path: Path) -> None:
    demo = start_demo()
    code = demo.ended()
    assert code == 0, demo.text
    assert demo.processes() == {}
    assert list(tmp_path.glob("kohort-demo-*")) == []
    for line in (
        "✓ Parquet rows = records produced: 20,000 = 20,000",
        "✓ no record twice: 20,000 different offsets",
        "✓ each partition complete up to the end of its log",
        "✓ checksum of the values in Parquet = that of the flights",
        "✓ the ingest's own count: 20,000 rows",
        "✓ lag of flights-workers: 0",
        "✓ lag of flights-lake: 0",
        "✓ records that no worker has read: 0",
        "✓ worker-1 went on from the committed offsets",
        "Lost: 0.",
        "worker-2 gets SIGKILL",
        "worker-1 holds all 6 partitions",
        "flights-workers: Empty, 0 members, total lag 0",
        "flights-lake: Empty, 0 members, total lag 0",
    ):
        assert line in demo.text, demo.text
    assert "✗" not in demo.text
    assert "\x1b[" not in demo.text, "no colours and no bars in a pipe"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "moment", ["1. A server", pytest.param("3. Read at the same time", marks=pytest.mark.long), "Spark's session is up"]
)
def test_an_interrupted_demo_leaves_nothing(start_demo, tmp_path: Path, moment: str) -> None:
    demo = start_demo()
    demo.wait_for(moment)
    demo.interrupt()
    assert demo.ended() == 130, demo.text
    # Spark's Python daemon reads the end of its input when it has started, and ends.
    wait_until(lambda: demo.processes() == {}, 30, "no process of the demo")
    assert list(tmp_path.glob("kohort-demo-*")) == []
    assert demo.text.endswith("kohort: interrupted; everything that was started is stopped\n")
    assert "Traceback" not in demo.text


@pytest.mark.slow
@pytest.mark.spark
def test_its_processes_end_with_it_even_if_it_is_killed(start_demo) -> None:
    demo = start_demo()
    demo.wait_for("Spark's session is up")
    assert len(demo.processes()) >= 4  # itself, the server, a worker or two, Java
    demo.kill()
    wait_until(lambda: not demo.processes(), 30, "all its processes have ended")


@pytest.mark.slow
def test_the_console_shows_living_groups_until_it_is_interrupted(start_demo, tmp_path: Path) -> None:
    demo = start_demo("--console")
    demo.wait_for("Ctrl-C stops and removes everything")
    found = re.search(r"The console: (http://127\.0\.0\.1:\d+/)", demo.text)
    assert found, demo.text

    def page(path: str = "") -> str:
        with urllib.request.urlopen(found[1] + path, timeout=60) as answer:
            return answer.read().decode()

    wait_until(lambda: all(group in page() for group in ("billing", "search", "reports")), 120, "three groups")
    wait_until(lambda: page("group?id=billing").count("billing-") >= 3, 120, "three members")
    demo.interrupt()
    assert demo.ended() == 0, demo.text
    wait_until(lambda: demo.processes() == {}, 30, "no process of the demo")
    assert list(tmp_path.glob("kohort-demo-*")) == []
    assert "Traceback" not in demo.text


@pytest.mark.parametrize(("pressed", "raised"), [(True, KeyboardInterrupt), (False, story.ServerFailed)])
def test_a_child_that_ctrl_c_ends_is_an_interruption(monkeypatch, pressed: bool, raised: type[BaseException]) -> None:
    """Between its fork and its own process group, a child has the signal, and may end before this process reads it."""
    of_this_run = Interrupts()
    monkeypatch.setattr(story, "interrupts", of_this_run)

    def tell(_: story.Story, keep: bool) -> bool:
        if pressed:
            threading.Timer(0.05, of_this_run._arrived, [signal.SIGINT]).start()
        raise story.ServerFailed("the server ended with exit code -2")

    monkeypatch.setattr(story.Story, "tell", tell)
    with pytest.raises(raised):
        story.run()


def test_flights_are_whole_json_objects() -> None:
    flights = list(read_flights(1_000))
    assert len(flights) == 1_000
    first = json.loads(flights[0].value)
    assert first == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2, "arr_time": 830,
        "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR",
        "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5, "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip
    assert flights[0].key == "N14228"


def test_all_flights_of_the_year_are_there() -> None:
    keys = [flight.key for flight in read_flights()]
    assert len(keys) == FLIGHTS
    assert all(keys), "a flight without a known plane has its carrier as the key"
    assert len(set(keys)) > 4_000


def test_check_marks_are_plain_where_the_encoding_lacks_them() -> None:
    for encoding, mark in (("ascii", "ok"), ("utf-8", "✓")):
        stream = io.BytesIO()
        file = io.TextIOWrapper(stream, encoding=encoding)
        Screen(Console(file=file, highlight=False)).check(True, "it holds")
        file.flush()
        assert stream.getvalue().decode(encoding) == f"   {mark} it holds\n"


def test_lines_are_not_wrapped_and_brackets_are_text() -> None:
    stream = io.StringIO()
    screen = Screen(Console(file=stream, highlight=False, width=40))
    screen.say("[0] " + "x" * 60)
    assert stream.getvalue() == "   [0] " + "x" * 60 + "\n"
