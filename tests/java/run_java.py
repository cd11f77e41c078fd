"""Java programs: run to their end, or as members of a group."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
LEAN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Programs that run for a moment: no optimizing compiler, no threads of a collector."""
JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
"""Java's classes."""


def java(classpath: str, *arguments: str, feed: str = "", timeout: float = 60) -> str:
    done = subprocess.run(
        ["java", "-Xmx512m", *LEAN, QUIET, "-cp", classpath, *arguments],
        input=feed,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(classpath: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Java program, until it is killed. A failure prints the end of its log."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", QUIET, "-cp", classpath, *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    except BaseException:
        print(log.read_text()[-2000:])
        raise
    finally:
        process.kill()
        process.wait()


class SharedConsumer:
    """The program SharedConsumer, with these arguments."""

    def __init__(self, classpath: str, *arguments: str) -> None:
        self.held: set[int] = set()
        self.values: list[bytes] = []
        self._command = ["java", "-Xmx256m", QUIET, "-cp", classpath, "SharedConsumer", *arguments]

    async def run(self) -> None:
        """Until it is cancelled; then it leaves."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        hearing = asyncio.create_task(self._hear(process))
        try:
            await asyncio.shield(hearing)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await hearing
            await process.wait()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            what, *rest = line.split()
            assert what in (b"owns", b"read"), line
            if what == b"read":
                self.values += rest
            else:
                self.held = set(map(int, rest))
