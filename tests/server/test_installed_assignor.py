"""The example's assignor, installed beside kohort: a server finds it by its entry point, and a group uses it.

The test puts the package and its distribution's metadata into a folder of the path, as `pip install` does. It downloads
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from consumer_member import ConsumerMember
from distribution import describe
from process import ANYWHERE, Serve

from kohort.client.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "kohort-assignor-example"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process with the example installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE / "src" / "kohort_assignor_example", site / "kohort_assignor_example")
    describe(site, project["name"], project["version"], project["entry-points"])
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path}


@pytest.fixture
def bootstrap(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    arguments = ("--data-dir", str(tmp_path / "data"), *ANYWHERE, "--set", "group.consumer.assignment.interval.ms=0")
    with Serve(*arguments, env=environment, cwd=tmp_path) as server:
        yield server.addresses[0]


def until(holds: Callable[[], bool], *members: ConsumerMember) -> None:
    """Members heartbeat until it holds."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        for member in members:
            member.heartbeat()


def test_a_group_uses_it(bootstrap: str, environment: dict[str, str], tmp_path: Path) -> None:
    with Cluster(bootstrap) as cluster:
        cluster.create_topic("orders", 4)
        standby = ConsumerMember(
            bootstrap, "billing", "b", "orders", instance_id="b-standby", server_assignor="standby"
        )
        until(lambda: standby.count() == 4, standby)
        worker = ConsumerMember(bootstrap, "billing", "a", "orders", instance_id="a", server_assignor="standby")
        until(lambda: (standby.count(), worker.count()) == (0, 4), standby, worker)
        group = cluster.describe_groups(["billing"])["billing"]
        assert (group.state, group.protocol) == ("Stable", "standby")
        command = [sys.executable, "-m", "kohort", "groups", "assign", "billing", "--dry-run", "-b", bootstrap]
        for name, told in (("standby", "none moved"), ("uniform", "2 moved")):
            asked = [*command, "--assignor", name]
            said = subprocess.check_output(asked, text=True, timeout=30, env=environment, cwd=tmp_path)
            assert f"with {name} (now standby), of 4 partitions: {told}" in said
        worker.leave()
        until(lambda: standby.count() == 4, standby)
        standby.leave()
