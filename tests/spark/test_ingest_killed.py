"""The driver's process is killed by SIGKILL between the two writes of a batch, and between the renames; plain Parquet
readers then count every record once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kohort.client.cluster import Cluster
from kohort.spark.lake.ingest import Json, ingest
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

DAY_MS = 86_400_000

SCRIPT = """
import os, signal, sys
from kohort.spark.lake import lake, tables
from kohort.spark.lake.ingest import Json, ingest
from kohort.spark.runtime.session import spark_session

place, servers, output = sys.argv[1:]
places = {"between the writes": (tables.ParquetSink, "_save", 1), "between the renames": (lake, "_move", 3)}
module, name, calls = places[place]
real, left = getattr(module, name), [calls]

def killing(*arguments):
    real(*arguments)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

setattr(module, name, killing)
ingest(
    spark_session("killed", master="local[2]"), bootstrap_servers=servers, topics=["t"], output=output, group_id="g",
    max_offsets_per_trigger=100, values=Json(schema="id BIGINT"),
)
"""


def rows(directory: Path) -> Counter[tuple[int, int]]:
    """How often each record is in the files that a plain reader takes, by partition and offset."""
    if not list(directory.glob("topic=*/*/*.parquet")):
        return Counter()
    found = ds.dataset(directory, partitioning="hive").to_table(["partition", "offset"]).to_pylist()
    return Counter((row["partition"], row["offset"]) for row in found)


def test_a_killed_driver_writes_no_record_twice_and_loses_none(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 2, configs={"retention.ms": "-1"})  # the records are of 1970, and a slow run is long
    values = [b"bad" if n % 10 == 0 else b'{"id": %d}' % n for n in range(100)]
    records = [NewRecord(None, value, n % 3 * DAY_MS) for n, value in enumerate(values)]
    for partition in range(2):
        cluster.produce("t", partition, records)
    lake = tmp_path / "lake"
    for place in ("between the writes", "between the renames"):
        command = [sys.executable, "-c", SCRIPT, place, server.bootstrap_servers, str(lake)]
        assert subprocess.run(command, timeout=280, check=False).returncode == -signal.SIGKILL, place
        seen = rows(lake)
        assert set(seen.values()) <= {1}, place
        assert bool(seen) == (place == "between the renames")
        assert not cluster.committed("g"), "the group is ahead of what is finished"
    done = ingest(
        spark, bootstrap_servers=server.bootstrap_servers, topics=["t"], output=lake, group_id="g",
        max_offsets_per_trigger=100, values=Json(schema="id BIGINT"),
    )  # fmt: skip
    assert (done.rows, done.dead_letters) == (180, 20)
    everywhere = rows(lake) + rows(lake / "_dead_letters")
    assert everywhere == Counter((partition, offset) for partition in range(2) for offset in range(100))
    assert sum(rows(lake / "_dead_letters").values()) == 20
    assert {place: entry.offset for place, entry in cluster.committed("g").items()} == {("t", 0): 100, ("t", 1): 100}
