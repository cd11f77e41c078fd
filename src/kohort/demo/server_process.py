"""`kohort serve` and `kohort console` as children that always end with their parent: on SIGTERM and when stdin ends.

`python -m kohort.demo.server_process COMMAND …` adds only this to `kohort COMMAND …`: when the parent dies, even by
SIGKILL, the pipe closes and the child stops as on SIGTERM.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from kohort.cli.interrupt import interrupts

START_S = 20.0
STOP_S = 15.0


class ServerFailed(RuntimeError):
    """The server or the console ended or did not become ready; the message has its last lines."""


class KohortProcess(ABC):
    """A command of `kohort`: `start`, and `stop` in any case. What it prints is in `log`."""

    name = "kohort"

    def __init__(self, log: Path, arguments: list[str]) -> None:
        self.log = log
        self._arguments = arguments

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, and return when it is ready. Raises ServerFailed."""
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
            lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
            if any(line.endswith("\n") and self._is_ready(line) for line in lines):
                return
            if ended:
                self.check()
            interrupts.check()
            time.sleep(0.02)
        raise ServerFailed(f"the {self.name} was not ready within {START_S:.0f} s: {self.last_lines()}")

    @abstractmethod
    def _is_ready(self, line: str) -> bool:
        """Whether this line says that it is."""

    def check(self) -> None:
        """Raises ServerFailed if it has ended."""
        if self._process.poll() is not None:
            raise ServerFailed(f"the {self.name} ended with exit code {self._process.returncode}: {self.last_lines()}")

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


class ServerProcess(KohortProcess):
    """Its log has one JSON object a line."""

    name = "server"

    def __init__(self, data_dir: Path, log: Path, settings: dict[str, str]) -> None:
        arguments = ["serve", "--data-dir", str(data_dir), "--listeners", "127.0.0.1:0", "--set", "log.format=json"]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        super().__init__(log, arguments)
        self.ready: dict[str, Any] = {}

    @property
    def bootstrap_servers(self) -> str:
        return str(self.ready["listeners"])

    def _is_ready(self, line: str) -> bool:
        if '"kohort is ready"' not in line:
            return False
        self.ready = json.loads(line)
        return True


class ConsoleProcess(KohortProcess):
    name = "console"

    def __init__(self, bootstrap_servers: str, log: Path) -> None:
        super().__init__(log, ["console", "-b", bootstrap_servers, "--listen", "127.0.0.1:0"])
        self.url = ""

    def _is_ready(self, line: str) -> bool:
        found = re.fullmatch(r"kohort console of .*: (http\S+)\n", line)
        if found:
            self.url = found[1]
        return found is not None


def _stop_when_stdin_ends() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    from kohort.cli.main import main as kohort

    threading.Thread(target=_stop_when_stdin_ends, daemon=True).start()
    kohort(sys.argv[1:])


if __name__ == "__main__":
    main()
