"""The example's assignor, installed beside kohort: a server finds it by its entry point, and a group uses it.

What `pip install` leaves behind is a package and the description of its distribution; so much is put into a folder of
the path here, and nothing is downloaded.
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
from process import Serve

from kohort.client.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "kohort-assignor-example"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that has the example installed."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE / "src" / "kohort_assignor_example", site / "kohort_assignor_example")
    described = site / f"kohort_assignor_example-{project['version']}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (described / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path}


@pytest.fixture
def bootstrap(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    settings = {"listeners": "127.0.0.1:0", "group.consumer.assignment.interval.ms": "0"}
    with Serve("--data-dir", str(tmp_path / "data"), *_flags(settings), env=environment, cwd=tmp_path) as server:
        yield server.addresses[0]


def _flags(settings: dict[str, str]) -> list[str]:
    return [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]


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
            ran = subprocess.run(
                [*command, "--assignor", name],
                capture_output=True,
                text=True,
                timeout=30,
                env=environment,
                cwd=tmp_path,
                check=True,
            )
            assert f"with {name} (now standby), of 4 partitions: {told}" in ran.stdout
        worker.leave()
        until(lambda: standby.count() == 4, standby)
        standby.leave()
