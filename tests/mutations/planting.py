"""A bug to plant, and the process that plants it and runs its catchers (catcher.py)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SEEDS = Path(__file__).with_name("seeds.txt")
HEAD = "# A seed that catches each bug; `pytest -m long tests/mutations --rewrite` writes this."
SEARCHED = 150
"""So many seeds the simulator tries where none is given."""

Change = tuple[str, str, str]
"""A module, a text that stands in it once, and what stands there instead."""


@dataclass(frozen=True)
class Bug:
    caught_by: tuple[str, ...]
    changes: tuple[Change, ...]


def bug(caught_by: tuple[str, ...], *changes: Change) -> Bug:
    return Bug(caught_by, changes)


class Catchers:
    """The process of catcher.py. It starts with the first bug, and again after one that it did not survive."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._tests = sorted(set(tests))
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process: subprocess.Popen[str] | None = None

    def see(
        self, changes: Iterable[Change], catchers: Iterable[str], seed: int | None = None, search: int = SEARCHED
    ) -> dict[str, str | None]:
        """What each catcher sees, or None. The simulator runs `seed`; without it, it tries `search` seeds."""
        task = {"changes": list(changes), "seed": seed, "search": search}
        seen = self._ask({**task, "catchers": list(catchers), "reload": False})
        if task["changes"] and (blind := [catcher for catcher, what in seen.items() if what is None]):
            seen |= self._ask({**task, "catchers": blind, "reload": True})
        return seen

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _ask(self, task: Mapping[str, Any]) -> dict[str, str | None]:
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BaseException:  # the test's timeout among them
            self.close()
            raise
        if not answer:
            self.close()
            self._errors.seek(0)
            raise AssertionError(self._errors.read())
        seen = json.loads(answer)
        assert "failed" not in seen, seen["failed"]
        return dict(seen)

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("catcher.py")), *self._tests],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "KOHORT_PURE": "1"},
        )


def is_simulator(catcher: str) -> bool:
    return catcher.startswith("simulator of ")


def seed_in(seen: str) -> int:
    """The seed with which the simulator found a bug."""
    return int(seen.removeprefix("seed ").partition(":")[0])


def recorded_seeds() -> dict[str, int]:
    """For each bug that the simulator catches, the seed that catches it."""
    lines = SEEDS.read_text(encoding="utf-8").splitlines() if SEEDS.exists() else []
    rows = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {what: int(seed) for seed, what in rows}


def record(seeds: Mapping[str, int]) -> None:
    rows = [f"{seed:4} {what}" for what, seed in seeds.items()]
    SEEDS.write_text("\n".join((HEAD, *rows)) + "\n", encoding="utf-8")
