"""The programs in C, compiled where they run: the load (native/load.c) and the floor (native/echo.c).

Without gcc the subjects that need the load are left out.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
COMPILER = "gcc"


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
