"""A bug to plant, and what its catchers see: each bug runs in a process of its own (catcher.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Bug:
    what: str
    changes: tuple[tuple[str, str, str], ...]
    """Module, what stands there, what stands there instead."""
    caught_by: tuple[str, ...]


def run(
    changes: tuple[tuple[str, str, str], ...], catchers: tuple[str, ...], timeout_s: int = 240, seeds: int = 150
) -> dict[str, str | None]:
    """What each catcher saw; the simulator's within so many seeds."""
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("catcher.py"))],
        input=json.dumps({"changes": changes, "catchers": catchers, "seeds": seeds}),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "KOHORT_PURE": "1"},
    )
    assert process.returncode == 0, process.stderr
    return dict(json.loads(line) for line in process.stdout.splitlines())
