"""Java programs: run to their end, or as members of a group."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared_readers import Program

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


def shared_consumer(classpath: str, *arguments: str) -> Program:
    """The program SharedConsumer, with these arguments."""
    return Program("java", "-Xmx256m", QUIET, "-cp", classpath, "SharedConsumer", *arguments)
