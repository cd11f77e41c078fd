"""Planted bugs: the simulator sees them, makes the run smaller, and writes it down.

The bugs are some of those in tests/mutations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import test_mutations

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from planted_code import Planter
sys.meta_path.insert(0, Planter(json.load(sys.stdin)))
from kohort.simulator.simulate import run
from kohort.simulator.plan import plan_of
from kohort.simulator.shrink import shrink
from kohort.simulator.simulate import run_plan
for seed in range(int(sys.argv[2]), 1_000):
    if not {*sys.argv[3:]} <= {actor.kind for actor in plan_of(seed).cast}:
        continue
    found = run(seed)
    if found.violation is not None:
        smaller = shrink(found.plan, found.violation.check)
        again = run_plan(smaller, telling=True)
        print(json.dumps({
            "seed": seed,
            "check": found.violation.check,
            "again": again.violation.check,
            "actors": [len(found.plan.cast), len(smaller.cast)],
            "lines": len(again.story),
            "scenario": again.scenario,
        }))
        break
"""

SEEN_AS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "a generation is used again after the deletion of its group": (
        ("generations only rise", "a generation begins when a join completes"),
        ("member", "admin"),
        0,
    ),
    "a commit of an older generation is accepted": (
        ("old generations are refused", "only members commit"),
        ("member", "liar"),
        0,
    ),
    "a duplicated heartbeat is fenced": (("a client that behaves is understood",), ("consumer",), 1),
    "the former process of a static member is not fenced": (
        ("a fenced member gets the fencing error",),
        ("member",),
        29,
    ),
    "a turn's records are written with those of the next turn, after its answers have left": (
        ("no reply before durability",),
        (),
        0,
    ),
}
"""The bug, by its name in tests/mutations, the promises that it may break, the actors that it needs, and the seed with
which the search begins."""
LONG = (
    "a generation is used again after the deletion of its group",
    "a commit of an older generation is accepted",
)
"""Those whose seeds are searched for longest."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.long if what in LONG else ()) for what in SEEN_AS]
)
def test_a_planted_bug_is_seen_and_the_run_made_smaller(what: str) -> None:
    checks, kinds, first = SEEN_AS[what]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT / "tests" / "mutations"), str(first), *kinds],
        input=json.dumps(test_mutations.ALL[what].changes),
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["check"] == found["again"]
    assert found["check"] in checks
    assert found["actors"][1] <= found["actors"][0]
    assert found["scenario"][0].startswith("# Of the simulator's seed")
    assert found["scenario"][-1] == "----"
