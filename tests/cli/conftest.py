"""A server of two brokers for the commands' tests, and a way to run a command as a user does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from run_command import Kohort, Ran
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    from kohort.testing import KohortServer

    with KohortServer(
        brokers=2, group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0
    ) as running:
        yield running.bootstrap_servers


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as client:
        yield client


@pytest.fixture
def written(cluster: Cluster, unique: str) -> str:
    """A topic with five records in each of two partitions; they say that they are old."""
    cluster.create_topic(unique, 2)
    for index in (0, 1):
        cluster.produce(unique, index, [NewRecord(None, b"v", 1)] * 5)
    return unique


@pytest.fixture
def kohort(bootstrap: str) -> Kohort:
    """Run a command in this process against the server."""

    def run(*arguments: str, stdin: str | bytes | None = None, code: int | None = 0) -> Ran:
        result = CliRunner().invoke(app, arguments, input=stdin, env={"KOHORT_BOOTSTRAP_SERVER": bootstrap})
        ran = Ran(result.exit_code, result.stdout, result.stderr)
        assert code is None or ran.code == code, ran
        return ran

    return run


@pytest.fixture
def start(bootstrap: str) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a command as a process of its own."""
    running: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from kohort.cli.main import main; main()", *arguments, "-b", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield popen
    for process in running:
        process.kill()
        process.communicate(timeout=10)
