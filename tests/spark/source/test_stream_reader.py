"""The planning side of a streaming query, called as Spark calls it but without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from topic_content import delete_before

from kohort.client.backoff import Backoff
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.spark.options.source import for_batch, parse
from kohort.spark.options.values import OptionError
from kohort.spark.source import commits, pacing
from kohort.spark.source.data_source import KohortReader
from kohort.spark.source.planner import DataLoss
from kohort.spark.source.positions import MARK, START, Json, ids_in
from kohort.spark.source.stream_reader import KohortStreamReader
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

ALL = ReadAllAvailable()


@pytest.fixture
def readers(server: KohortServer) -> Iterator[Any]:
    """Makes readers, each as if in a new process."""
    made: list[KohortStreamReader] = []

    def make(**options: str) -> KohortStreamReader:
        given = {"kafka.bootstrap.servers": server.bootstrap_servers, "fetchOffset.retryIntervalMs": "0"}
        if not {"subscribePattern", "assign"} & set(options):
            given["subscribe"] = "t"
        given |= {name.replace("_", "."): value for name, value in options.items()}
        made.append(KohortStreamReader(parse(given)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def fill(cluster: Cluster, records: int, partition: int = 0) -> None:
    cluster.produce("t", partition, [NewRecord(b"k", b"v", 0)] * records)


def ranges(tasks: Any) -> list[tuple[int, int, int]]:
    return [(task.partition, task.start, task.end) for task in tasks]


def bare(end: Json) -> Json:
    """The end of a batch without the ids of its topics."""
    return {name: value for name, value in end.items() if name.startswith(MARK) or MARK not in name}


def plan(reader: KohortStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    """The tasks of a batch, asked for as Spark does: the batch before is committed first."""
    reader.commit(start)
    return ranges(reader.partitions(start, end))


def committed(cluster: Cluster) -> dict[int, int]:
    return {partition: entry.offset for (_, partition), entry in cluster.committed("g").items()}


def test_only_what_spark_has_finished_is_committed(readers: Any, cluster: Cluster) -> None:
    cluster.create_topic("t", 2)
    fill(cluster, 10)
    reader = readers(group_id="g", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    assert reader.latestOffset(start, ReadMaxRows(4)) == end
    assert committed(cluster) == {}
    following = reader.latestOffset(end, ReadMaxRows(4))
    assert (committed(cluster), bare(following)) == ({0: 4, 1: 0}, {"t": {"0": 8, "1": 0}})
    reader.commit(end)
    assert committed(cluster) == {0: 4, 1: 0}
    # A restart has the end of a finished batch for its start, and never asks for an initial offset.
    readers(group_id="g", startingOffsets="earliest").latestOffset(following, ALL)
    assert committed(cluster) == {0: 8, 1: 0}


def test_an_available_now_run_ends_where_the_logs_ended_when_it_began(readers: Any, cluster: Cluster) -> None:
    """Its last batch does not wait for more records, however few it has."""
    cluster.create_topic("t", 1)
    fill(cluster, 10)
    reader = readers(startingOffsets="earliest", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="6")
    reader.prepareForTriggerAvailableNow()
    fill(cluster, 10)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    assert end["t"] == {"0": 6}
    end = reader.latestOffset(end, ReadMaxRows(6))
    assert end["t"] == {"0": 10}
    assert reader.latestOffset(end, ReadMaxRows(6)) is end
    assert reader.reportLatestOffset() == {"t": {"0": 10}}


def test_a_commit_that_fails_is_tried_again(
    readers: Any,
    cluster: Cluster,
    server: KohortServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A group with a member refuses commits of others; the query continues nevertheless."""
    from confluent_kafka import Consumer

    monkeypatch.setattr(commits, "COMMIT_RETRY_S", Backoff(0, 0))
    cluster.create_topic("t", 1)
    fill(cluster, 3)
    member = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
    try:
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(0.1)
        reader = readers(group_id="g", startingOffsets="earliest")
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.latestOffset(end, ALL) is end
        assert reader.latestOffset(end, ALL) is end
    finally:
        member.close()
    assert capsys.readouterr().err.count("could not commit to the group g") == 1
    reader.latestOffset(end, ALL)
    assert committed(cluster) == {0: 3}


def test_a_commit_that_is_not_allowed_stops_the_query(
    readers: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kohort.client.errors import ServerError, server_error
    from kohort.wire.errors import ErrorCode

    cluster.create_topic("t", 1)
    reader = readers(group_id="g")

    def refuse(*_: object) -> None:
        raise server_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "OffsetCommit")

    monkeypatch.setattr(Cluster, "commit", refuse)
    with pytest.raises(ServerError, match="GROUP_AUTHORIZATION_FAILED"):
        reader.commit({"t": {"0": 0}})


def test_a_batch_waits_for_enough_records_but_not_for_ever(
    readers: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(pacing.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pacing.time, "sleep", lambda seconds: None)
    cluster.create_topic("t", 1)
    fill(cluster, 2)
    reader = readers(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert first["t"] == {"0": 2}  # nothing has been delayed yet, and Spark's source does not begin with it
    fill(cluster, 4)
    assert reader.latestOffset(first, limit) is first
    assert bare(reader.latestOffset(first, ALL)) == {"t": {"0": 6}}  # a once trigger takes what there is
    reader = readers(startingOffsets="earliest", minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(start, limit)
    fill(cluster, 4)
    assert (limit, first["t"]) == (ReadMaxRows(6), {"0": 6})
    assert reader.latestOffset(first, limit) is first
    fill(cluster, 1)
    assert bare(reader.latestOffset(first, limit)) == {"t": {"0": 11}}
    fill(cluster, 1)
    late = {"t": {"0": 11}}
    assert reader.latestOffset(late, limit) is late
    now[0] += 15 * 60
    assert bare(reader.latestOffset(late, limit)) == {"t": {"0": 12}}


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """Servers with a topic whose records have times, other topics, and a group with committed offsets."""
    with KohortServer() as server, Cluster(server.bootstrap_servers) as cluster:
        for topic, partitions in (("t", 2), ("orders", 1), ("my-orders-2", 1)):
            cluster.create_topic(topic, partitions)
        for n in range(4):
            cluster.produce("t", 0, [NewRecord(b"k", b"v", 1_000 * n)])
        cluster.produce("t", 1, [NewRecord(b"k", b"v", 500)])
        cluster.commit("g", {("t", 0): 2})  # makes __consumer_offsets, which no pattern matches
        cluster.commit("beyond", {("t", 0): 6})
        yield server.bootstrap_servers


def each(*offsets: int) -> dict[str, dict[str, int]]:
    return {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, each(4, 1)),
        ({"startingOffsets": "earliest"}, each(0, 0)),
        ({"group.id": "g"}, each(2, 0)),
        ({"group.id": "g", "startingOffsets": "group"}, each(2, 0)),
        ({"group.id": "g", "startingOffsets": "group-or-latest"}, each(2, 1)),
        ({"kafka.group.id": "g"}, each(4, 1)),
        ({"group.id": "beyond", "failOnDataLoss": "false"}, each(4, 0)),
        ({"startingTimestamp": "1500", "startingOffsetsByTimestampStrategy": "latest"}, each(2, 1)),
        ({"startingTimestamp": "0", "startingOffsetsByTimestamp": "{}", "startingOffsets": "latest"}, each(0, 0)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":2001,"1":400}}', "startingOffsets": "latest"}, each(3, 0)),
        ({"subscribePattern": "order"}, {"orders": {"0": 0}, "my-orders-2": {"0": 0}}),
        ({"subscribePattern": "^o|^__"}, {"orders": {"0": 0}}),
        ({"subscribePattern": ".*"}, {"orders": {"0": 0}, "my-orders-2": {"0": 0}, **each(4, 1)}),
        ({"startingOffsets": '{"t":{"0":7,"1":0}}'}, "startingOffsets asks for offset 7 of t-0, .* log holds 0 to 4"),
        ({"group.id": "beyond"}, "the group beyond has committed offset 6 of t-0, but its log holds 0 to 4"),
        ({"group.id": "g", "startingOffsets": "group-or-fail"}, "the group g has no committed offset of t-1"),
        ({"startingOffsets": '{"t":{"0":0,"1":0,"2":0}}'}, "differ in t-2"),
        ({"startingTimestamp": "1500"}, r"startingTimestamp: no record is at or after that time in t-1 \(.*=latest"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":2001}}'},
            r"startingOffsetsByTimestamp must name every partition.*t-1",
        ),
    ],
)
def test_where_a_query_begins(filled: str, options: dict[str, str], begins: Any) -> None:
    topics = {} if "subscribePattern" in options else {"subscribe": "t"}
    reader = KohortStreamReader(parse({"kafka.bootstrap.servers": filled, **topics, **options}))
    try:
        if isinstance(begins, str):
            with pytest.raises(DataLoss if "log holds" in begins else OptionError, match=begins):
                reader.initialOffset()
        else:
            assert reader.initialOffset() == begins
    finally:
        reader.stop()


def test_a_batch_read_that_ends_before_its_start_is_refused(cluster: Cluster, server: KohortServer) -> None:
    cluster.create_topic("t", 1)
    for n in range(4):
        cluster.produce("t", 0, [NewRecord(b"k", b"v", 1_000 * n)])
    given = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "t", "startingTimestamp": "3000"}
    assert ranges(KohortReader(for_batch(given)).partitions()) == [(0, 3, 4)]
    with pytest.raises(OptionError, match="t-0 would be read from offset 3 back to 1"):
        KohortReader(for_batch(given | {"endingTimestamp": "1000"})).partitions()
    with pytest.raises(OptionError, match=r"assign names t-1; t has 1 partitions"):
        KohortReader(for_batch({**given, "subscribe": "", "assign": '{"t":[0,1]}'})).partitions()


def test_a_recreated_topic_of_the_same_length_is_recognised_by_its_id(
    readers: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def anew() -> None:
        cluster.delete_topic("t")
        cluster.create_topic("t", 1)
        fill(cluster, 6)

    cluster.create_topic("t", 1)
    fill(cluster, 4)
    careful, careless = readers(), readers(failOnDataLoss="false")
    start = {"t": {"0": 2}}
    reached = careful.latestOffset(start, ALL)
    assert careless.latestOffset(start, ALL) == reached
    assert bare(reached) == {"t": {"0": 4}}
    anew()
    # A supervisor that starts the query again, from the same checkpoint, does not get past the loss.
    for query in (careful, careful, readers(), readers()):
        with pytest.raises(
            DataLoss, match="t was deleted and created again; the query had reached offset 4 of partition 0"
        ):
            query.latestOffset(reached, ALL)
    end = careless.latestOffset(reached, ReadMaxRows(5))
    assert bare(end) == {"t": {"0": 5}, START: {"t": {"0": 0}}}
    assert ids_in(end).keys() == ids_in(reached).keys() == {"t"}
    assert ids_in(end) != ids_in(reached)
    assert plan(readers(failOnDataLoss="false"), reached, end) == [(0, 0, 5)]
    assert bare(careless.latestOffset(end, ALL)) == {"t": {"0": 6}}
    assert capsys.readouterr().err.count("data loss: t was deleted and created again") == 1


def test_a_planned_batch_of_a_recreated_topic_is_not_read_from_the_new_one(
    readers: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The query ended between the planning of the batch and its end."""
    cluster.create_topic("t", 1)
    fill(cluster, 4)
    start = {"t": {"0": 0}}
    end = readers().latestOffset(start, ALL)
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    fill(cluster, 6)
    for _ in range(2):
        with pytest.raises(DataLoss, match="t was deleted and created again before the query had read what it"):
            plan(readers(), start, end)
    careless = readers(failOnDataLoss="false")
    assert plan(careless, start, end) == []
    following = careless.latestOffset(end, ALL)
    assert bare(following) == {"t": {"0": 6}, START: {"t": {"0": 0}}}
    assert plan(careless, end, following) == [(0, 0, 6)]


def test_a_checkpoint_without_topic_ids_goes_on(readers: Any, cluster: Cluster) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, 4)
    end = readers().latestOffset({"t": {"0": 2}}, ALL)
    assert bare(end) == {"t": {"0": 4}}
    assert ids_in(end) == {"t": cluster.topics(["t"])["t"].topic_id}


def test_a_restart_does_not_commit_offsets_of_a_topic_that_was_recreated(readers: Any, cluster: Cluster) -> None:
    """The group has lost its offsets with the topic; a start from the group must not skip the new topic's records."""
    cluster.create_topic("t", 1)
    fill(cluster, 4)
    reached = readers(group_id="g").latestOffset({"t": {"0": 2}}, ALL)
    assert committed(cluster) == {0: 2}
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    for loss in ("true", "false"):
        query = readers(group_id="g", failOnDataLoss=loss)
        if loss == "true":
            with pytest.raises(DataLoss, match="t was deleted and created again"):
                query.latestOffset(reached, ALL)
        else:
            end = query.latestOffset(reached, ALL)
        assert committed(cluster) == {}
    assert query.latestOffset(end, ALL) is end
    assert committed(cluster) == {0: 0}


def test_a_truncated_log_is_loss_and_then_continues(
    readers: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("t", 1)
    fill(cluster, 4)
    reached = {"t": {"0": 9}}
    with pytest.raises(DataLoss, match="t-0 ends at offset 4, below 9, which the query has reached"):
        readers().latestOffset(reached, ALL)
    careless = readers(failOnDataLoss="false")
    end = careless.latestOffset(reached, ReadMaxRows(3))
    assert bare(end) == {"t": {"0": 4}, START: {"t": {"0": 4}}}
    assert plan(careless, reached, end) == []
    fill(cluster, 2)
    assert bare(careless.latestOffset(end, ReadMaxRows(3))) == {"t": {"0": 6}}
    assert capsys.readouterr().err.count("data loss: t-0 ends") == 1


def test_an_unreachable_cluster_is_reported_soon(readers: Any) -> None:
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    reader = readers(kafka_bootstrap_servers=address, kafka_default_api_timeout_ms="300")
    with pytest.raises(KafkaError, match=f"cannot reach the cluster: {address}: connection refused"):
        reader.initialOffset()


def test_a_broker_that_is_gone_for_a_while_is_waited_for(
    readers: Any, cluster: Cluster, server: KohortServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is down during a task, a planning and a commit."""
    cluster.create_topic("t", 1)
    for _ in range(3):
        cluster.produce("t", 0, [NewRecord(b"k", b"v" * 100, 0)] * 30)
    one_batch = "1024"  # bytes; a whole record batch comes all the same
    reader = readers(group_id="g", startingOffsets="earliest", kafka_max_partition_fetch_bytes=one_batch)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (task,) = reader.partitions(start, end)
    fetch_ahead, positions = Cluster.fetch_ahead, []
    returns: list[threading.Timer] = []

    def lose_the_broker() -> None:
        server.kill()
        returns.append(threading.Timer(0.3, server.start))
        returns[-1].start()

    def fetch_and_lose(cluster: Cluster, wanted: dict[Any, int], **limits: Any) -> Any:
        if wanted["t", 0] and not returns:
            lose_the_broker()
        positions.append(wanted["t", 0])
        return fetch_ahead(cluster, wanted, **limits)

    monkeypatch.setattr(Cluster, "fetch_ahead", fetch_and_lose)
    assert sum(batch.num_rows for batch in reader.read(task)) == 90
    assert positions[:2] == [0, 30]
    returns[-1].join()
    lose_the_broker()
    assert reader.latestOffset(end, ALL) is end
    returns[-1].join()
    assert committed(cluster) == {0: 90}


def test_retention_under_a_query(readers: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Records deleted between planning a batch and reading it."""
    cluster.create_topic("t", 1)
    for _ in range(4):
        fill(cluster, 5)
    careful, careless = readers(startingOffsets="earliest"), readers(startingOffsets="earliest", failOnDataLoss="false")
    start = careful.initialOffset()
    end = careful.latestOffset(start, ALL)
    delete_before(cluster, "t", 0, 12)
    (task,) = careful.partitions(start, end)
    with pytest.raises(DataLoss, match="t-0: offset 0 is not in the log, which holds 12 to 20"):
        list(careful.read(task))
    offsets = [offset for batch in careless.read(task) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(12, 20))
    assert "data loss: t-0: offset 0 is not in the log" in capsys.readouterr().err
