"""`kohort serve` as a process that is killed: on the same port and data directory each time."""

from __future__ import annotations

import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

PROGRAM = "from kohort.cli.main import main; main()"
READY_S = 30.0


class CrashServer:
    def __init__(self, data_dir: Path, log: Path, settings: dict[str, str]) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.ready_at = 0.0
        """When it was ready last, on the monotonic clock; 0 while it is not."""
        self.kills = 0
        self._log = log
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self, before: str = "") -> None:
        """`before`: Python code that the process runs first."""
        self._ready = threading.Event()
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", before + PROGRAM, *self._words(), "--data-dir", str(self.data_dir), *settings],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read, args=(self._process, self._ready), daemon=True).start()

    def _words(self) -> list[str]:
        return ["serve", "--listeners", self.address]

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout, self._log.open("a", buffering=1) as log:
            for line in process.stdout:
                log.write(line)
                if "kohort is ready" in line:
                    self.ready_at = time.monotonic()
                    ready.set()
        ready.set()

    @property
    def is_ready(self) -> bool:
        return self.ready_at > 0

    def wait_ready(self) -> None:
        assert self._process is not None
        self._ready.wait(READY_S)
        if not self.is_ready:
            code = self._process.poll()
            raise AssertionError(f"the server did not start (exit code {code}); its log is {self._log}")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended by itself with code {self._process.poll()}; its log is {self._log}")
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._ready.wait(READY_S)  # its output has been read
        self.ready_at = 0.0
        self.kills += 1

    def terminate(self) -> int:
        """SIGTERM. Returns the exit code, once the process is gone."""
        assert self._process is not None
        self._process.terminate()
        code = self._process.wait(READY_S)
        self._ready.wait(READY_S)
        self.ready_at = 0.0
        return code

    def logs(self) -> tuple[int, int]:
        """Of all logs: how many records were ever written, and the bytes that are left of them."""
        with closing(sqlite3.connect(f"file:{self.data_dir / 'kohort.db'}?mode=ro", uri=True)) as db:
            records, size = db.execute("SELECT sum(end_offset), sum(size) FROM logs").fetchone()
        return records, size

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def of_directory(directory: Path, settings: dict[str, str]) -> CrashServer:
    return CrashServer(directory / "data", directory / "server.log", settings)


def free_port() -> int:
    """Below the ports that systems give to outgoing connections. Such a port might be taken while the server is down,
    even by a client of the server that connects to itself."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
