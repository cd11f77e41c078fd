"""`python -m bench`: its options, and what a signal does to the processes of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from bench.__main__ import ON_REQUEST, SUBJECTS, main
from bench._machine import descendants


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["heartbeat"], f"no subject heartbeat; there are: {', '.join(SUBJECTS | ON_REQUEST)}"),
        (["--docs", "--quick"], "full runs only"),
    ],
)
def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert complaint in capsys.readouterr().err


def test_sigterm_stops_what_the_run_has_started() -> None:
    command = [sys.executable, "-m", "bench", "startup", "--quick", "--only", "pure", "--rounds", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        ends = time.monotonic() + 60
        while len(started := descendants(run.pid)[1:]) < 1:
            assert run.poll() is None
            assert time.monotonic() < ends, "the run started no server"
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 128 + signal.SIGTERM
    while [pid for pid in started if os.path.exists(f"/proc/{pid}")]:  # init reaps what the run has killed
        assert time.monotonic() < ends, "a server goes on"
        time.sleep(0.01)
