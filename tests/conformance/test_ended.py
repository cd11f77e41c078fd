"""`kohort conformance` that ends before its time: by a signal, and because the broker goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread

import pytest
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.conformance import target
from kohort.conformance.target import PREFIX
from kohort.testing import KohortServer

ROWS = "N13,H14"
"""Their files take longer than the tests."""
BOUND_S = 30.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def groups(cluster: Cluster) -> list[str]:
    return [group.group_id for group in cluster.list_groups()]


def left(cluster: Cluster) -> list[str]:
    return [name for name in (*groups(cluster), *cluster.topics()) if name.startswith(PREFIX)]


def is_playing(cluster: Cluster) -> bool:
    found = cluster.describe_groups(groups(cluster))
    return any(group.members for group in found.values())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(number: int, code: int) -> None:
    with KohortServer(compatibility="kafka") as server, Cluster(server.bootstrap_servers) as cluster:
        command = [sys.executable, "-c", "from kohort.cli.main import main; main()", "conformance", "--rows", ROWS]
        process = subprocess.Popen([*command, "-b", server.bootstrap_servers], stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: is_playing(cluster))
            process.send_signal(number)
            _, err = process.communicate(timeout=BOUND_S)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == code, err
        assert "interrupted; removing topics and groups" in err
        assert "Traceback" not in err
        assert left(cluster) == [], err


def test_a_broker_that_goes_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "GONE_S", 0.5)
    with KohortServer(compatibility="kafka") as server:

        def kill() -> None:
            with Cluster(server.bootstrap_servers) as cluster:
                wait_for(lambda: is_playing(cluster))
            server.kill()

        address = server.bootstrap_servers
        killer = Thread(target=kill)
        killer.start()
        began = time.monotonic()
        result = CliRunner().invoke(app, ["conformance", "-b", address, "--rows", ROWS])
        killer.join()
    assert time.monotonic() - began < BOUND_S
    assert result.exit_code == 3, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"kohort: the broker does not answer any more: {address}: ")
    assert "it went while these were played: " in last
    assert f"not removed: what begins with {PREFIX}" in result.stderr
    assert result.stdout == ""
