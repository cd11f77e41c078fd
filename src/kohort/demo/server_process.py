"""`kohort serve` as a child that always ends with its parent: it stops on SIGTERM and when its stdin ends.

`python -m kohort.demo.server_process ARGUMENTS OF kohort serve` adds only this to `kohort serve`: when the parent dies,
even by SIGKILL, the pipe closes and the server stops as on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kohort.cli.interrupt import interrupts

START_S = 20.0
STOP_S = 15.0


class ServerFailed(RuntimeError):
    """The server ended or did not become ready; the message has its last lines."""


class ServerProcess:
    """`start`, and `stop` in any case. Its log is `log`, one JSON object a line."""

    def __init__(self, data_dir: Path, log: Path, settings: dict[str, str]) -> None:
        self.log = log
        self.ready: dict[str, Any] = {}
        self._arguments = ["--data-dir", str(data_dir), "--listeners", "127.0.0.1:0", "--set", "log.format=json"]
        for name, value in settings.items():
            self._arguments += ["--set", f"{name}={value}"]

    @property
    def bootstrap_servers(self) -> str:
        return str(self.ready["listeners"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start the server, and return when it is ready. Raises ServerFailed."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kohort.demo.server_process", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # KOHORT_ variables are settings of the user's own servers.
                env={name: value for name, value in os.environ.items() if not name.startswith("KOHORT_")},
                # Ctrl-C must reach only the parent, which stops the server last.
                process_group=0,
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ended = self._process.poll() is not None
            for line in self.log.read_text(encoding="utf-8").splitlines(keepends=True):
                if '"kohort is ready"' in line and line.endswith("\n"):
                    self.ready = json.loads(line)
                    return
            if ended:
                raise ServerFailed(f"the server ended with exit code {self._process.returncode}: {self.last_lines()}")
            interrupts.check()
            time.sleep(0.02)
        raise ServerFailed(f"the server was not ready within {START_S:.0f} s: {self.last_lines()}")

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8").splitlines()[-5:])

    def stop(self) -> None:
        if not hasattr(self, "_process"):
            return
        assert self._process.stdin is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()


def _stop_when_stdin_ends() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    from kohort.cli.main import main as kohort

    threading.Thread(target=_stop_when_stdin_ends, daemon=True).start()
    kohort(["serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
