"""The workers' processes: start, kill, stop. One queue gets the events of all of them."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from kohort.demo.worker import Options

STOP_S = 10.0


class Workers:
    """One process for each of `options`: `start`, and `stop` in any case."""

    def __init__(self, options: list[Options], logs: Path) -> None:
        self.said: queue.Queue[tuple[str, dict[str, Any] | None]] = queue.Queue()
        """Workers with their events; None for a worker's end."""
        self.options = {one.name: one for one in options}
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        for name in self.options:
            self.begin(name)

    def begin(self, name: str) -> None:
        """Start a worker's process; one that ran before has ended."""
        options = self.options[name]
        with self.log(name).open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "kohort.demo.worker", msgspec.json.encode(options).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._processes[name] = process
        reader = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        reader.start()
        self._readers = [known for known in self._readers if known.is_alive()]
        self._readers.append(reader)

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):  # a killed worker may leave half a line
                self.said.put((name, json.loads(line)))
        process.wait()
        process.stdout.close()
        self.said.put((name, None))

    def log(self, name: str) -> Path:
        """The worker's stderr."""
        return self._logs / f"{name}.log"

    def kill(self, name: str) -> None:
        """Send SIGKILL: the worker neither commits nor leaves the group."""
        self._processes[name].kill()

    def end(self, name: str) -> None:
        """Let a worker commit, leave the group and end; return at once."""
        process = self._processes[name]
        assert process.stdin is not None
        process.stdin.close()

    def runs(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def stop(self) -> None:
        """Let each worker commit, leave the group and end; kill those that do not end."""
        for name in self._processes:
            self.end(name)
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join(STOP_S)
        for process in self._processes.values():
            assert process.stdout is not None
            process.stdout.close()
