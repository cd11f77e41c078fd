"""A Java program, run to its end."""

from __future__ import annotations

import subprocess

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
LEAN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Programs that run for a moment: no optimizing compiler, no threads of a collector."""


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
