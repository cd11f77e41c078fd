"""`kohort pipeline history` as a user runs it: from a running server, live; from dumps; again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from offsets_log import MINUTE, START, Log
from typer.testing import CliRunner, Result

from kohort.cli.pipelines import app as pipeline
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.metadata import Topic
from kohort.spark.history import history
from kohort.spark.history.cluster import OFFSETS_TOPIC
from kohort.spark.history.decoding import dumps
from kohort.spark.history.decoding.dumps import DumpError, find_dumps, import_dump
from kohort.spark.history.extent import extent_of
from kohort.spark.history.store import HistoryFailed, Store, by_partition, read_records
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]
SERVER = {"log_cleaner_enable": False}  # a compacted log lacks commits of the history


@pytest.fixture
def run(kept_session: Any) -> Any:
    return lambda *arguments: CliRunner().invoke(pipeline.app, ["history", *map(str, arguments)])


def rows(output: Path, name: str) -> list[dict[str, Any]]:
    table = Store(str(output)).table(name)
    assert table is not None
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_an_empty_log_has_a_report(run: Any, tmp_path: Path) -> None:
    with KohortServer() as unused:
        found: Result = run("-b", unused.bootstrap_servers, "--to", tmp_path, "-o", "json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["groups"] == 0
    assert "no group has committed anything" in (tmp_path / "report.html").read_text()
    assert rows(tmp_path, "commits") == rows(tmp_path, "groups") == []


@pytest.mark.long
def test_a_second_live_run_continues_the_first(
    run: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, spark: Any
) -> None:
    cluster.create_topic("t", 2)
    cluster.produce("t", 0, [NewRecord(None, b"v", 0)] * 30)
    for group, protocol in (("workers", "classic"), ("modern", "consumer")):
        settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": group, "group.protocol": protocol}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            consumer.subscribe(["t"])
            while len(consumer.assignment()) < 2:
                consumer.poll(0.1)
        finally:
            consumer.close()
    cluster.commit("plain", {("t", 0): Committed(10)})
    output = tmp_path / "out"
    first: Result = run("-b", server.bootstrap_servers, "--to", output, "-o", "json")
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout)
    assert (summary["groups"], summary["in_trouble"]) == (3, 0)
    [commit] = rows(output, "commits")
    assert (commit["group"], commit["topic"], commit["partition"], commit["offset"]) == ("plain", "t", 0, 10)
    assert [(row["end"], row["lag"]) for row in rows(output, "lag") if row["at"] >= commit["at"]][-1] == (30, 20)
    members = {row["group"]: row for row in rows(output, "members")}
    assert {group: row["protocol"] for group, row in members.items()} == {"workers": "classic", "modern": "consumer"}
    owned = rows(output, "ownership")
    assert sorted((row["group"], row["topic"], row["partition"]) for row in owned) == [
        (group, "t", partition) for group in ("modern", "workers") for partition in (0, 1)
    ]
    for row in owned:
        assert row["member_id"] == members[row["group"]]["member_id"]
        assert row["since"] < row["until"] <= members[row["group"]]["until"]
    cluster.commit("plain", {("t", 0): Committed(30)})
    second: Result = run("-b", server.bootstrap_servers, "--to", output)
    assert second.exit_code == 0, second.output
    assert "3 groups, 0 in trouble" in second.stdout
    assert [row["offset"] for row in rows(output, "commits")] == [10, 30]
    # The second run has not read the first commit again.
    assert spark.read.parquet(str(output / "records" / "live")).where("kind = 1").count() == 2
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "plain" in page
    assert not re.search(r"<script|<link|src=", page)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions in Parquet, and the ends of the topics."""
    folder = tmp_path_factory.mktemp("dump")
    ends = []
    for partition in range(2):
        log = Log(60, seed=partition + 1, partition=partition)
        orders = log.topic(f"orders-{partition}", 6, 50.0)
        log.healthy(f"billing-{partition}", orders)
        log.storm(f"shipping-{partition}", orders, START + 20 * MINUTE, 20)
        pq.write_table(log.table(), folder / f"part-{partition}.parquet")
        ends.append(log.ends())
    pq.write_table(pa.concat_tables(ends), folder.parent / "ends.parquet")
    return folder


def test_dumps_are_read_once_and_again_after_a_change(run: Any, dump: Path, tmp_path: Path, spark: Any) -> None:
    output = tmp_path / "out"
    first: Result = run("--files", dump, "--ends", dump.parent / "ends.parquet", "--to", output)
    assert first.exit_code == 0, first.output
    assert "4 groups, 2 in trouble" in first.stdout
    assert "shipping-0 rebalanced 21 times" in first.stdout
    assert {row["group"] for row in rows(output, "storms")} == {"shipping-0", "shipping-1"}
    assert {row["group"] for row in rows(output, "lag")} == {
        f"{name}-{n}" for name in ("billing", "shipping") for n in (0, 1)
    }
    assert "shipping-0 rebalanced" in (output / "report.html").read_text(encoding="utf-8")
    written = {path: path.stat().st_mtime_ns for path in (output / "records").rglob("*.parquet")}
    before = rows(output, "commits")
    again = history(spark, output=output, files=[str(dump)])
    assert {path: path.stat().st_mtime_ns for path in (output / "records").rglob("*.parquet")} == written
    assert rows(output, "commits") == before
    assert again.rows["lag"] > 0, "the ends of the first run are kept"
    # The same records in one more file: they are counted once.
    whole = pq.read_table(dump / "part-0.parquet").slice(0, 1000)
    pq.write_table(whole, tmp_path / "more.parquet")
    more = history(spark, output=output, files=[str(tmp_path / "more.parquet")])
    assert len(rows(output, "commits")) == len(before)
    assert more.records == again.records == sum(row["records"] for row in rows(output, "records"))


def test_unreadable_input_is_named(run: Any, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"key": [b""]}), tmp_path / "other.parquet")
    for place, message in [
        (tmp_path / "absent", "no such file or directory"),
        (tmp_path / "other.parquet", "lacks value, partition, offset, timestamp"),
    ]:
        result: Result = run("--files", place, "--to", tmp_path / "out")
        assert (result.exit_code, message in result.stderr) == (1, True), result.output
    assert run("--files", "x", "-b", "y").exit_code == 2
    unreachable: Result = run("-b", "127.0.0.1:1", "--to", tmp_path / "out")
    assert (unreachable.exit_code, "cannot reach" in unreachable.stderr) == (3, True), unreachable.output
    missing = Topic(OFFSETS_TOPIC, (), error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    monkeypatch.setattr(Cluster, "topics", lambda *_, **__: {OFFSETS_TOPIC: missing})
    none: Result = run("-b", "127.0.0.1:1", "--to", tmp_path / "out")
    assert (none.exit_code, "no group has ever been in it" in none.stderr) == (1, True), none.output
    with pytest.raises(HistoryFailed, match="one of the two"):
        history(spark, output=tmp_path / "out")
    with pytest.raises(HistoryFailed, match="isolation is 'none'"):
        history(spark, output=tmp_path / "out", files=["x"], isolation="none")


# -- segments, without Spark


def commit(offset: int) -> NewRecord:
    key = b"\0\1\0\1g\0\1t\0\0\0\0"
    return NewRecord(
        key, b"\0\3" + offset.to_bytes(8, "big") + b"\0\0\0\1\0\0" + (START + offset).to_bytes(8, "big"), START
    )


def marker(at: int, producer: int, *, aborts: bool) -> bytes:
    record = NewRecord(b"\0\0\0" + (b"\0" if aborts else b"\1"), b"\0\0\0\0\0\0", START)
    return encode_batch([record], base_offset=at, producer_id=producer, is_control=True, is_transactional=True)


def in_transaction(at: int, producer: int) -> bytes:
    return encode_batch([commit(at)], base_offset=at, producer_id=producer, producer_epoch=0, is_transactional=True)


def test_segments_honour_transactions(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    first = (
        encode_batch([commit(0), commit(1)], base_offset=0, compression=4)
        + in_transaction(2, 11)
        + in_transaction(3, 12)
    )
    # The transactions end in the next segment; the third one never does. Behind it a broker's file has zeros.
    second = marker(4, 11, aborts=True) + marker(5, 12, aborts=False) + in_transaction(6, 13) + bytes(4096)
    (folder / "00000000000000000000.log").write_bytes(first)
    (folder / "00000000000000000004.log").write_bytes(second)
    [found] = find_dumps([str(tmp_path)])
    assert (found.partition, len(found.files)) == (7, 2)
    for isolation, offsets, left in (
        ("read_committed", [0, 1, 3], (1, 1)),
        ("read_uncommitted", [0, 1, 2, 3, 6], (0, 0)),
    ):
        store = Store(str(tmp_path / isolation))
        taken = import_dump(store, found, isolation)
        assert (taken.records, (taken.aborted, taken.open)) == (len(offsets), left)
        [file] = store.files("records/files/of=commits/in=7")
        read = pq.read_table(file, partitioning=None)
        assert read.column("commit_offset").to_pylist() == offsets
        assert read.column("log_offset").to_pylist() == offsets
        assert set(read.column("log_partition").to_pylist()) == {7}


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    data = bytearray(encode_batch([commit(0)]) + encode_batch([commit(1)], base_offset=1))
    data[-1] ^= 1
    (folder / "0.log").write_bytes(bytes(data))
    with pytest.raises(DumpError, match=r"0\.log: at byte \d+: the checksum does not match"):
        import_dump(Store(str(tmp_path / "out")), find_dumps([str(tmp_path)])[0], "read_committed")
    assert not list((tmp_path / "out").rglob("*.partial"))


def test_a_large_dump_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece has dictionaries of its own."""
    monkeypatch.setattr(dumps, "BATCH", 100)
    log = Log(10)
    for name in ("orders", "clicks"):
        log.healthy(f"of-{name}", log.topic(name, 3, 50.0))
    table = log.table()
    pq.write_table(table, tmp_path / "dump.parquet")
    store = Store(str(tmp_path / "out"))
    [found] = find_dumps([str(tmp_path / "dump.parquet")])
    assert import_dump(store, found, "read_committed").records == table.num_rows
    of = by_partition(store.files("records/files"))[0]
    extent = extent_of(of)
    assert extent.records == table.num_rows
    assert extent.places == {(topic, partition) for topic in ("orders", "clicks") for partition in range(3)}
    assert sum(read_records(of[name], name).num_rows for name in of) == table.num_rows
