"""The ingest's lake, as plain Parquet readers see it: JSON columns, dead letters, schemas over restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kohort.client.cluster import Cluster
from kohort.spark.files.arrow import ArrowDirectory
from kohort.spark.lake.ingest import IngestFailed, Json, ingest
from kohort.spark.lake.locks import lock_file
from kohort.spark.source.checkpoint import query_id
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

WHEN = 1_700_000_000_000

GOOD = [
    b'{"id": 1, "name": "a", "at": {"x": 1.5}}',
    b'{"id": 2, "key": "k", "Name": "b", "name": "c"}',
    b'{"id": 3, "tags": ["t"]}',
]
BAD = {
    b"not json": "not JSON",
    b'{"id": "one"}': "does not fit the schema: id (bigint)",
    b'{"id": 1} {"id": 2}': "not JSON",
    b'{"id": 1}}': "not JSON",
    b'[{"id": 1}]': "not a JSON object but an array",
    b"12": "not a JSON object but a value",
    b"null": "not a JSON object but null",
    b" ": "empty",
    b"": "empty",
    b'{"name": "\xff"}': "not UTF-8",
    b'{"id": 123456789012345678901234567890}': "does not fit the schema: id (bigint)",
    b'{"at": {"x": 1e999}}': "does not fit the schema: at (struct<x: double>)",
    b'{"at": {"x": "y"}}': "does not fit the schema: a nested field",
    b"{'id': 1}": "not JSON",
    b'{"id": 1}, "x": {"id": 2}': "not JSON",
    b'{"id": 1}, "x": [{"id": 2}]': "not JSON",
    b'{"id": 1}, "__value": {"id": 2}': "not JSON",
    b'1, "__value": {"id": 2}': "not JSON",
}


def fill(cluster: Cluster, values: list[bytes | None], topic: str = "t") -> None:
    cluster.produce(topic, 0, [NewRecord(b"k", value, WHEN) for value in values])


def table(directory: Path) -> Any:
    return ds.dataset(directory, partitioning="hive").to_table().sort_by("offset")


@pytest.fixture
def run(spark: Any, server: KohortServer, tmp_path: Path) -> Any:
    def invoke(**arguments: Any) -> Any:
        arguments = {"topics": ["t"], "output": tmp_path / "lake", **arguments}
        return ingest(spark, bootstrap_servers=server.bootstrap_servers, **arguments)

    return invoke


def test_json_becomes_columns_and_unparsable_json_dead_letters(run: Any, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, [*GOOD, None, *BAD])
    given = "id BIGINT NOT NULL, name STRING, key STRING, Name STRING, at STRUCT<x: DOUBLE>, tags ARRAY<STRING>"
    done = run(values=Json(schema=given))
    assert (done.rows, done.dead_letters, done.batches) == (4, len(BAD), 1)
    rows = table(tmp_path / "lake").to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, None]
    assert [row["_tombstone"] for row in rows] == [False, False, False, True]
    assert (rows[0]["at"], rows[2]["tags"]) == ({"x": 1.5}, ["t"])
    assert {name: rows[1][name] for name in ("key", "value_key", "name", "Name_2")} == {
        "key": b"k", "value_key": "k", "name": "c", "Name_2": "b",
    }  # fmt: skip
    dead = table(tmp_path / "lake" / "_dead_letters").to_pylist()
    assert {row["value"]: row["reason"] for row in dead} == BAD
    assert [row["offset"] for row in dead] == list(range(4, 4 + len(BAD)))
    assert {(row["topic"], row["partition"], row["key"]) for row in dead} == {("t", 0, b"k")}


def test_an_inferred_schema_is_kept_new_fields_go_to_the_rest_and_a_refresh_adds_columns(
    run: Any, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, [b'{"id": 1, "big": 99999999999999999999}', b"broken"])
    assert run(values=Json()).dead_letters == 1
    fill(cluster, [b'{"id": 2, "new": {"deep": [1, 2.50]}, "id": 3}', b'{"id": "two"}'])
    second = run(values=Json(typing="permissive"))
    assert (second.rows, second.dead_letters) == (2, 0)
    fill(cluster, [b'{"id": 4, "new": {"deep": [1, 2.50]}}'])
    run(values=Json(refresh=True, keep_value=True))
    lake = ds.dataset(tmp_path / "lake", partitioning="hive")
    schema = ds.dataset(sorted(lake.files)[-1]).schema
    rows = (
        ds.dataset(lake.files, schema=schema.append(pa.field("_raw", pa.string())))
        .to_table()
        .sort_by("offset")
        .to_pylist()
    )
    assert [row["id"] for row in rows] == [1, 3, None, 4]
    assert [row["big"] for row in rows] == ["99999999999999999999", None, None, None]
    assert [row["_rest"] and json.loads(row["_rest"]) for row in rows] == [
        None,
        {"new": {"deep": [1, 2.5]}},
        None,
        None,
    ]
    assert [row["_raw"] for row in rows] == [None, None, '{"id": "two"}', None]
    assert rows[3]["new"] == {"deep": [1.0, 2.5]}
    assert rows[3]["value"] == b'{"id": 4, "new": {"deep": [1, 2.50]}}'


def test_impossible_settings_are_refused_before_anything_is_written(run: Any, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", 1)
    with pytest.raises(IngestFailed, match="the topics have no JSON object to infer a schema from"):
        run(values=Json())
    with pytest.raises(IngestFailed, match="neither Spark's DDL nor its JSON"):
        run(values=Json(schema="id BIGNUM"))
    with pytest.raises(IngestFailed, match=r"has no delta: .* spark-submit --packages io.delta:delta-spark"):
        run(table_format="delta")
    fill(cluster, [b"{}"])
    run()
    with pytest.raises(IngestFailed, match="partitioned by topic, date and this run asks for date"):
        run(partition_by=["date"])
    query = query_id(ArrowDirectory(tmp_path / "lake" / "_checkpoint"))
    other = lock_file(str(tmp_path / "lake" / "_kohort" / str(query) / "owner.lock"))
    assert other is not None
    with other, pytest.raises(IngestFailed, match=r"another run over this checkpoint is writing to .*; one at a time"):
        run()
    run()
    (tmp_path / "old" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(IngestFailed, match="was written by Spark's file sink"):
        run(output=tmp_path / "old")
    assert not list((tmp_path / "old").glob("_k*"))


TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorials" / "spark-lake.md"


def test_the_program_of_the_tutorial(
    spark: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs as it stands, but for the server's address and the output's place."""
    cluster.create_topic("orders", 1)
    cluster.produce("orders", 0, [NewRecord(None, b'{"id": %d}' % n, WHEN) for n in range(100)])
    [program] = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    program = program.replace("127.0.0.1:9092", server.bootstrap_servers)
    program = re.sub(r'"(lake-\w+)"', lambda match: repr(os.fspath(tmp_path / match[1])), program)
    exec(program, {})
    assert capsys.readouterr().out == "100 rows\n"
    assert [entry.offset for entry in cluster.committed("orders-lake").values()] == [100]


# -- the driver is killed by SIGKILL between the two writes of a batch, and between the renames

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


def counted(directory: Path) -> Counter[tuple[int, int]]:
    """How often each record is in the files that a plain reader takes, by partition and offset."""
    if not list(directory.glob("topic=*/*/*.parquet")):
        return Counter()
    found = ds.dataset(directory, partitioning="hive").to_table(["partition", "offset"]).to_pylist()
    return Counter((row["partition"], row["offset"]) for row in found)


@pytest.mark.long
@pytest.mark.timeout(600)
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
        seen = counted(lake)
        assert set(seen.values()) <= {1}, place
        assert bool(seen) == (place == "between the renames")
        assert not cluster.committed("g"), "the group is ahead of what is finished"
    done = ingest(
        spark, bootstrap_servers=server.bootstrap_servers, topics=["t"], output=lake, group_id="g",
        max_offsets_per_trigger=100, values=Json(schema="id BIGINT"),
    )  # fmt: skip
    assert (done.rows, done.dead_letters) == (180, 20)
    everywhere = counted(lake) + counted(lake / "_dead_letters")
    assert everywhere == Counter((partition, offset) for partition in range(2) for offset in range(100))
    assert sum(counted(lake / "_dead_letters").values()) == 20
    assert {place: entry.offset for place, entry in cluster.committed("g").items()} == {("t", 0): 100, ("t", 1): 100}
