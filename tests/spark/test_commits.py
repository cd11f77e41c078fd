"""What a planning process commits to its group, without Spark: the last batch, others in the group, who it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.client.groups import Committed
from kohort.client.holders import Holder, holder_of
from kohort.spark.checkpoint import finished, is_finished, query_and_batch
from kohort.spark.commits import Commits
from kohort.spark.identity import Tidings, tell
from kohort.spark.options import parse
from kohort.spark.plan import Planner
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
def commits(server: KohortServer, cluster: Cluster, tmp_path: Path) -> Iterator[Commits]:
    cluster.create_topic("t", 1)
    cluster.produce("t", 0, [NewRecord(b"k", b"v", 0)] * 3)
    options = parse(
        {
            "kafka.bootstrap.servers": server.bootstrap_servers,
            "subscribe": "t",
            "group.id": "g",
            "checkpointLocation": f"file:{tmp_path}",
        }
    )
    planner = Planner(options)
    made = Commits(options, lambda: planner)
    yield made
    made.close()
    planner.close()


def test_the_last_batch_is_committed_only_if_the_checkpoint_has_it(
    commits: Commits, cluster: Cluster, tmp_path: Path
) -> None:
    commits.finish()
    commits.plan(END)
    commits.finish()
    assert cluster.committed("g") == {}
    batch(tmp_path, 0, [{"other": {"0": 9}}, END], done=False)
    commits.finish()
    assert cluster.committed("g") == {}
    batch(tmp_path, 0, [{"other": {"0": 9}}, END], done=True)
    commits.finish()
    entry = cluster.committed("g")["t", 0]
    assert entry.offset == 3
    holder = holder_of(entry.metadata)
    assert holder is not None
    assert (holder.query, holder.batch) == ("0f00", 0)
    # What is committed is left alone.
    cluster.commit("g", {("t", 0): 1})
    commits.finish()
    assert cluster.committed("g")["t", 0].offset == 1


def test_a_checkpoint_that_cannot_be_read_is_a_warning(
    commits: Commits, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch(tmp_path, 0, [END], done=True)
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{")
    commits.plan(END)
    commits.finish()
    assert "the last finished batch is not committed to the group g" in capsys.readouterr().err
    assert query_and_batch("nowhere://at/all") == (None, None)
    assert finished("nowhere://at/all") is None
    assert finished(tmp_path / "absent") is None
    with pytest.raises(ValueError):
        is_finished("nowhere://at/all", END)


def test_somebody_else_in_the_group_is_told(
    commits: Commits, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    commits.commit({("t", 0): 1})
    assert cluster.committed("g")["t", 0].offset == 1
    cluster.commit("g", {("t", 0): Committed(3, -1, Holder("aa", "thief").metadata())})
    commits.commit({("t", 0): 2})
    assert cluster.committed("g")["t", 0].offset == 2
    told = capsys.readouterr().err
    assert "somebody else commits to the group g: t-0 was set to 3 by Spark query thief (aa), this query had" in told
    cluster.commit("g", {("t", 0): 0})
    commits.commit({("t", 0): 3})
    assert "was set to 0 by a program that does not say who it is" in capsys.readouterr().err


def test_what_the_group_has_is_not_written_again(commits: Commits, cluster: Cluster) -> None:
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
    tidings = Tidings("127.0.0.1:9")
    try:
        address = tidings.reply_to
        assert address is not None
        assert address.host == "127.0.0.1"
        assert tidings.hear() is None
        tell(address._replace(token="guessed"), PROPERTIES.get)
        assert tidings.hear() is None
        tell(address, PROPERTIES.get)
        heard = Holder("0f00", "two\nlines", "1f00", 7, "app")
        assert tidings.hear() == heard
        assert tidings.hear() == heard
        tell(address, {**PROPERTIES, "spark.job.description": "id = 0f00\nrunId = 1f00\nbatch = init"}.get)
        tell(address, {"streaming.sql.batchId": "8"}.get)
        last = tidings.hear()
        assert last is not None
        assert (last.batch, last.name) == (8, None)
    finally:
        tidings.close()
    tell(address, PROPERTIES.get)  # nobody listens any more


def test_where_nothing_can_be_heard_nothing_is_said() -> None:
    tidings = Tidings("no.such.host.invalid:9")
    assert (tidings.reply_to, tidings.hear()) == (None, None)
