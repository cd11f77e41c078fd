"""Queries that share a group, run as Spark runs them but without Spark: hand-over, loss, restarts."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import micro_batches
import pytest
from micro_batches import Query, Row, Running, rows, unfinished, until

from kohort.client.cluster import Cluster
from kohort.spark.options.source import for_stream
from kohort.spark.options.values import OptionError
from kohort.spark.source.positions import BATCH, START
from kohort.spark.source.stream_reader import KohortStreamReader
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])
PARTITIONS = 8


@pytest.fixture
def server() -> Iterator[KohortServer]:
    with KohortServer(
        group_min_session_timeout_ms=100,
        group_consumer_min_session_timeout_ms=100,
        group_consumer_min_heartbeat_interval_ms=100,
    ) as running:
        yield running


def options(server: KohortServer, **more: str) -> dict[str, str]:
    base = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", "group.id": "g"}
    return base | {"groupMode": "member"} | {name.replace("_", "."): value for name, value in more.items()}


def fill(cluster: Cluster, count: int, partitions: int = PARTITIONS, *, create: bool = False) -> None:
    if create:
        cluster.create_topic("t", partitions)
    for partition in range(partitions):
        cluster.produce("t", partition, [NewRecord(None, b"v", 0)] * (count // partitions))


def committed(cluster: Cluster) -> int:
    return sum(entry.offset for entry in cluster.committed("g").values())


@pytest.fixture
def run(server: KohortServer, tmp_path: Path) -> Iterator[Any]:
    made: list[Running] = []

    def make(name: str, pause: Callable[[], None] | None = None, **more: str) -> Running:
        made.append(Running(Query(tmp_path / name, options(server, **more), pause)))
        return made[-1]

    yield make
    for running in made:
        running.done.set()
    for running in made:
        with contextlib.suppress(BaseException):
            running.stop()


def exactly(count: int, *directories: Path, also: Iterable[Row] = ()) -> None:
    """Every record once, over all sinks."""
    found = Counter([*also, *(row for directory in directories for row in rows(directory))])
    assert (len(found), sum(found.values())) == (count, count)


# -- sharing


@BOTH
def test_two_queries_share_and_every_record_is_in_one_of_them(
    run: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    fill(cluster, 8_000, create=True)
    given = {"kafka_group_protocol": protocol, "maxOffsetsPerTrigger": "500"}
    a = run("a", **given)
    until(lambda: committed(cluster) > 1_000)
    b = run("b", **given)
    until(lambda: len(a.mine) == len(b.mine) == 4)
    had = a.mine
    assert not had & b.mine
    fill(cluster, 800)
    server.restart()
    fill(cluster, 800)
    until(lambda: committed(cluster) == 9_600)
    assert (a.mine, len(b.mine)) == (had, 4), "a restarted coordinator moves nothing"
    a.stop()
    until(lambda: len(b.mine) == 8)
    fill(cluster, 800)
    until(lambda: committed(cluster) == 10_400)
    b.stop()
    exactly(10_400, tmp_path / "a", tmp_path / "b")
    assert cluster.describe_groups(["g"])["g"].members == ()


@BOTH
def test_a_batch_in_progress_is_finished_before_its_partitions_are_given_up(
    run: Any, cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    fill(cluster, 80, create=True)
    go_on = threading.Event()
    a = run("a", go_on.wait, kafka_group_protocol=protocol)
    until(lambda: a.query.batch == 0)
    b = run("b", kafka_group_protocol=protocol)
    until(lambda: len(cluster.describe_groups(["g"])["g"].members) == 2)
    until(lambda: a.leaving)
    assert (b.mine, committed(cluster)) == (set(), 0)
    go_on.set()
    until(lambda: len(b.mine) == 4)
    assert committed(cluster) == 80
    a.stop()
    b.stop()
    exactly(80, tmp_path / "a", tmp_path / "b")


def test_a_batch_that_takes_too_long_loses_its_partitions_and_is_not_committed(
    run: Any, cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(cluster, 80, create=True)
    go_on = threading.Event()
    limit = {"kafka_max_poll_interval_ms": "500"}
    a = run("a", go_on.wait, **limit)
    until(lambda: a.query.batch == 0)
    b = run("b", **limit)
    until(lambda: b.mine and rows(tmp_path / "b"))
    assert "the group g has taken away t-0, t-1" in capfd.readouterr().err
    go_on.set()  # the zombie's tasks are refused what is not theirs any more
    until(lambda: committed(cluster) == 80)
    fill(cluster, 80)
    until(lambda: committed(cluster) == 160)
    a.stop()
    b.stop()
    exactly(160, tmp_path / "a", tmp_path / "b")
    assert "the group g has taken the partition away (" in capfd.readouterr().err


@pytest.mark.long
def test_300_000_records_and_queries_that_come_and_go(
    run: Any, server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    """One of them runs in a process of its own, as the planning processes of two applications do."""
    total = 300_000
    fill(cluster, total, create=True)
    with process(server, tmp_path / "b", "maxOffsetsPerTrigger=10000") as other:
        until(lambda: committed(cluster) > 0)
        a = run("a", maxOffsetsPerTrigger="10000")
        until(lambda: committed(cluster) > total * 0.4 and rows(tmp_path / "a"))
        a.stop()
        until(lambda: committed(cluster) > total * 0.6)
        a = run("a", maxOffsetsPerTrigger="10000")
        until(lambda: committed(cluster) > total * 0.8)
        stop(other, tmp_path / "b")
        until(lambda: committed(cluster) == total)
        a.stop()
    exactly(total, tmp_path / "a", tmp_path / "b")


def test_partitions_refused_to_tasks_are_not_committed_before_the_member_learns_it(
    run: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """A copy of a heartbeat that comes late, as a network may make one, gives partitions away that a batch still reads.
    Its member waits for the batch, and takes them for its own; its commits are not fenced."""
    fill(cluster, 80, create=True)
    a_goes_on, b_goes_on = threading.Event(), threading.Event()
    given = {"kafka_group_protocol": "consumer"}
    a = run("a", a_goes_on.wait, **given)
    until(lambda: a.query.batch == 0)
    member = a.query.reader.membership
    b = run("b", b_goes_on.wait, **given)
    until(lambda: len(a.leaving) == 4)
    leaving = a.leaving
    kept = tuple(sorted(index for _, index in member.owned.keys() - leaving))
    acknowledge(cluster, member, kept)
    until(lambda: b.mine == leaving and b.query.batch == 0)
    assert committed(cluster) == 0
    a_goes_on.set()
    until(lambda: unfinished(tmp_path / "a") is None and committed(cluster) > 0)
    until(lambda: not a.leaving)
    # b reads the ranges refused to a's tasks from their start: if b ends now, nothing is skipped.
    there = cluster.committed("g", leaving)
    assert {place: there[place].offset for place in leaving if place in there} == dict.fromkeys(leaving, 0)
    b_goes_on.set()
    until(lambda: committed(cluster) == 80)
    a.stop()
    b.stop()
    exactly(80, tmp_path / "a", tmp_path / "b")


def acknowledge(cluster: Cluster, member: Any, kept: tuple[int, ...]) -> None:
    """Report in a member's name that it has given up all partitions except `kept`."""
    topic = cluster.topics(["t"])["t"]
    assert topic.topic_id is not None
    owned = HeartbeatTopicPartitions(topic_id=topic.topic_id, partitions=kept)
    reader = member.reader
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=reader.member, member_epoch=reader.epoch, topic_partitions=(owned,)
    )
    answer: ConsumerGroupHeartbeatResponse = cluster._router.at_coordinator(
        "g", lambda connection: connection.request(request, ConsumerGroupHeartbeatResponse)
    )
    assert answer.error_code == 0, answer


@BOTH
def test_partitions_are_handed_over_before_a_slow_trigger(
    run: Any, server: KohortServer, cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    """Spark does not call before the next trigger; its commit log says that the batch is done."""
    fill(cluster, 80, create=True)
    slow = Query(tmp_path / "a", options(server, kafka_group_protocol=protocol))
    until(slow.step)
    assert committed(cluster) == 0
    b = run("b", kafka_group_protocol=protocol)
    until(lambda: len(b.mine) == 4)
    slow.reader.stop()
    until(lambda: len(b.mine) == 8)
    assert committed(cluster) == 80
    b.stop()
    exactly(80, tmp_path / "a", tmp_path / "b")


# -- kills and restarts


@contextlib.contextmanager
def process(server: KohortServer, directory: Path, *settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A query in a process of its own, which ends at the file `stop`."""
    script = micro_batches.__file__
    command = [sys.executable, script, server.bootstrap_servers, "g", str(directory), "subscribe=t", *settings]
    with subprocess.Popen(command) as running:
        try:
            yield running
        finally:
            running.kill()


def stop(running: subprocess.Popen[bytes], directory: Path) -> None:
    (directory / "stop").touch()
    assert running.wait(60) == 0


@BOTH
@pytest.mark.parametrize("instance", [None, "driver-a"])
def test_a_killed_query_loses_nothing(
    run: Any, cluster: Cluster, tmp_path: Path, server: KohortServer, protocol: str, instance: str | None
) -> None:
    """A query is killed in the middle of a batch and started again; meanwhile the other one continues."""
    session = "1500" if instance is None else "30000"
    cluster.alter_group_configs("g", {"consumer.session.timeout.ms": session, "consumer.heartbeat.interval.ms": "200"})
    cluster.create_topic("t", PARTITIONS)
    given = {"kafka.group.protocol": protocol, "maxOffsetsPerTrigger": "800", "kafka.session.timeout.ms": session}
    named = given | ({"kafka.group.instance.id": instance} if instance else {})
    a, b = tmp_path / "a", tmp_path / "b"
    other = run("b", **given)
    with process(server, a, *(f"{name}={value}" for name, value in named.items())) as killed:
        until(lambda: len(other.mine) == 4)
        a.mkdir(exist_ok=True)
        (a / "hold").touch()
        fill(cluster, 8_000)
        until(lambda: unfinished(a) is not None)
        killed.kill()
        killed.wait()
    if instance is None:
        until(lambda: committed(cluster) == 8_000)  # its session ended, and b went on where it was
    back = run("a", **named)
    until(lambda: committed(cluster) == 8_000 and unfinished(a) is None)
    back.stop()
    other.stop()
    found = Counter(rows(a) + rows(b))
    assert len(found) == 8_000
    # The batch in progress: a replays it, and b has read it meanwhile. A process that returns in time keeps the batch.
    twice = sum(found.values()) - 8_000
    assert 0 < twice <= 800 if instance is None else twice == 0


def test_a_paused_driver_adds_nothing(run: Any, cluster: Cluster, tmp_path: Path, server: KohortServer) -> None:
    """Stopped for longer than its session, between the planning of a batch and its tasks: these are refused."""
    cluster.alter_group_configs("g", {"consumer.session.timeout.ms": "1500", "consumer.heartbeat.interval.ms": "200"})
    cluster.create_topic("t", PARTITIONS)
    a, b = tmp_path / "a", tmp_path / "b"
    settings = {"kafka.session.timeout.ms": "1500"}
    with process(server, a, "kafka.session.timeout.ms=1500") as zombie:
        until(lambda: (a / "sink").is_dir() and cluster.describe_groups(["g"])["g"].members)
        (a / "hold").touch()
        fill(cluster, 80)
        until(lambda: unfinished(a) is not None)
        zombie.send_signal(signal.SIGSTOP)
        other = run("b", **settings)
        until(lambda: committed(cluster) == 80)
        (a / "hold").unlink()
        zombie.send_signal(signal.SIGCONT)
        until(lambda: unfinished(a) is None)
        fill(cluster, 80)
        until(lambda: committed(cluster) == 160)
        stop(zombie, a)
    other.stop()
    exactly(160, a, b)


@BOTH
@pytest.mark.parametrize("instance", [None, "driver-a"])
def test_a_restart_repeats_the_batch_as_it_was_and_takes_over(
    server: KohortServer, cluster: Cluster, tmp_path: Path, protocol: str, instance: str | None
) -> None:
    """The dead process stays in the group for 45 s: no process waits for that, and none reads its batch again."""
    fill(cluster, 20, 2, create=True)
    given = options(server, kafka_group_protocol=protocol)
    given |= {"kafka.group.instance.id": instance} if instance else {}

    class Killed(Exception):
        pass

    def kill() -> None:
        raise Killed

    first = Query(tmp_path / "a", given, kill)
    with pytest.raises(Killed):
        until(first.step)
    first.fall_silent()
    assert first.end[START] == {"t": {"0": 0, "1": 0}}
    assert (first.end["t"], first.end[BATCH]["number"]) == ({"0": 10, "1": 10}, 1)
    fill(cluster, 20, 2)
    again = Query(tmp_path / "a", given)
    assert sorted(rows(tmp_path / "a")) == [("t", p, offset) for p in (0, 1) for offset in range(10)]
    assert committed(cluster) == 0
    until(lambda: not again.step() and committed(cluster) == 40)
    exactly(40, tmp_path / "a")
    again.reader.stop()


# -- where it begins, and where it ends


def test_an_available_now_run_ends_with_what_was_there(server: KohortServer, cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, 80, create=True)
    query = Query(tmp_path / "a", options(server, maxOffsetsPerTrigger="50"))
    query.reader.prepareForTriggerAvailableNow()
    fill(cluster, 80)
    assert [query.step() for _ in range(3)] == [True, True, False]
    assert committed(cluster) == 80
    assert query.reader.reportLatestOffset()["t"] == {str(p): 10 for p in range(PARTITIONS)}
    query.reader.stop()
    assert cluster.describe_groups(["g"])["g"].members == ()
    exactly(80, tmp_path / "a")


def test_a_query_begins_at_the_groups_offsets_and_else_at_starting_offsets(
    server: KohortServer, cluster: Cluster, tmp_path: Path
) -> None:
    fill(cluster, 20, 2, create=True)
    cluster.commit("g", {("t", 0): 7})
    query = Query(tmp_path / "a", options(server, startingOffsets="latest"))
    until(query.step)
    assert sorted(rows(tmp_path / "a")) == [("t", 0, 7), ("t", 0, 8), ("t", 0, 9)]
    # The start of the other partition is committed, too, because its next owner must not begin later.
    until(lambda: not query.step() and committed(cluster) == 20)
    query.reader.stop()


def test_a_plain_consumer_shares_the_group(run: Any, cluster: Cluster, server: KohortServer, tmp_path: Path) -> None:
    fill(cluster, 160, create=True)
    a = run("a", maxOffsetsPerTrigger="20")
    until(lambda: committed(cluster) > 0)
    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read = []
    try:

        def poll() -> bool:
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                read.append((message.topic(), message.partition(), message.offset()))
                consumer.commit(message, asynchronous=False)
            return len(consumer.assignment()) == 4

        until(poll)
        fill(cluster, 160)
        until(lambda: [poll()] and committed(cluster) == 320)
    finally:
        consumer.close()
    until(lambda: len(a.mine) == 8)
    a.stop()
    exactly(320, tmp_path / "a", also=read)
    assert read


def test_a_query_becomes_a_member(server: KohortServer, cluster: Cluster, tmp_path: Path) -> None:
    """On the checkpoint of one that was none, with a batch that it did not finish."""
    fill(cluster, 20, 2, create=True)
    cluster.commit("g", {("t", 0): 4, ("t", 1): 4})
    for name in ("offsets", "commits", "sink"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"t": {"0": 4, "1": 4}}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"t": {"0": 7, "1": 4}}')
    query = Query(tmp_path, options(server))
    assert sorted(rows(tmp_path)) == [("t", 0, 4), ("t", 0, 5), ("t", 0, 6)]
    until(lambda: not query.step() and committed(cluster) == 20)
    query.reader.stop()
    exactly(12, tmp_path)


# -- misuse


def test_contradictory_options_are_refused(server: KohortServer, cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such topic: t"):
        Query(tmp_path / "none", options(server)).step()
    cluster.create_topic("t", 1)
    strict = Query(tmp_path / "strict", options(server, startingOffsets="group-or-fail"))
    with pytest.raises(OptionError, match="group-or-fail: group g has no offset of t-0"):
        until(strict.step)
    strict.reader.stop()
    fill(cluster, 10, 1)
    query = Query(tmp_path / "a", options(server, maxOffsetsPerTrigger="4"))
    until(query.step)
    query.step()
    end = query.reader.latestOffset(query.end, query.limit)
    with pytest.raises(OptionError, match="asynchronous progress tracking"):
        query.reader.partitions(query.end, end)  # Spark has not called commit for the batch before
    query.reader.stop()
    alone = {name: value for name, value in options(server).items() if name != "groupMode"}
    with pytest.raises(OptionError, match="this checkpoint is of a query with groupMode=member"):
        KohortStreamReader(for_stream(alone)).latestOffset(query.end, query.limit)


def test_a_refused_membership_fails_the_query(server: KohortServer, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("t", 1)
    classic = {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "group.instance.id": "driver"}
    query = Query(tmp_path / "a", options(server, kafka_group_instance_id="driver", kafka_group_protocol="classic"))
    until(lambda: query.step() or query.reader.membership.owned)
    twin = confluent_kafka.Consumer(classic)
    twin.subscribe(["t"])
    try:
        with pytest.raises(Exception, match="another member has joined as 'driver'"):
            until(lambda: [twin.poll(0.05)] and query.step())
        # librdkafka's close() never returns if an assignment arrives during it.
        until(lambda: [twin.poll(0.05)] and twin.assignment())
    finally:
        twin.close()
        query.reader.stop()
