"""The programs in examples/, each as its processes: killed, stopped and joined by others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_tasks import wait_until

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def servers() -> Iterator[str]:
    with KohortServer(group_min_session_timeout_ms=100, group_initial_rebalance_delay_ms=0) as running:
        yield running.bootstrap_servers


class Fleet:
    """Processes of one example."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> int:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        self.processes[process.pid] = process
        return process.pid

    def stop(self, process_id: int, how: int) -> None:
        self.processes[process_id].send_signal(how)
        self.processes[process_id].wait()


@contextlib.contextmanager
def fleet_of(example: str, *options: str) -> Iterator[Fleet]:
    fleet = Fleet([sys.executable, str(EXAMPLES / example), *options])
    try:
        yield fleet
    finally:
        for process in fleet.processes.values():
            process.kill()
            process.wait()


def rows(path: Path, query: str) -> list[tuple[int, ...]]:
    if not path.exists():
        return []
    with sqlite3.connect(path, timeout=10) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return database.execute(query).fetchall() if tables & {"runs", "visits"} else []


def test_cron_once(servers: str, tmp_path: Path) -> None:
    book = tmp_path / "cron.sqlite"
    # The session is long: even on a busy machine, only a stopped process may lose its term.
    options = ("--servers", servers, "--every", "0.1", "--database", str(book), "--session", "3000")
    with fleet_of("cron_once.py", *options) as fleet:
        for _ in range(3):
            fleet.start()
        for how in (signal.SIGKILL, signal.SIGTERM):
            # The process that ran the last slots is stopped; another one continues.
            wait_until(lambda: len(rows(book, "SELECT slot FROM runs")) >= 3, "three slots")
            leader = rows(book, "SELECT process FROM runs ORDER BY slot DESC LIMIT 1")[0][0]
            fleet.stop(leader, how)
            ran = len(rows(book, "SELECT slot FROM runs"))
            wait_until(lambda ran=ran: len(rows(book, "SELECT slot FROM runs")) >= ran + 3, "three more slots")  # type: ignore[misc]
    runs = rows(book, "SELECT token, process FROM runs ORDER BY slot")
    assert [token for token, _ in runs] == sorted(token for token, _ in runs)
    assert len({process for _, process in runs}) == 3
    assert len(set(runs)) == 3, "a token belongs to one process"


def test_sharded_crawlers(servers: str, tmp_path: Path) -> None:
    book = tmp_path / "crawlers.sqlite"
    options = ("--servers", servers, "--every", "0.1", "--database", str(book), "--session", "1500")
    with fleet_of("sharded_crawlers.py", *options) as fleet:
        latest = (
            "SELECT process, count(*) FROM visits WHERE id IN (SELECT max(id) FROM visits GROUP BY site) GROUP BY 1"
        )

        def shared_by(*processes: int) -> Callable[[], bool]:
            return lambda: {process for process, _ in rows(book, latest)} == set(processes)

        first, second = fleet.start(), fleet.start()
        wait_until(shared_by(first, second), "two share the sites")
        third = fleet.start()
        wait_until(shared_by(first, second, third), "three share the sites")
        fleet.stop(first, signal.SIGKILL)
        wait_until(shared_by(second, third), "the sites of the first go elsewhere")
        with sqlite3.connect(book, timeout=10) as database:
            database.execute("INSERT INTO sites (name, pages) VALUES ('new.example', 10)")
        wait_until(
            lambda: bool(rows(book, "SELECT id FROM visits WHERE site = 'new.example'")), "a new site is visited"
        )
        fleet.stop(second, signal.SIGINT)
        wait_until(shared_by(third), "one has all")
    visits = rows(book, "SELECT site, token, process FROM visits ORDER BY id")
    owners: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for site, token, process in visits:
        assert owners.setdefault((site, token), process) == process, "two crawlers at one token"
        assert token >= newest.get(site, 0)
        newest[site] = token


@pytest.mark.parametrize("example", ["cron_once.py", "sharded_crawlers.py"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_process_leaves_its_group(servers: str, tmp_path: Path, example: str, how: int) -> None:
    """The session is longer than the test: the group is empty only if the process has left it."""
    options = ("--servers", servers, "--database", str(tmp_path / "book"), "--group", "g", "--session", "300000")
    with Cluster(servers) as cluster, fleet_of(example, *options) as fleet:
        process = fleet.start()

        def state() -> str:
            return cluster.describe_groups(["g"])["g"].state

        wait_until(lambda: state() == "Stable", "the group has a member")
        fleet.stop(process, how)
        assert state() in ("Empty", "Dead")
        assert fleet.processes[process].returncode == 0


@pytest.mark.parametrize("example", ["cron_once.py", "sharded_crawlers.py"])
def test_the_journal_gives_the_same_reason_for_every_stop(server: KohortServer, tmp_path: Path, example: str) -> None:
    group = f"stopped-{example}"
    options = ("--servers", server.bootstrap_servers, "--database", str(tmp_path / "book"), "--group", group)
    with Cluster(server.bootstrap_servers) as cluster, fleet_of(example, *options) as fleet:
        process = fleet.start()
        wait_until(lambda: cluster.describe_groups([group])[group].state == "Stable", "the group has a member")
        fleet.stop(process, signal.SIGTERM)
        assert '"it was closed"' in json.dumps(cluster.explain_group(group).stories)


@pytest.mark.parametrize(("options", "rebalances"), [([], range(1)), (["--dynamic"], range(3, 7))])
def test_rolling_deployment(servers: str, options: list[str], rebalances: range) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "rolling_deployment.py"), "--servers", servers, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ,
    )
    assert int(ran.stdout.rsplit(": ", 1)[1]) in rebalances, ran.stdout


def test_a_wrong_address_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "cron_once.py"), "--servers", "127.0.0.1:1"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "127.0.0.1:1" in ran.stderr
