"""The workers' processes: started, listened to, killed, stopped. What they say goes to one queue for all."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from kohort.demo.worker import Options

STOP_S = 10.0


class Said(NamedTuple):
    """An event of a worker; None when it has ended."""

    worker: str
    event: dict[str, Any] | None


class Workers:
    """Runs while the block does: one process for each of the options."""

    def __init__(self, options: list[Options], logs: Path) -> None:
        self.said: queue.Queue[Said] = queue.Queue()
        self._options = options
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        try:
            for options in self._options:
                self._start(options)
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, options: Options) -> None:
        with self.log(options.name).open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "kohort.demo.worker", msgspec.json.encode(options).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._processes[options.name] = process
        reader = threading.Thread(target=self._listen, args=(options.name, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):  # a killed worker may leave half a line
                self.said.put(Said(name, json.loads(line)))
        process.wait()
        self.said.put(Said(name, None))

    def log(self, name: str) -> Path:
        """What the worker's client wrote on stderr."""
        return self._logs / f"{name}.log"

    def kill(self, name: str) -> None:
        """SIGKILL: no commit, no farewell to the group."""
        self._processes[name].kill()

    def stop(self) -> None:
        """Each commits, leaves the group and ends; one that does not is killed."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
