"""franz-go beyond the cells of docs/clients.md. Runs under `make test-go` (Go 1.24 or newer)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kohort.testing import KohortServer

pytestmark = [pytest.mark.go, pytest.mark.timeout(600)]


def test_franz_go(tmp_path: Path) -> None:
    binary = tmp_path / "check"
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=Path(__file__).parent, check=True, timeout=400)
    with KohortServer(group_initial_rebalance_delay_ms=500, group_heartbeat_hold_max_ms=20_000) as server:
        done = subprocess.run(
            [str(binary), server.bootstrap_servers], capture_output=True, text=True, timeout=180, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 3, done.stdout


def test_commits_fenced_by_ownership(tmp_path: Path) -> None:
    binary = tmp_path / "fenced"
    subprocess.run(["go", "build", "-o", str(binary), "./fenced"], cwd=Path(__file__).parent, check=True, timeout=400)
    settings = {"group_consumer_ownership_fencing_enable": True, "group_consumer_assignment_interval_ms": 0}
    with KohortServer(**settings) as server:
        done = subprocess.run([str(binary), server.bootstrap_servers], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 2, done.stdout
