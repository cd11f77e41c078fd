"""Assignors of other packages: found by entry points, the example package among them."""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from distribution import describe

from kohort.config import Config, ConfigError
from kohort.coordinator.assignors.check import checked
from kohort.coordinator.assignors.registry import with_plugins
from kohort.coordinator.assignors.spec import Assignor, GroupSpec, MemberSpec, TopicSpec
from kohort.server import assignor_plugins

EXAMPLE = Path(__file__).parents[2] / "examples" / "kohort-assignor-example"
ORDERS = TopicSpec(b"orders".ljust(16, b"\0"), "orders", 4)


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Assignor:
    """The example's assignor, by what its pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    entries = [
        EntryPoint(name, value, assignor_plugins.GROUP)
        for name, value in project["entry-points"][assignor_plugins.GROUP].items()
    ]
    plugins, failures = assignor_plugins.load(entries)
    assert failures == ()
    assignors, refusals = with_plugins(plugins)
    assert refusals == ()
    return assignors["standby"]


def group(*instances: str) -> GroupSpec:
    members = {f"m-{name}": MemberSpec(f"m-{name}", name, None, (ORDERS.topic_id,)) for name in instances}
    return GroupSpec(members, {ORDERS.topic_id: ORDERS})


def test_the_example_is_installed_and_serves(standby: Assignor) -> None:
    both = group("a", "b-standby")
    assert checked(both, standby.assign(both)) == {"m-a": {ORDERS.topic_id: (0, 1, 2, 3)}, "m-b-standby": {}}
    alone = group("b-standby", "c-standby")
    assert standby.assign(alone) == {"m-b-standby": {ORDERS.topic_id: (0, 2)}, "m-c-standby": {ORDERS.topic_id: (1, 3)}}


@pytest.mark.parametrize("form", ["dist-info", "egg-info", "archive", "none"])
def test_packages_are_found_where_python_finds_them(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = assignor_plugins.GROUP if form != "none" else "others"
    place = tmp_path / "packages"
    if form == "archive":
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("odd-1.dist-info/METADATA", "Name: odd\nVersion: 1\n")
            archive.writestr("odd-1.dist-info/entry_points.txt", f"[{group}]\nodd = odd:Odd\n")
    else:
        described = "egg-info" if form == "egg-info" else "dist-info"
        describe(place, "odd", "1", {group: {"odd": "odd:Odd"}}, described)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), str(place)])
    assert [entry.name for entry in assignor_plugins.installed()] == ([] if form == "none" else ["odd"])


def test_the_examples_readme_runs(standby: Assignor, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    [block] = [block for block in blocks if "GroupSpec" in block]
    exec(block, {})
    assert "'m2': {}" in capsys.readouterr().out


def test_the_assignor_of_the_documentation_is_one() -> None:
    text = (EXAMPLE.parents[1] / "docs" / "how-to" / "assignors.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assigned = checked(group("a", "b"), names["Alphabetical"]().assign(group("a", "b")))
    assert assigned == {"m-a": {ORDERS.topic_id: (0, 2)}, "m-b": {ORDERS.topic_id: (1, 3)}}


def test_unloadable_packages_are_reported_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "assignors_of_a_test.py"
    module.write_text(
        "class Fails:\n    def __init__(self):\n        raise ValueError('no licence')\n\n"
        "class Works:\n    name = 'works'\n\nready = Works()\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def entry(name: str, value: str) -> EntryPoint:
        return EntryPoint(name, value, assignor_plugins.GROUP)

    plugins, failures = assignor_plugins.load(
        [
            entry("works", "assignors_of_a_test:Works"),
            entry("ready", "assignors_of_a_test:ready"),
            entry("fails", "assignors_of_a_test:Fails"),
            entry("absent", "assignors_of_nobody:Absent"),
            entry("twice", "assignors_of_a_test:Works"),
            entry("twice", "assignors_of_a_test:ready"),
        ]
    )
    works = sys.modules["assignors_of_a_test"]
    assert list(plugins) == ["ready", "works"]
    assert plugins["ready"] is works.ready
    assert isinstance(plugins["works"], works.Works)
    assert failures == (
        "assignor absent: assignors_of_nobody:Absent cannot be loaded: "
        "ModuleNotFoundError: No module named 'assignors_of_nobody'",
        "assignor fails: assignors_of_a_test:Fails cannot be loaded: ValueError: no licence",
        "assignor twice: more than one package brings it, assignors_of_a_test:Works among them",
        "assignor twice: more than one package brings it, assignors_of_a_test:ready among them",
    )


def test_installed_packages_are_asked() -> None:
    plugins, failures = assignor_plugins.load()
    assert with_plugins(plugins)[1] == failures == ()


@pytest.mark.parametrize(
    ("setting", "serving"),
    [
        ("uniform,range,rack,lag,*", ["uniform", "range", "rack", "lag", "aged", "works"]),
        ("range,uniform", ["range", "uniform"]),
        ("works, uniform", ["works", "uniform"]),
        ("*,lag,aged", ["works", "lag", "aged"]),
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
            ["uniform", "range"],
        ),
        ("uniform,broken", ["uniform"]),
    ],
)
def test_the_setting_says_which_serve_and_in_which_order(packages: None, setting: str, serving: list[str]) -> None:
    assignors, told = assignor_plugins.serving(Config(group_consumer_assignors=setting))
    assert list(assignors) == serving
    assert all(assignor.name == name for name, assignor in assignors.items())
    broken = "*" in setting or "broken" in setting
    assert len(told) == broken
    assert ("plugins_of_a_test" in sys.modules) == any(name in serving for name in ("aged", "works")) or broken


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("uniform,sticky", "names 'sticky', but there are only uniform, range, rack, lag, aged, broken, works"),
        ("org.example.MyAssignor,uniform", "names 'org.example.MyAssignor'"),
        ("works", "must name one of uniform, range, rack, lag too"),
        ("*", "names no assignor"),
    ],
)
def test_an_unusable_list_of_assignors_ends_the_start(packages: None, setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        assignor_plugins.serving(Config(group_consumer_assignors=setting))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are installed that bring the assignors aged, broken and works."""
    (tmp_path / "plugins_of_a_test.py").write_text(
        "class Made:\n    def assign(self, group):\n        return {}\n\n"
        "class Works(Made):\n    name = 'works'\n\nclass Aged(Made):\n    name = 'aged'\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plugins_of_a_test", raising=False)
    entries = [
        EntryPoint(name, f"plugins_of_a_test:{name.capitalize()}", assignor_plugins.GROUP)
        for name in ("works", "aged", "broken")
    ]
    monkeypatch.setattr(assignor_plugins, "installed", lambda: entries)
