"""The drivers' programs, each built once, by the first cell that needs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from functools import cached_property
from pathlib import Path

import java_libraries

HERE = Path(__file__).parent
GO = HERE.parent / "go"
LEAN = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
BUILD_S = 500


class Programs:
    """Commands to which a driver's options are added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._building = {tool: threading.Lock() for tool in ("java", "go", "node")}

    def of(self, client: str) -> tuple[str, ...]:
        match client:
            case "java":
                with self._building["java"]:
                    return self._java
            case "franz-go" | "sarama" | "kafka-go":
                with self._building["go"]:
                    return (self._go,)
            case "kafkajs" | "platformatic":
                with self._building["node"]:
                    return ("node", self._node)
        return (sys.executable, str(HERE / "python_driver.py"))

    @cached_property
    def _java(self) -> tuple[str, ...]:
        return ("java", *LEAN, "-cp", java_libraries.clients(), "ClientDriver")

    @cached_property
    def _go(self) -> str:
        binary = self._folder / "go-driver"
        _run("go", "build", "-o", str(binary), "./driver", cwd=GO)
        return str(binary)

    @cached_property
    def _node(self) -> str:
        folder = self._folder / "node"
        shutil.copytree(HERE / "node", folder)
        _run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
        return str(folder / "driver.mjs")


def _run(*command: str, cwd: Path) -> None:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
