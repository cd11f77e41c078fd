"""Modules that a server does not load before it is ready: a start takes tens of milliseconds, and so does each of
these.

Code that needs one of them later imports it there, and the docstring of the function or module says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.compiled import HOT

SRC = Path(__file__).parents[2] / "src"

NOT_AT_THE_START = {
    "typer", "click", "rich", "pydantic", "structlog",  # the other commands' (kohort.cli.plain)
    "kohort.cli.commands", "kohort.client", "kohort.spark", "kohort.simulator", "pyspark", "pyarrow", "numpy",
    "importlib.metadata", "email", "zipfile",  # for plug-ins, where there are some (kohort.server.assignor_plugins)
    "kohort.server.http", "kohort.broker.metrics",  # for http.listener (kohort.server.server)
    "tomllib",  # for a file of settings in TOML
    "re2",  # for groups that subscribe with patterns (kohort.coordinator.patterns.regex)
    "kohort.coordinator.transactions.shard",  # for the first transaction (kohort.broker.transactions.shards)
    "difflib",  # for what nobody knows (kohort.config, kohort.coordinator.settings.config_keys)
}  # fmt: skip

DATACLASSES = {
    *HOT,  # compiled, their fields are reached without Python
    "kohort.config.listening", "kohort.config.settings", "kohort.config.sharing",  # fields that say what they are
    "kohort.coordinator.assignors.spec",  # what plug-ins see
    "kohort.broker.logs.validation",  # an exception
    "kohort.storage.sqlite_format",
}  # fmt: skip
"""Where they may be. Each costs a start half a millisecond; a msgspec struct costs a tenth of it."""

PROGRAM = """
import gc, os, signal, sys
from kohort.cli.main import main
from kohort.server import log

def info(name, **values):
    if name == "kohort is ready":
        print(*sys.modules)
        os.kill(os.getpid(), signal.SIGTERM)
    elif name == "stopping":
        assert gc.isenabled() and gc.get_freeze_count()

log.info = info
main(["serve", "--listeners", "127.0.0.1:0", "--data-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a server that is ready."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("data"))]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def test_modules_that_a_start_does_not_load(loaded: set[str]) -> None:
    assert "kohort.storage.sqlite" in loaded
    assert not loaded & NOT_AT_THE_START


def test_values_are_structs(loaded: set[str]) -> None:
    ours = {name: (SRC / name.replace(".", "/")).with_suffix(".py") for name in loaded if name.startswith("kohort.")}
    found = {
        name for name, file in ours.items() if file.exists() and "\n@dataclass(" in file.read_text(encoding="utf-8")
    }
    assert found <= DATACLASSES


def test_few_modules_are_loaded_before_a_command() -> None:
    program = "import sys; import kohort.cli.main; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SRC), "KOHORT_PURE": "1"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    ours = {name for name in ran.stdout.split() if name.startswith("kohort")}
    assert ours == {"kohort", "kohort.compiled", "kohort.cli", "kohort.cli.main", "kohort.cli.plain"}
