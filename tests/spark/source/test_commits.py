"""The commits of a planning process, without Spark: the last batch, other clients of the group, the author."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_directory import LocalDirectory

from kohort.client.admin.commit_metadata import GroupReader, group_reader_of
from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.client.errors import TimedOut
from kohort.spark.files.arrow import ArrowDirectory, arrow_address
from kohort.spark.files.directory import Directory
from kohort.spark.options.source import parse
from kohort.spark.source import commits as commits_module
from kohort.spark.source.checkpoint import finished, is_finished, last_finished, last_planned, query_id
from kohort.spark.source.commits import Commits
from kohort.spark.source.identity import IdentityReceiver, send_identity
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

END = {"t": {"0": 3}}


def batch(checkpoint: Path, number: int, ends: list[dict[str, Any]], *, done: bool) -> None:
    """A batch in a checkpoint, as Spark writes it."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(end) for end in ends)]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    (checkpoint / "metadata").write_text('{"id":"0f00"}')
    if done:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def commits_of(server: KohortServer, cluster: Cluster) -> Iterator[Callable[..., Commits]]:
    """The commits of a query with more options."""
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 3)
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", "group.id": "g"}
    with contextlib.ExitStack() as made:
        yield lambda **more: made.enter_context(contextlib.closing(Commits(parse(given | more))))


@pytest.fixture
def commits(commits_of: Callable[..., Commits], tmp_path: Path) -> Commits:
    return commits_of(checkpointLocation=f"file:{tmp_path}")


def test_the_last_batch_is_committed_only_if_the_checkpoint_has_it(
    commits: Commits, cluster: Cluster, tmp_path: Path
) -> None:
    commits.finish()
    commits.planned = END
    commits.finish()
    assert cluster.committed("g") == {}
    batch(tmp_path, 0, [{"other": {"0": 9}}, END], done=False)
    commits.finish()
    assert cluster.committed("g") == {}
    batch(tmp_path, 0, [{"other": {"0": 9}}, END], done=True)
    commits.finish()
    entry = cluster.committed("g")["t", 0]
    assert entry.offset == 3
    holder = group_reader_of(entry.metadata)
    assert holder is not None
    assert (holder.query, holder.batch) == ("0f00", 0)
    # Committed offsets stay unchanged.
    cluster.commit("g", {("t", 0): 1})
    commits.finish()
    assert cluster.committed("g")["t", 0].offset == 1


def test_a_stop_without_a_checkpoint_location_warns(
    commits_of: Callable[..., Commits], capsys: pytest.CaptureFixture[str]
) -> None:
    commits = commits_of()
    commits.planned = {"t": {"0": 0}}
    commits.commit({("t", 0): 0})
    commits.finish()
    assert capsys.readouterr().err == ""
    commits.planned = END
    commits.finish()
    assert "the last batch is not committed to the group g" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_read_is_a_warning(
    commits: Commits, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch(tmp_path, 0, [END], done=True)
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{")
    commits.planned = END
    commits.finish()
    assert "the last finished batch is not committed to the group g" in capsys.readouterr().err
    with pytest.raises(ValueError, match="nowhere"):
        ArrowDirectory("nowhere://at/all")
    assert arrow_address("s3a://lake/s3a:x") == "s3://lake/s3a:x"
    assert arrow_address("hdfs://h:1/x") == "hdfs://h:1/x"
    commits.commit({("t", 0): 2})  # the metadata goes without what only the checkpoint knows


@pytest.mark.parametrize("place_at", [ArrowDirectory, lambda path: ArrowDirectory(f"file://{path}"), LocalDirectory])
def test_a_checkpoint_in_any_place(tmp_path: Path, place_at: Callable[[Path], Directory]) -> None:
    place = place_at(tmp_path)
    assert (query_id(place), last_planned(place), last_finished(place), finished(place)) == (None, None, None, None)
    assert not is_finished(place, END)
    batch(tmp_path, 9, [{"t": {"0": 2}}], done=True)
    batch(tmp_path, 10, [END, {"u": {"0": 1}}], done=True)
    batch(tmp_path, 11, [{"t": {"0": 5}}], done=False)
    (tmp_path / "commits" / ".10.crc").touch()
    assert (query_id(place), last_planned(place), last_finished(place)) == ("0f00", 11, 10)
    assert finished(place) == {("t", 0): 3}
    assert is_finished(place, {"u": {"0": 1}})
    assert not is_finished(place, {"t": {"0": 5}})


def test_a_warning_about_another_committer_in_the_group(
    commits: Commits, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    commits.commit({("t", 0): 1})
    assert cluster.committed("g")["t", 0].offset == 1
    cluster.commit("g", {("t", 0): Committed(3, -1, GroupReader("aa", "thief").metadata())})
    commits.commit({("t", 0): 2})
    assert cluster.committed("g")["t", 0].offset == 2
    told = capsys.readouterr().err
    assert "another program commits to the group g: t-0 was set to 3 by Spark query thief (aa), this query had" in told
    cluster.commit("g", {("t", 0): 0})
    commits.commit({("t", 0): 3})
    assert "was set to 0 by a program without a name" in capsys.readouterr().err


def test_failed_commits_back_off(
    commits: Commits, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, asked = [0.0], []

    def silent(_: Cluster, group_id: str, __: object) -> dict[Any, Any]:
        asked.append(now[0])
        raise TimedOut("no answer")

    monkeypatch.setattr(commits_module.time, "monotonic", lambda: now[0])
    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "committed", silent)
        for second in range(200):
            now[0] = float(second)
            commits.commit({("t", 0): 1})
    assert asked == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0]
    assert capsys.readouterr().err.count("could not commit to the group g: no answer") == 1
    now[0] = 243.0
    monkeypatch.undo()
    commits.commit({("t", 0): 1})
    assert cluster.committed("g")["t", 0].offset == 1


def test_offsets_that_the_group_has_are_not_committed_again(commits: Commits, cluster: Cluster) -> None:
    cluster.commit("g", {("t", 0): Committed(2, -1, "mine")})
    commits.commit({("t", 0): 2})
    assert cluster.committed("g")["t", 0].metadata == "mine"


PROPERTIES = {
    "sql.streaming.queryId": "0f00",
    "spark.jobGroup.id": "1f00",
    "streaming.sql.batchId": "7",
    "spark.job.description": "two\nlines\nid = 0f00\nrunId = 1f00\nbatch = 7",
    "spark.app.name": "app",
}


def test_a_task_tells_which_query_it_belongs_to() -> None:
    receiver = IdentityReceiver("127.0.0.1:9")
    try:
        address = receiver.reply_to
        assert address is not None
        assert address.host == "127.0.0.1"
        assert receiver.receive() is None
        send_identity(address._replace(token="guessed"), PROPERTIES.get)
        assert receiver.receive() is None
        send_identity(address, PROPERTIES.get)
        heard = GroupReader("0f00", "two\nlines", "1f00", 7, "app")
        assert receiver.receive() == heard
        assert receiver.receive() == heard
        send_identity(address, {**PROPERTIES, "spark.job.description": "id = 0f00\nrunId = 1f00\nbatch = init"}.get)
        send_identity(address, {"streaming.sql.batchId": "8"}.get)
        last = receiver.receive()
        assert last is not None
        assert (last.batch, last.name) == (8, None)
    finally:
        receiver.close()
    send_identity(address, PROPERTIES.get)  # nobody listens any more


def test_without_a_reachable_address_no_identity_is_received() -> None:
    receiver = IdentityReceiver("no.such.host.invalid:9")
    assert (receiver.reply_to, receiver.receive()) == (None, None)
