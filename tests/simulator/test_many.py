"""Many seeds over several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SIMULATE = [sys.executable, "-c", "from kohort.cli.main import main; main()", "simulate", "--jobs", "2"]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_workers_end_with_their_parent(number: signal.Signals) -> None:
    with subprocess.Popen([*SIMULATE, "--seed", "1", "--minutes", "1"], stdout=subprocess.DEVNULL) as simulation:
        try:
            workers = wait_for(lambda: children(simulation.pid), 2)
            simulation.send_signal(number)
            simulation.wait(20)
            deadline = time.monotonic() + 20
            while any(map(is_alive, workers)):
                assert time.monotonic() < deadline, workers
                time.sleep(0.02)
        finally:
            simulation.kill()


def wait_for(found, count: int) -> list[int]:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 30
    while len(found()) < count:
        assert time.monotonic() < deadline, found()
        time.sleep(0.02)
    return list(found())


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
