"""Plants bugs, each in a fork of this process, and looks whether they are caught.

    python catcher.py tests/broker/test_x.py::test_y …

The arguments are all tests that the bugs name. pytest collects them, so that everything is imported once, and then this
process reads tasks, a line of JSON each:

    {"changes": [["coordinator/classic/checks.py", "old", "new"]], "catchers": ["heartbeat.txt"], "seed": 17,
     "search": 150, "reload": false}

A change replaces a text that stands exactly once in a module of kohort; the modules on disk are not touched. What may
catch it:

    heartbeat.txt                    a scenario: it prints something else, or the shard fails or breaks its invariants
    tests/broker/test_x.py::test_y   a test: an assertion of it fails
    simulator of member, liar        the run of `seed` breaks a promise; where that is null, the run of one of the first
                                     `search` seeds in which these take part

The answer is a line of JSON: for each catcher what it saw, or null; or what else failed, which is a bad plant.

Functions get their new code in place. With `reload`, or where a change is not within a function, the fork imports all
modules of kohort and of the tests again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _pytest._code.code
import hypothesis
import planted_code
import pytest

ROOT = Path(__file__).parents[2]


class FirstExamples:
    """A plugin of pytest: of tests with Hypothesis, an example that fails is enough; none is made smaller."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("first", hypothesis.settings.get_profile("kohort"), phases=phases)
        hypothesis.settings.load_profile("first")


class Forks(FirstExamples):
    """A plugin of pytest: serves tasks instead of running the tests."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._items: dict[str, list[pytest.Item]] = {}
        self._failures: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            self._items.setdefault(item.nodeid.partition("[")[0], []).append(item)
        _import_all()
        functions = planted_code.functions()
        for line in sys.stdin:
            child = os.fork()
            if not child:
                self._serve(json.loads(line), functions)
            _, status = os.waitpid(child, 0)
            if status:
                self._answer({"failed": f"the process of the bug ended with status {status}"})
        return True

    def _serve(self, task: dict[str, Any], functions: planted_code.Functions) -> None:
        """Runs in the fork, and ends it."""
        try:
            self._answer(self._seen(task, functions))
        except BaseException:
            self._answer({"failed": traceback.format_exc()})
        os._exit(0)

    def _answer(self, answer: Mapping[str, str | None]) -> None:
        os.write(self._answers, json.dumps(answer).encode() + b"\n")

    def _seen(self, task: dict[str, Any], functions: planted_code.Functions) -> dict[str, str | None]:
        in_place = not task["reload"] and planted_code.replace(task["changes"], functions)
        if not in_place:
            planted_code.reload(task["changes"])
        by_test = self._seen_by_test if in_place else seen_by_reloaded_test
        return {name: seen_by(name, task) or ("::" in name and by_test(name)) or None for name in task["catchers"]}

    def _seen_by_test(self, name: str) -> str | None:
        self._failures.clear()  # of another catcher
        for item in self._items[name]:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if self._failures:
                return failure_in(self._failures[0])
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.append(report.longreprtext)


def seen_by(catcher: str, task: Mapping[str, Any]) -> str | None:
    """The finding of a scenario or of the simulator."""
    if catcher.endswith(".txt"):
        return seen_by_scenario(catcher)
    if not catcher.startswith("simulator of "):
        return None
    kinds = set(catcher.removeprefix("simulator of ").split(", "))
    fitting = (seed for seed in itertools.count() if kinds <= kinds_of(seed))
    for seed in itertools.islice(fitting, task["search"]) if task["seed"] is None else (task["seed"],):
        if (violation := violation_of(seed)) is not None:
            return f"seed {seed}: {violation}"
    return None


@functools.cache
def kinds_of(seed: int) -> set[str]:
    from kohort.simulator.plan import plan_of

    return {actor.kind for actor in plan_of(seed).cast}


@functools.cache
def violation_of(seed: int) -> object | None:
    """Cached, because several catchers use the same seeds."""
    from kohort.simulator.simulate import run

    return run(seed).violation


def seen_by_scenario(name: str) -> str | None:
    from shard_world import ShardWorld
    from test_scenarios import path_of, play

    from kohort.conformance.files import parse

    _, blocks = parse(path_of(name).read_text(encoding="utf-8"))
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


def seen_by_reloaded_test(name: str) -> str | None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main(["-q", "-x", "--no-header", *QUIETLY, str(ROOT / name)], plugins=[FirstExamples()])
    if code == pytest.ExitCode.OK:
        return None
    if code != pytest.ExitCode.TESTS_FAILED:
        raise SystemExit(said.getvalue())
    return failure_in(said.getvalue())


def failure_in(said: str) -> str:
    """The first line of what an assertion said. Other failures are a bad plant."""
    failed = [line for line in said.splitlines() if line.startswith("E  ")]
    if not any("assert" in line.lower() or "Failed" in line for line in failed):
        raise SystemExit(said)
    return failed[0].removeprefix("E").strip()


def _line(entry: Any) -> int:
    """A signal, as of a timeout, can come at an instruction that has no line; pytest cannot print that."""
    line = entry._rawentry.tb_lineno
    return int(entry.frame.code.firstlineno if line is None else line - 1)


def _import_all() -> None:
    """What scenarios and the simulator need; pytest has imported what the tests need."""
    for name in ("shard_world", "test_scenarios", "kohort.simulator.simulate", "kohort.simulator.plan"):
        importlib.import_module(name)


QUIETLY = ("-p", "no:cacheprovider", "--hypothesis-seed=0", f"--rootdir={ROOT}")


def main() -> None:
    _pytest._code.code.TracebackEntry.lineno = property(_line)  # type: ignore[assignment]
    answers = os.dup(1)
    os.dup2(2, 1)  # what pytest prints goes where errors go
    code = pytest.main(["-q", "-s", *QUIETLY, *(str(ROOT / name) for name in sys.argv[1:])], plugins=[Forks(answers)])
    sys.exit(code)


if __name__ == "__main__":
    main()
