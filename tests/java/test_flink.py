"""Apache Flink, which writes in transactions that belong to its checkpoints. A row of docs/clients.md
(`make peers-clients`; Maven, Java 17)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import java_libraries
import pytest
from group import until
from matrix_stage import VERSIONS
from run_java import running
from test_exactly_once import committed

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.matrix, pytest.mark.timeout(600)]

PROGRAM = "Apache Flink, exactly-once sink"
VERSIONS[PROGRAM] = re.findall("<version>(2.+)</version>", java_libraries.FLINK_POM.read_text())[0]
LINES, COPIES = "lines", "copies"
GROUP = "copying"
LINES_A_ROUND = 20


@pytest.fixture(scope="session")
def flink_classpath() -> str:
    return java_libraries.flink()


@pytest.mark.program(
    PROGRAM,
    "a job copies a topic in transactions; it is killed and goes on from its last checkpoint: each line comes once",
)
def test_flink_killed(flink_classpath: str, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    written: list[str] = []
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        for topic in (LINES, COPIES):
            cluster.create_topic(topic, 2)

        def write(rounds: int) -> None:
            for _ in range(rounds):
                lines = [f"line {len(written) + number}" for number in range(LINES_A_ROUND)]
                for partition in range(2):
                    values = [line.encode() for line in lines[partition::2]]
                    cluster.produce(LINES, partition, [NewRecord(None, value, 1_800_000_000_000) for value in values])
                written.extend(lines)

        def copies() -> list[str]:
            return [line for _, line in committed(cluster, COPIES)]

        def job(log: str, *arguments: str) -> tuple[Any, ...]:
            folder = checkpoints.as_uri()
            return (flink_classpath, tmp_path / log, "FlinkCopy", server.bootstrap_servers, folder, *arguments)

        write(10)
        with running(*job("first.log")) as first:
            until(lambda: len(copies()) >= len(written), "all lines are copied", 240)
            before = newest(checkpoints)
            until(lambda: newest(checkpoints) > before, "a checkpoint after them", 60)
            write(20)  # some of these lines are in transactions that are open when the job dies
            first.kill()
            first.wait()
        write(10)
        with running(*job("second.log", path_of(checkpoints, newest(checkpoints)))):
            until(lambda: len(copies()) >= len(written), "all lines are copied", 240)
            assert sorted(copies()) == sorted(written)
            until(lambda: server.lag(GROUP, LINES) == 0, "Flink commits the offsets with each checkpoint", 60)


def newest(folder: Path) -> int:
    """The number of the last checkpoint that was completed."""
    numbers = [int(path.parent.name.removeprefix("chk-")) for path in folder.glob("*/chk-*/_metadata")]
    return max(numbers, default=0)


def path_of(folder: Path, number: int) -> str:
    [path] = folder.glob(f"*/chk-{number}")
    return path.as_uri()
