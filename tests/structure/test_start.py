"""What a server does not load on its way to being ready: a start is measured in tens of milliseconds, and so are these.

Whoever needs one of them later imports it where it is needed, and the function's docstring or the module's says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

NOT_AT_THE_START = {
    "typer", "click", "rich", "pydantic", "structlog",  # the other commands' (kohort.cli.start)
    "kohort.cli.commands", "kohort.client", "kohort.spark", "kohort.simulator", "pyspark", "pyarrow", "numpy",
}  # fmt: skip

PROGRAM = """
import os, signal, sys
from kohort.cli.main import main
from kohort.server import log

def info(name, **values):
    if name == "kohort is ready":
        print(*sys.modules)
        os.kill(os.getpid(), signal.SIGTERM)

log.info = info
main(["serve", "--listeners", "127.0.0.1:0", "--data-dir", sys.argv[1]])
"""


def test_what_a_start_does_not_load(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert "kohort.storage.sqlite" in loaded
    assert not loaded & NOT_AT_THE_START
