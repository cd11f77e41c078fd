"""The program of docs/tutorials/spark-lake.md runs as it stands, but for the server's address."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "spark-lake.md"


@pytest.mark.spark
def test_the_program(
    spark: Any, kohort_server: KohortServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with Cluster(kohort_server.bootstrap_servers) as cluster:
        cluster.create_topic("orders", 1)
        cluster.produce("orders", 0, [NewRecord(None, b'{"id": %d}' % n, 1_700_000_000_000) for n in range(100)])
        [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        program = program.replace("127.0.0.1:9092", kohort_server.bootstrap_servers)
        # The session's directory is not the test's.
        program = re.sub(r'"(lake-\w+)"', lambda match: repr(os.fspath(tmp_path / match[1])), program)
        exec(program, {})
        assert capsys.readouterr().out == "100 rows\n"
        assert [entry.offset for entry in cluster.committed("orders-lake").values()] == [100]
