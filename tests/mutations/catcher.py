"""Plants a bug and looks whether it is caught. Runs in a process of its own, because a planted module stays planted.

    echo '{"changes": [["coordinator/classic/checks.py", "old", "new"]], "catchers": ["heartbeat.txt"], "seeds": 150}' |
        python catcher.py

A change replaces a text that stands exactly once in a module of kohort; the modules on disk are not touched. What may
catch it:

    heartbeat.txt                    a scenario: it prints something else, or the shard fails or breaks its invariants
    tests/broker/test_x.py::test_y   a test: an assertion of it fails
    simulator of member, liar        one of the first `seeds` in which these take part breaks a promise

For each catcher a line of JSON is printed: its name, and what it saw, or null. Other failures are no catch but a bad
plant, and end the process with a traceback.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]
Change = tuple[str, str, str]


class Planted(importlib.machinery.SourceFileLoader):
    """Loads a module with texts replaced."""

    def __init__(self, fullname: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(fullname, path)
        self.changes = changes

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname) or ""
        for path, old, new in self.changes:
            if source.count(old) != 1:
                raise SystemExit(f"stands {source.count(old)} times in {path}, and not once: {old!r}")
            source = source.replace(old, new)
        return compile(source, self.path, "exec", dont_inherit=True)


class Planter:
    """Finds the modules that are changed before anybody else does."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes: dict[str, list[Change]] = {}
        for change in changes:
            name = "kohort." + change[0].removesuffix(".py").replace("/", ".")
            self.changes.setdefault(name, []).append(change)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None, name
        assert spec.origin is not None, name
        loader = Planted(name, spec.origin, self.changes[name])
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


def seen_by(catcher: str, seeds: int) -> str | None:
    if catcher.startswith("simulator"):
        return seen_by_simulator(catcher.removeprefix("simulator of ").split(", "), seeds)
    return seen_by_test(catcher) if "::" in catcher else seen_by_scenario(catcher)


def seen_by_simulator(kinds: list[str], seeds: int) -> str | None:
    fitting = (seed for seed in itertools.count() if set(kinds) <= kinds_of(seed))
    for seed in itertools.islice(fitting, seeds):
        violation = violation_of(seed)
        if violation is not None:
            return f"seed {seed}: {violation}"
    return None


@functools.cache
def kinds_of(seed: int) -> set[str]:
    from kohort.simulator.plan import plan_of

    return {actor.kind for actor in plan_of(seed).cast}


@functools.cache
def violation_of(seed: int) -> object | None:
    """Kept, because the seeds of several catchers are the same ones."""
    from kohort.simulator import run

    return run(seed).violation


def seen_by_scenario(name: str) -> str | None:
    from shard_world import ShardWorld
    from test_scenarios import parse, play

    _, blocks = parse((ROOT / "tests" / "coordinator" / "scenarios" / name).read_text(encoding="utf-8"))
    world = ShardWorld()
    for commands, expected in blocks:
        try:
            printed = play(world, commands)
        except (NameError, TypeError, AttributeError):
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        if printed != expected:
            wrong = [line for line in printed if line not in expected]
            lacking = [line for line in expected if line not in printed]
            return f"printed {wrong[:1]} and not {lacking[:1]}"
    return None


def seen_by_test(name: str) -> str | None:
    import pytest

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["-q", "-x", "--no-header", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(ROOT / name)])
    if code == pytest.ExitCode.OK:
        return None
    failed = [line for line in said.getvalue().splitlines() if line.startswith("E  ")]
    if code != pytest.ExitCode.TESTS_FAILED or not any("assert" in line or "Failed" in line for line in failed):
        raise SystemExit(said.getvalue())
    return failed[0].removeprefix("E").strip()


def main() -> None:
    task = json.load(sys.stdin)
    planter = Planter(task["changes"])
    sys.meta_path.insert(0, planter)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "coordinator")]
    for name in planter.changes:
        importlib.import_module(name)  # before pytest, which would load it in a way of its own
    for catcher in task["catchers"]:
        print(json.dumps([catcher, seen_by(catcher, task["seeds"])]), flush=True)


if __name__ == "__main__":
    main()
