"""franz-go beyond the cells of docs/clients.md. Runs under `make test-go` (Go 1.24 or newer)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.testing import KohortServer

pytestmark = [pytest.mark.go, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    binary = str(tmp_path_factory.mktemp("go") / "check")
    subprocess.run(["go", "build", "-o", binary, "."], cwd=Path(__file__).parent, check=True, timeout=400)
    return binary


def run(command: list[str], steps: int) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == steps, done.stdout


def test_franz_go(program: str) -> None:
    with KohortServer(group_initial_rebalance_delay_ms=500, group_heartbeat_hold_max_ms=20_000) as server:
        run([program, server.bootstrap_servers], 3)


def test_commits_fenced_by_ownership(program: str) -> None:
    settings = {"group_consumer_ownership_fencing_enable": True, "group_consumer_assignment_interval_ms": 0}
    with KohortServer(**settings) as server:
        run([program, server.bootstrap_servers, "fenced"], 2)
