"""The parts in C, compiled where they run: the load (native/load.c) and the floor (native/echo.c).

Each is a process of its own: no figure contains the interpreter or its lock. Without gcc `available()` is false,
and the subjects that need the load are left out.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench._process import Address

SOURCES = Path(__file__).parent / "native"
COMPILER = "gcc"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load. Answers in the first tenth of the time are not `counted`; the percentiles are those of
    the counted answers."""

    answered: int
    counted: int
    seconds: float
    counted_seconds: float
    own_cpu: float
    p50_us: float
    p99_us: float
    max_us: float
    server_cpu: float
    """The server's CPU time during the load, by the kernel's count."""

    @property
    def cpu_us(self) -> float:
        """The server's CPU time for each request."""
        return self.server_cpu / max(1, self.answered) * 1e6

    @property
    def rate(self) -> float:
        return self.counted / self.counted_seconds


def available() -> bool:
    return shutil.which(COMPILER) is not None


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kohort-bench-")


@cache
def program(name: str) -> Path:
    """The program, compiled once a run."""
    built = Path(_folder().name) / name
    command = [COMPILER, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(built), str(SOURCES / f"{name}.c")]
    subprocess.run(command, check=True, timeout=60)
    return built


def write_requests(path: Path, requests: Sequence[Sequence[bytes]]) -> None:
    """Write each connection's requests in the format of load.c."""
    with path.open("wb") as file:
        file.write(struct.pack(">I", len(requests)))
        for frames in requests:
            file.write(struct.pack(">I", len(frames)) + b"".join(frames))


def load(
    address: Address,
    requests: Sequence[Sequence[bytes]],
    *,
    depth: int,
    seconds: float,
    cpu_seconds: Callable[[], float],
    rate: float = 0.0,
    error_at: int = -1,
) -> Outcome:
    """Send each connection its `requests`, whole frames, in turn; native/load.c has the details.

    `cpu_seconds` returns the server's CPU time; it is called when all connections are open, and at the end.
    """
    with tempfile.NamedTemporaryFile() as file:
        write_requests(Path(file.name), requests)
        words = [*map(str, address), file.name, *map(str, (depth, seconds, rate, error_at))]
        command = [str(program("load")), *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.readline()
                before = cpu_seconds()
                process.stdin.write("\n")
                said = process.stdout.readline()
                used = cpu_seconds() - before
                assert said, "the load ended with an error"
                process.stdin.write("\n")
            except BaseException:
                process.kill()
                raise
    return Outcome(**json.loads(said), server_cpu=used)
