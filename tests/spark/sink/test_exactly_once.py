"""`delivery=exactly-once` without Spark: tasks that prepare, a driver that commits, and what dies in between.

A reader with read_committed has each row once, whatever happened. Against kohort, and against Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from micro_batches import until

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.client.records import next_position, records
from kohort.client.records.partitioner import partition_for_key
from kohort.client.wire.routing import Router
from kohort.spark.options.sink import SinkOptions, parse_sink
from kohort.spark.options.values import OptionError
from kohort.spark.sink import batch_commit, transactional_task
from kohort.spark.sink.failures import DeliveryFailed, NotCommitted
from kohort.spark.sink.ledger import PARTITIONS
from kohort.spark.sink.transactional_task import Identity, InTransaction, write
from kohort.testing import KohortServer

COLUMNS = frozenset({"key", "value"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KohortServer]:
    with KohortServer(offsets_topic_num_partitions=3) as running:
        yield running


@pytest.fixture
def other_cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


class Query:
    """A streaming query's writes to a topic, as Spark would call them."""

    def __init__(self, servers: str, cluster: Cluster, unique: str, **settings: str) -> None:
        self.topic = f"rows-{unique}"
        self.application = f"query-{unique}"
        self.cluster = cluster
        given = {"kafka.bootstrap.servers": servers, "topic": self.topic, "delivery": "exactly-once"}
        given |= {"txnAppId": self.application, "kafka.delivery.timeout.ms": "30000"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self.options: SinkOptions = parse_sink(given, streaming=True)
        cluster.create_topic(self.topic, 3)
        batch_commit.prepare(self.options)

    def task(self, batch: int, task: int, rows: Sequence[str], columns: frozenset[str] = COLUMNS) -> InTransaction:
        """An attempt of a task, whose rows have their value as their key."""
        data = pa.RecordBatch.from_pydict({"key": pa.array(rows, pa.string()), "value": pa.array(rows, pa.string())})
        with pytest.MonkeyPatch.context() as patch:
            identity = Identity(self.application, batch, task)
            patch.setattr(transactional_task, "identity_of", lambda _: identity)
            return write(self.options, columns, iter([data]))

    def prepare(self, batch: int, tasks: Sequence[Sequence[str]]) -> list[InTransaction]:
        return [self.task(batch, number, rows) for number, rows in enumerate(tasks)]

    def commit(self, batch: int, messages: Sequence[Any]) -> None:
        batch_commit.commit(self.options, messages, batch)

    def write(self, batch: int, tasks: Sequence[Sequence[str]]) -> None:
        self.commit(batch, self.prepare(batch, tasks))

    def settled(self) -> list[str]:
        """What read_committed sees once no transaction is open: Apache Kafka writes the markers after its answer."""
        until(self.is_settled, "no open transaction")
        return self.committed()

    def committed(self) -> list[str]:
        """The values below the last stable offsets, each as often as it is there."""
        found = []
        places = [(self.topic, index) for index in range(3)]
        ends = self.cluster.offsets(places, "latest", isolation="read_committed")
        positions = dict.fromkeys(places, 0)
        while left := {place: at for place, at in positions.items() if at < ends[place]}:
            for fetched in self.cluster.fetch(left, isolation="read_committed"):
                place = fetched.topic, fetched.partition
                for record in records(fetched, positions[place]):
                    assert record.key == record.value
                    assert record.key is not None
                    assert record.partition == partition_for_key(record.key, 3)
                    found.append(record.key.decode())
                positions[place] = next_position(fetched, positions[place])
        return sorted(found)

    def is_settled(self) -> bool:
        """True if no transaction is open in the topic."""
        places = [(self.topic, index) for index in range(3)]
        stable = self.cluster.offsets(places, "latest", isolation="read_committed")
        return stable == self.cluster.offsets(places, "latest")


@pytest.fixture
def query(servers: str, other_cluster: Cluster, unique: str) -> Iterator[Query]:
    yield Query(servers, other_cluster, f"{unique}-{id(other_cluster)}")
    transactional_task.close_router()


TWO = [["a1", "a2", "a3"], ["b1"]]
THREE = [["c1", "c2"], [], ["d1"]]
ALL = sorted([*TWO[0], *TWO[1], *THREE[0], *THREE[2]])


def test_rows_are_seen_when_the_driver_has_committed(query: Query) -> None:
    messages = query.prepare(0, TWO)
    assert query.committed() == []
    assert not query.is_settled()
    query.commit(0, messages)
    assert query.settled() == ["a1", "a2", "a3", "b1"]
    query.write(1, THREE)
    assert query.settled() == ALL
    query.write(2, [[], []])
    assert query.settled() == ALL


@pytest.mark.parametrize("version", [1, 2])
def test_the_connection_of_the_driver_is_older_than_those_of_the_tasks(
    version: int, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In version 1 a server takes an EndTxn on such a connection for one of an earlier transaction (decision 0018)."""
    with KohortServer(transaction_version=version) as own, Cluster(own.bootstrap_servers) as cluster:
        query = Query(own.bootstrap_servers, cluster, f"{unique}-{version}")
        of_driver = transactional_task._kept
        for batch, tasks in enumerate((TWO, THREE)):
            monkeypatch.setattr(transactional_task, "_kept", None)
            messages = query.prepare(batch, tasks)
            transactional_task.close_router()
            monkeypatch.setattr(transactional_task, "_kept", of_driver)
            query.commit(batch, messages)
        assert query.settled() == ALL
        monkeypatch.setattr(transactional_task, "_kept", None)
        messages = query.prepare(2, TWO)
        transactional_task.close_router()
        monkeypatch.setattr(transactional_task, "_kept", of_driver)
        batch_commit.abort(query.options, messages)
        assert query.settled() == ALL
        transactional_task.close_router()


def test_a_batch_that_was_written_and_not_recorded_is_not_written_again(query: Query) -> None:
    query.write(0, TWO)
    query.write(1, THREE)
    for again in (THREE, [["c1"], ["c2"], [], ["d1"]], [["c1", "c2", "d1"]]):  # divided in any way: all of it is there
        query.write(1, again)
        assert query.settled() == ALL
    query.write(2, [["e1"]])
    assert query.settled() == [*ALL, "e1"]


def test_a_batch_that_was_prepared_and_not_committed_is_written_once(query: Query) -> None:
    query.write(0, TWO)
    query.prepare(1, THREE)  # the driver dies
    query.write(1, THREE)
    assert query.settled() == ALL


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_driver_that_dies_between_commits(query: Query, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    """After the decision and some of the commits; the last case dies after all of them."""
    tasks = [["a1"], ["b1", "b2"], [], ["c1"]]
    _die_after(monkeypatch, query, tasks, done)
    query.write(0, tasks)
    assert query.settled() == ["a1", "b1", "b2", "c1"]
    query.write(1, [["d1"]])
    assert query.settled() == ["a1", "b1", "b2", "c1", "d1"]


def _die_after(monkeypatch: pytest.MonkeyPatch, query: Query, tasks: Sequence[Sequence[str]], done: int) -> None:
    """Batch 0 by a driver that ends after so many commits."""
    left = done

    class Died(Exception):
        pass

    end = batch_commit._commit

    def dying(*given: Any) -> None:
        nonlocal left
        if not left:
            raise Died
        left -= 1
        end(*given)

    messages = query.prepare(0, tasks)
    with monkeypatch.context() as patch:
        patch.setattr(batch_commit, "_commit", dying)
        if done < sum(1 for rows in tasks if rows):
            with pytest.raises(Died):
                query.commit(0, messages)
        else:
            query.commit(0, messages)


class Dead(BaseException):
    """The process of a driver or a task has ended: it does nothing more."""


@pytest.mark.parametrize("answered", [True, False])
def test_a_crash_at_any_request(query: Query, monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    """Each request of a batch in turn is the last one, before or after the cluster has handled it."""
    retrying = Router.retrying
    calls = 0

    def dying(router: Router, operation: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > last or (calls == last and not answered):
            raise Dead
        found = retrying(router, operation, **given)
        if calls == last:
            raise Dead
        return found

    expected: list[str] = []
    batch, last = 0, 0
    while calls >= last:
        batch, last, calls = batch + 1, last + 1, 0
        tasks = [[f"{batch} a", f"{batch} b"], [], [f"{batch} c"]]
        expected += [*tasks[0], *tasks[2]]
        transactional_task.close_router()
        with monkeypatch.context() as patch, suppress(Dead):
            patch.setattr(Router, "retrying", dying)
            query.write(batch, tasks)
        transactional_task.close_router()
        query.write(batch, tasks)
    assert last > 12
    assert query.settled() == sorted(expected)


def test_a_batch_written_in_part_must_be_divided_as_before(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [["a1"], ["b1", "b2"], ["c1"]]
    _die_after(monkeypatch, query, tasks, 1)
    messages = query.prepare(0, [["a1", "b1"], ["b2", "c1"]])
    with pytest.raises(NotCommitted, match="written in part by 3 tasks, and has 2 now"):
        query.commit(0, messages)
    batch_commit.abort(query.options, messages)
    assert query.settled() == ["a1"]
    query.write(0, tasks)
    assert query.settled() == ["a1", "b1", "b2", "c1"]


def test_a_batch_decided_and_not_begun_may_be_divided_in_another_way(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prepared rows of the first division are aborted, also those of tasks that the second one does not have."""
    messages = query.prepare(0, [[], ["a1"], ["b1"]])
    with monkeypatch.context() as patch:
        patch.setattr(batch_commit, "_commit", lambda *_: None)
        query.commit(0, messages)
    query.write(0, [["a1", "b1"]])
    with pytest.raises(NotCommitted, match="task 1 has ended"):
        # The first driver wakes up after its decision.
        batch_commit._commit(transactional_task.router_of(*_keys(query)), _prepared(messages[1]), "task 1")
    assert query.settled() == ["a1", "b1"]


def _keys(query: Query) -> tuple[Any, Any]:
    return query.options.exactly_once, query.options.security


def _prepared(message: InTransaction) -> Any:
    assert message.prepared is not None
    return message.prepared


def test_an_attempt_that_was_followed_by_another_is_fenced(query: Query) -> None:
    """A speculative copy, or a task that goes on although Spark has given it up."""
    zombie = query.task(0, 0, ["a1", "a2"])
    messages = [query.task(0, 0, ["a1", "a2"])]
    with pytest.raises(NotCommitted, match="second attempt of the task"):
        query.commit(0, [zombie])
    query.commit(0, messages)
    assert query.settled() == ["a1", "a2"]
    late = query.task(0, 0, ["a1", "a2"])  # it begins when the batch is done
    query.write(1, [["b1"]])
    with pytest.raises(NotCommitted, match="comes after batch 1"):
        query.commit(0, [late])
    assert query.settled() == ["a1", "a2", "b1"]


def test_a_zombie_that_still_writes_is_refused(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another attempt begins while rows are on the way."""
    finish = transactional_task._Sender.finish
    later: list[InTransaction] = []

    def overtaken(sender: Any) -> Any:
        if not later:
            later.append(InTransaction("", 0, 0, None))
            later.append(query.task(0, 0, ["a1"]))
        return finish(sender)

    monkeypatch.setattr(transactional_task._Sender, "finish", overtaken)
    with pytest.raises(KafkaError):
        query.task(0, 0, ["a1"])
    query.commit(0, [later[1]])
    assert query.settled() == ["a1"]


def test_an_older_driver_cannot_decide(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that pauses between what it looked up and its decision."""
    messages = query.prepare(0, [["a1"]])
    decide = batch_commit.Ledger.decide

    def paused(ledger: Any, decision: Any) -> None:
        monkeypatch.undo()
        query.write(0, [["a1"]])
        decide(ledger, decision)

    monkeypatch.setattr(batch_commit.Ledger, "decide", paused)
    with pytest.raises(KafkaError):
        query.commit(0, messages)
    assert query.settled() == ["a1"]


def test_a_failed_batch_leaves_nothing_open(query: Query) -> None:
    messages = query.prepare(0, TWO)
    batch_commit.abort(query.options, [*messages, None])
    assert query.settled() == []
    query.write(0, TWO)
    assert query.settled() == ["a1", "a2", "a3", "b1"]


def test_a_task_that_fails_leaves_nothing_open(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"key": ["x" * 300_000], "value": ["x" * 300_000]})  # at once on its way
        raise OSError("the rows end here")

    monkeypatch.setattr(transactional_task, "identity_of", lambda _: Identity(query.application, 0, 0))
    with pytest.raises(OSError, match="the rows end here"):
        write(query.options, COLUMNS, broken())
    assert query.settled() == []


def test_a_transaction_that_times_out_is_no_loss(query: Query) -> None:
    """The server aborts it; the batch is refused then, and written when it comes again."""
    messages = query.prepare(0, TWO)
    prepared = messages[0].prepared
    assert prepared is not None
    router = transactional_task.router_of(*_keys(query))
    batch_commit._abort(router, prepared)  # as the coordinator does, without waiting for the time
    with pytest.raises(NotCommitted, match=r"kafka\.transaction\.timeout\.ms"):
        query.commit(0, messages)
    batch_commit.abort(query.options, messages)
    query.write(0, TWO)
    assert query.settled() == ["a1", "a2", "a3", "b1"]


def test_more_tasks_than_the_ledger_has_partitions(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [[f"{number}"] for number in range(PARTITIONS + 2)]
    _die_after(monkeypatch, query, tasks, PARTITIONS + 1)
    query.write(0, tasks)
    assert query.settled() == sorted(rows[0] for rows in tasks)


def test_many_rows_are_several_batches_of_records(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_task, "BUFFER_BYTES", 5_000)
    small = Query.__new__(Query)
    small.__dict__ |= query.__dict__
    given = {"kafka.bootstrap.servers": query.options.exactly_once.bootstrap_servers}  # type: ignore[union-attr]
    given |= {"topic": query.topic, "delivery": "exactly-once", "txnAppId": query.application}
    given |= {"kafka.batch.size": "2000", "kafka.compression.type": "lz4"}
    small.options = parse_sink(given, streaming=True)
    rows = [f"row {number}" for number in range(2_000)]
    small.write(0, [rows])
    assert small.settled() == sorted(rows)
    log = small.cluster.offsets([(small.topic, index) for index in range(3)], "latest")
    assert sum(log.values()) == 2_000 + 3  # and a marker in each partition


def test_a_row_for_a_partition_that_does_not_exist_fails_the_task(query: Query) -> None:
    data = pa.RecordBatch.from_pydict({"value": ["v"], "partition": pa.array([7], pa.int32())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactional_task, "identity_of", lambda _: Identity(query.application, 0, 0))
        with pytest.raises(DeliveryFailed, match=f"a row for {query.topic}-7 was not delivered"):
            write(query.options, frozenset({"value", "partition"}), iter([data]))


def test_a_topic_that_cannot_be_the_ledger_is_refused(servers: str, other_cluster: Cluster, unique: str) -> None:
    name = f"narrow-{unique}-{id(other_cluster)}"
    other_cluster.create_topic(name, 2)
    given = {"kafka.bootstrap.servers": servers, "topic": "t", "delivery": "exactly-once", "ledgerTopic": name}
    with pytest.raises(OptionError, match=f"{name} has 2 partitions; it needs {PARTITIONS} partitions"):
        batch_commit.prepare(parse_sink(given, streaming=True))


def test_the_tools_see_groups_without_lag(query: Query, tmp_path: Path) -> None:
    query.write(7, TWO)
    groups = {group.group_id for group in query.cluster.list_groups() if query.application in group.group_id}
    assert groups == {f"kohort-sink-{query.application}", f"kohort-sink-{query.application}/0"}
    offsets = query.cluster.committed(f"kohort-sink-{query.application}/0")
    assert {place[1]: entry.offset for place, entry in offsets.items()} == {0: 7, 1: 7}
    assert not any(query.cluster.offsets(offsets, "latest").values())
