"""`kohort pipeline ingest` as a user runs it; once in a process of its own that finds no java on its PATH."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from kohort.cli.commands import app
from kohort.client.cluster import Cluster
from kohort.spark.lake import compaction
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """The environment, its PATH without a java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            link = tools / tool.name
            if not tool.name.startswith("java") and not link.is_symlink():
                link.symlink_to(tool)
    return {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tools)}


@pytest.mark.slow
def test_an_interrupt_ends_a_continuous_ingest_with_its_summary(
    server: KohortServer, cluster: Cluster, tmp_path: Path, no_java: dict[str, str]
) -> None:
    cluster.create_topic("t", 2)
    cluster.produce("t", 1, [NewRecord(b"k", b"v", 0)] * 40)
    lake = tmp_path / "lake"
    command = [sys.executable, "-c", "from kohort.cli.main import main; main()", "pipeline", "ingest", "-b"]
    command += [server.bootstrap_servers, "--to", str(lake), *["-t", "t", "--group", "lake", "--continuous", "0.2"]]
    command += ["--progress", "lines"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=no_java)
    try:
        assert running.stderr is not None
        told = [next(running.stderr), next(running.stderr)]
        assert told[0] == "starting Spark\n"
        assert told[1].split()[:6] == ["batch", "0", "40", "rows", "lag", "0"]
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    # Spark's planning process may notice before it is stopped that the driver has gone, and prints its own traceback.
    assert err == "" or ("python_streaming_source_runner.py" in err and "kohort:" not in err), err
    assert out.startswith("40 rows in 1 micro-batch, ")
    assert [line.split() for line in out.splitlines()[2:]] == [["t", "0", "0", "0"], ["t", "1", "40", "40"]]
    assert {place: entry.offset for place, entry in cluster.committed("lake").items()} == {("t", 0): 0, ("t", 1): 40}
    assert len(list((lake / "topic=t" / "date=1970-01-01").glob("*.parquet"))) == 1


@pytest.fixture
def run(kept_session: Any, server: KohortServer) -> Any:
    return lambda *arguments: kohort("ingest", "-b", server.bootstrap_servers, *arguments)


def kohort(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_json_is_alone_on_stdout_and_a_failure_is_one_line(run: Any, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 3)
    lake = str(tmp_path / "lake")
    result = run("-t", "t", "--to", lake, "-o", "json", "--partition-by", "date,hour", "--since", "1970-01-01")
    assert (result.exit_code, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["files"], summary["group"]) == (3, 1, None)
    assert summary["positions"] == [{"topic": "t", "partition": 0, "offset": 3}]
    assert (tmp_path / "lake" / "date=1970-01-01" / "hour=0").is_dir()
    (tmp_path / "file").touch()
    result = run("-t", "t", "--to", str(tmp_path / "file" / "lake"))
    assert result.exit_code == 1
    assert "ParentNotDirectoryException: Parent path is not a directory" in result.stderr.splitlines()[-1]
    result = run("-t", "t,absent", "--to", str(tmp_path / "other"))
    assert (result.exit_code, result.stderr.splitlines()[-1].split(":")[-1]) == (1, " absent")
    assert run("-t", "t", "--to", lake, "--partition-by", "colour").exit_code == 2


def physical(file: Path) -> tuple[tuple[str, str], ...]:
    """The columns that a file itself contains."""
    schema = pq.read_metadata(file).schema
    return tuple((schema.column(n).name, schema.column(n).physical_type) for n in range(len(schema)))


@pytest.mark.long
def test_small_files_are_merged_by_a_command_and_by_the_run(
    run: Any, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b'{"n": 1}' if n % 5 else b"bad", 0) for n in range(30)])
    lake = tmp_path / "lake"
    arguments = ["-t", "t", "--to", str(lake), "--schema", "json", "--max-offsets-per-trigger", "10"]
    assert "6 dead letters" in run(*arguments).stdout
    kinds = {physical(file) for file in lake.rglob("topic=*/**/*.parquet")}
    day, dead = "topic=t/date=1970-01-01", "_dead_letters/topic=t/date=1970-01-01"
    assert [len(list((lake / where).glob("*.parquet"))) for where in (day, dead)] == [3, 3]
    result = kohort("compact", str(lake), "-o", "json")
    told = json.loads(result.stdout)
    assert (told["directories"], told["files_before"], told["files_after"]) == (2, 6, 2)
    assert {physical(file) for file in lake.rglob("topic=*/**/*.parquet")} == kinds
    assert [len(list((lake / where).glob("*.parquet"))) for where in (day, dead)] == [1, 1]
    assert kohort("compact", str(lake)).stdout == "nothing to compact\n"
    cluster.produce("t", 0, [NewRecord(b"k", b'{"n": 2, "m": 3}', 0)])
    assert "compacted 1 directory: 2 files" in run(*arguments, "--refresh-schema", "--compact").stdout
    [file] = (lake / day).glob("*.parquet")
    rows = sorted(pq.read_table(file).to_pylist(), key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == [n for n in range(30) if n % 5] + [30]
    assert [(row["n"], row["m"]) for row in rows[-2:]] == [(1, None), (2, 3)]
    missing = kohort("compact", str(tmp_path / "none"))
    assert (missing.exit_code, "there is no lake at" in missing.stderr) == (1, True)
    for name in "ab":
        pq.write_table(pq.read_table(file), lake / day / f"{name}.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "swap", refuse)
        full = kohort("compact", str(lake))
    (lake / day / "b.parquet").write_bytes(b"PAR1 and no more")
    for failed, said in (
        (full, "No space left on device"),
        (kohort("compact", str(lake)), "b.parquet"),
    ):
        assert failed.exit_code == 1, failed.exception
        [line] = failed.stderr.splitlines()
        assert line.startswith("kohort: the compaction failed: ")
        assert said in line


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
