"""`kohort pipeline history` as a user runs it: from a running server, live; from dumps; again."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from micro_batches import until
from offsets_log import MINUTE, START, Log
from typer.testing import CliRunner, Result

from kohort.cli.commands import app
from kohort.cli.pipelines import history as history_command
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.metadata import Topic
from kohort.client.records import records
from kohort.spark.history import history
from kohort.spark.history.analysis import TABLES
from kohort.spark.history.cluster import OFFSETS_TOPIC
from kohort.spark.history.decoding import dumps
from kohort.spark.history.decoding.dumps import DumpError, find_dumps, import_dump
from kohort.spark.history.extent import extent_of
from kohort.spark.history.local_engine import LocalEngine
from kohort.spark.history.store import HistoryFailed, Store, TooLarge, by_partition, read_records
from kohort.testing import KohortServer, ManualClock
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]
SERVER = {"log_cleaner_enable": False}  # a compacted log lacks commits of the history


@pytest.fixture
def run() -> Any:
    """Without an option it runs without Spark: the logs are small."""
    return lambda *arguments: CliRunner().invoke(app, ["pipeline", "history", *map(str, arguments)])


def rows(output: Path, name: str) -> list[dict[str, Any]]:
    table = Store(str(output)).table(name)
    assert table is not None
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def sorted_rows(output: Path, name: str) -> list[dict[str, Any]]:
    return sorted(rows(output, name), key=repr)


def test_an_empty_log_has_a_report(run: Any, tmp_path: Path) -> None:
    with KohortServer() as unused:
        found: Result = run("-b", unused.bootstrap_servers, "--to", tmp_path, "-o", "json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["groups"] == 0
    assert "no group has committed anything" in (tmp_path / "report.html").read_text()
    assert rows(tmp_path, "commits") == rows(tmp_path, "groups") == []


def test_a_directory_keeps_to_its_cluster(run: Any, tmp_path: Path) -> None:
    with KohortServer() as first, KohortServer() as other:
        assert run("-b", first.bootstrap_servers, "--to", tmp_path).exit_code == 0
        before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        refused: Result = run("-b", other.bootstrap_servers, "--to", tmp_path)
        assert run("-b", first.bootstrap_servers, "--to", tmp_path).exit_code == 0
        with Cluster(first.bootstrap_servers) as cluster:
            kept = cluster.cluster_id()
    assert refused.exit_code == 1
    assert f"has the history of cluster {kept}" in refused.stderr
    assert before.keys() == {file for file in tmp_path.rglob("*") if file.is_file()}
    [note] = [content for file, content in before.items() if file.name == "cluster.json"]
    assert json.loads(note) == {"cluster_id": kept}


def test_wrong_engines_are_refused(run: Any, tmp_path: Path) -> None:
    refused: Result = run("--to", tmp_path, "--engine", "lokal")
    assert refused.exit_code == 2
    assert "did you mean local?" in refused.stderr


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.long)])
def test_a_second_live_run_continues_the_first(
    run: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("kept_session")
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
    first: Result = run("-b", server.bootstrap_servers, "--to", output, "--engine", engine, "-o", "json")
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout)
    assert (summary["groups"], summary["in_trouble"], summary["engine"]) == (3, 0, engine)
    assert summary["coverage"]["stories"] > 0, "kohort has a journal"
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
    cluster.commit("workers", {("t", 0): Committed(30)})
    with Cluster(server.bootstrap_servers, "tool") as tool:
        tool.commit("workers", {("t", 0): Committed(0)})
    second: Result = run("-b", server.bootstrap_servers, "--to", output, "--engine", engine)
    assert second.exit_code == 0, second.output
    assert "3 groups, 0 in trouble" in second.stdout
    assert "workers was reset to 0 from outside: by tool on 127.0.0.1; 30 records" in second.stdout, (
        "the journal knows by whom"
    )
    assert "seen: " in second.stdout
    assert [(row["group"], row["offset"]) for row in rows(output, "commits")] == [
        ("plain", 10),
        ("workers", 30),
        ("workers", 0),
    ]
    # The second run has not read the first commit again.
    files = [*Store(str(output)).streamed("records/live"), *Store(str(output)).files("records/files")]
    assert sum(read_records(ones["commits"], "commits").num_rows for ones in by_partition(files).values()) == 3
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "plain" in page
    assert not re.search(r"<script|<link|src=", page)
    assert "What this report could see" in page
    # Another engine takes the directory over, and counts no record twice.
    third: Result = run("-b", server.bootstrap_servers, "--to", output, "--engine", "local", "-o", "json")
    assert json.loads(third.stdout)["rows"]["commits"] == 3


@pytest.mark.parametrize("keeps", [False, True])
def test_what_compaction_has_left_of_a_log_of_kohort(run: Any, tmp_path: Path, keeps: bool) -> None:
    """Commits, and a reset among them, are in the log for a day; without the history of groups they vanish within
    minutes, and there is no all-clear."""
    clock = ManualClock(ticking=True)
    settings = {} if keeps else {"offsets_topic_history_bytes": 0}
    with (
        KohortServer(offsets_topic_num_partitions=1, clock=clock, **settings) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        cluster.create_topic("t", 1)
        cluster.create_topic("u", 1, configs={"cleanup.policy": "compact"})
        cluster.produce("t", 0, [NewRecord(None, b"v", 0)] * 100)
        for value in (b"1", b"2", b"3"):
            cluster.produce("u", 0, [NewRecord(b"key", value, 0)])
        for offset in (*range(60), 0, *range(60)):
            cluster.commit("plain", {("t", 0): Committed(offset)})
        place = (OFFSETS_TOPIC, 0)
        written = cluster.offsets([place], "latest")[place]

        def left(place: tuple[str, int]) -> int:
            return sum(len(list(records(one, 0))) for one in cluster.fetch({place: 0}, partition_max_bytes=2**20))

        assert left(place) == written == 121
        clock.advance(10 * MINUTE)
        until(lambda: left(("u", 0)) < 3)  # logs are compacted one after the other, that of the groups before this one
        if not keeps:
            until(lambda: left(place) < 10)
        assert (left(place) == 121) is keeps
        found: Result = run("-b", server.bootstrap_servers, "--to", tmp_path)
        assert found.exit_code == 0, found.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    if keeps:
        assert "plain went back to offset 0" in found.stdout
        assert "121 records of __consumer_offsets" in found.stdout
        assert "none missing." in found.stdout
        assert "This is no all-clear" not in page
        return
    assert "1 group, none seen in trouble" in found.stdout
    assert re.search(r"1\d\d earlier records are not in the log any more", found.stdout), found.stdout
    assert "1 group without a finding in what could be seen" in page
    assert "This is no all-clear" in page
    assert "fine</span>" not in page


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


def test_both_engines_make_the_same_history(dump: Path, tmp_path: Path, spark: Any) -> None:
    made = {}
    for name, session in (("local", None), ("spark", spark)):
        summary = history(session, output=tmp_path / name, files=[str(dump)], ends=str(dump.parent / "ends.parquet"))
        tables = {table: sorted_rows(tmp_path / name, table) for table in (*TABLES, "findings", "log_ends", "stories")}
        page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
        told = dataclasses.replace(summary, report="", seconds=0.0, engine="")
        made[name] = told, tables, page
        assert summary.engine == name
    assert made["local"] == made["spark"]


def test_partitions_may_be_analysed_together(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, if they are small. A run that does otherwise leaves no files of the one before."""
    made = []
    for at_once in (0, LocalEngine.records_at_once, 0):
        monkeypatch.setattr(LocalEngine, "records_at_once", at_once)
        history(None, output=tmp_path, files=[str(dump)], ends=str(dump.parent / "ends.parquet"))
        files = [file.name for file in (tmp_path / "tables/commits").iterdir()]
        made.append((len(files), {table: sorted_rows(tmp_path, table) for table in (*TABLES, "findings")}))
    assert [files for files, _ in made] == [2, 1, 2]
    assert made[0][1] == made[1][1] == made[2][1]


WITHOUT_SPARK = """
import sys
for name in ("pyspark", "numba", "confluent_kafka"):
    sys.modules[name] = None
from kohort.cli.main import main
main(sys.argv[1:])
"""


def test_a_small_history_needs_no_spark(dump: Path, tmp_path: Path) -> None:
    """Nor what else only Spark's users have."""
    command = ["pipeline", "history", "--files", str(dump), "--to", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 groups, 2 in trouble" in done.stdout
    asked = [*command, "--engine", "spark"]
    refused = subprocess.run([sys.executable, "-c", WITHOUT_SPARK, *asked], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith(
        "pyspark is missing: pip install 'kohort[spark]'; or --engine local, which holds the log in memory"
    )


def test_spark_makes_the_history_of_a_large_log(
    run: Any, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_command, "MOST_RECORDS", 100)
    monkeypatch.setattr(history_command, "spark_session", Mock(side_effect=AssertionError("Spark starts")))
    asked: Result = run("--files", dump, "--to", tmp_path)
    assert str(asked.exception) == "Spark starts"
    assert "the log has more than 100 records" in asked.stderr
    assert run("--files", dump, "--to", tmp_path, "--engine", "local").exit_code == 0
    with pytest.raises(TooLarge):
        history(None, output=tmp_path, files=[str(dump / "part-0.parquet")], most_records=100)


def test_a_large_log_of_a_running_server_is_noticed_while_it_is_read(
    server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("t", 30)
    cluster.commit("plain", {("t", partition): Committed(10) for partition in range(30)})
    with pytest.raises(TooLarge, match="more than 20 records"):
        history(None, output=tmp_path, bootstrap_servers=server.bootstrap_servers, most_records=20)
    assert history(None, output=tmp_path, bootstrap_servers=server.bootstrap_servers, most_records=50).records == 30


def test_the_log_of_sparks_sink_names_the_files(tmp_path: Path) -> None:
    """Batches are compacted into one file from time to time; a file outside of the log is from a batch that failed."""
    log = tmp_path / "live" / "_spark_metadata"
    log.mkdir(parents=True)

    def entry(name: str, action: str = "add") -> str:
        return json.dumps({"path": f"file:///out%20put/live/{name}", "size": 1, "action": action})

    for batch, names in (("8", ["old"]), ("9.compact", ["a", "b"]), ("10", ["c"]), (".11.tmp", ["broken"])):
        (log / batch).write_text("\n".join(["v1", *map(entry, names)]))
    (log / "11").write_text("\n".join(["v1", entry("b", "delete"), entry("d")]))
    assert Store(str(tmp_path)).streamed("live") == [f"file:///out put/live/{name}" for name in ("a", "c", "d")]
    assert Store(str(tmp_path)).streamed("nothing") == []


def test_dumps_are_read_once_and_again_after_a_change(run: Any, dump: Path, tmp_path: Path) -> None:
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
    again = history(None, output=output, files=[str(dump)])
    assert {path: path.stat().st_mtime_ns for path in (output / "records").rglob("*.parquet")} == written
    assert rows(output, "commits") == before
    assert again.rows["lag"] > 0, "the ends of the first run are kept"
    # The same records in one more file: they are counted once.
    whole = pq.read_table(dump / "part-0.parquet").slice(0, 1000)
    pq.write_table(whole, tmp_path / "more.parquet")
    more = history(None, output=output, files=[str(tmp_path / "more.parquet")])
    assert len(rows(output, "commits")) == len(before)
    assert more.records == again.records == sum(row["records"] for row in rows(output, "records"))


def test_unreadable_input_is_named(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        history(None, output=tmp_path / "out")
    with pytest.raises(HistoryFailed, match="isolation is 'none'"):
        history(None, output=tmp_path / "out", files=["x"], isolation="none")


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
