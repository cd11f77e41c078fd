"""Kafka's Java libraries, copied by Maven into a folder outside the sources, and a server to run them against."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.testing import KohortServer

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    lib = tmp_path_factory.mktemp("java") / "lib"
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={lib}"],
        check=True,
        timeout=500,
    )
    return f"{lib}/*"


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(group_initial_rebalance_delay_ms=500) as running:
        yield running
