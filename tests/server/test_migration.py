"""Data goes from a directory to PostgreSQL and back, and clients go on on each side as after a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from postgres_server import PostgresServer
from queue_world import SHARES
from raw_kafka import RawKafka, committed, produced_at
from wire_driver import batch, produce_request

from kohort.client import BlockingWorkQueue
from kohort.client.admin.acls import ALLOW, LITERAL, OPERATIONS, RESOURCES, AclBinding
from kohort.client.cluster import Cluster
from kohort.client.coordination.blocking_election import blocking_lead
from kohort.client.records import records
from kohort.config import AUTHORIZER
from kohort.server.migration.migrate import Migrated, Progress, Stopped, StorageError, count, migrate
from kohort.storage.postgres.unserved import UnservedDatabase
from kohort.storage.protocol import LogKey, Storage
from kohort.storage.stored_file import StoredFile
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.schemas.sync_group import SyncGroupRequest

SETTINGS: dict[str, Any] = {
    **SHARES,
    "log_cleaner_min_cleanable_ratio": 0.0,
    "log_retention_check_interval_ms": 50,
    "offsets_topic_num_partitions": 3,
    "authorizer_class_name": AUTHORIZER,
    "super_users": "User:ANONYMOUS",
}
RULE = AclBinding(RESOURCES["topic"], "orders", LITERAL, "User:alice", "*", OPERATIONS["read"], ALLOW)
GROUP = "billing"
NOW_MS = time.time_ns() // 1_000_000
"""Retention would delete older records."""
JOBS = [b"%d" % number for number in range(6)]


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


def moved(from_: Path | str, to: Path | str) -> Migrated:
    return migrate(str(from_), str(to), lambda: False, lambda progress: None)


def everything(storage: Storage) -> dict[LogKey, Any]:
    found = {}
    for info in storage.logs():
        producers = storage.producers(info.key)
        found[info.key] = (
            info,
            storage.read(info.key, 0, 1 << 40),
            list(storage.batches(info.key)),
            storage.kept_producers(info.key),
            storage.open_transactions(info.key),
            storage.aborted_transactions(info.key),
            storage.max_timestamp(info.key),
            storage.producers_ending_before(info.key, info.end_offset),
            [(each, storage.producer_batches(info.key, each, 5)) for each in producers],
            [storage.last_of_producer(info.key, each) for each in producers],
        )
    return found


class World:
    """Clients that live through migrations, and what each may find."""

    def __init__(self) -> None:
        self.producer: Producer
        self.offsets: list[int] = []
        """Of the batches of the idempotent producer."""
        self.committed_values: list[bytes] = []
        self.done: list[bytes] = []
        self.tokens: list[int] = []
        self.member = ""
        self.generation = 0

    def begin(self, address: str) -> None:
        with Cluster(address) as cluster:
            cluster.create_topic("orders", 2)
            cluster.create_topic("payments", 1)
            cluster.create_topic("table", 1, configs={"cleanup.policy": "compact"})
            cluster.add_scram_user("alice", "secret", iterations=4096)
            cluster.alter_client_quotas({"client-id": "bulk"}, {"consumer_byte_rate": 1e6})
            cluster.create_acls([RULE])
            for number in range(5):
                cluster.produce("table", 0, [NewRecord(b"k", b"%d" % number, 1_000)])
            cluster.produce("orders", 1, [NewRecord(None, b"%d" % number, NOW_MS) for number in range(5)])
            cluster.delete_records({("orders", 1): 2})
            until(lambda: first_offset(cluster, "table") >= 3)
        with closing(RawKafka(address)) as raw:
            made = raw.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            self.producer_id = made.producer_id
            self.produce(raw)
            self.join(raw)
            self.commit(raw, 1)
        with BlockingWorkQueue(address, "jobs", group="workers") as queue:
            for job in JOBS:
                queue.put(job)
        self.work(address)
        for commits in (True, False):
            producer = self.in_transaction(address, f"t{commits}")
            (producer.commit_transaction if commits else producer.abort_transaction)(20)
            self.committed_values += [b"of a transaction"] if commits else []
        self.producer = self.in_transaction(address, "open")
        self.take_token(address)

    def go_on(self, address: str) -> None:
        with closing(RawKafka(address)) as raw:
            heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member)
            assert raw.call(heartbeat).error_code == 0
            assert committed(raw, GROUP, "orders", 0) == len(self.offsets)
            assert self.produce(raw, again=True) == self.offsets[-1], "the retry is recognised"
            self.produce(raw)
            self.commit(raw, len(self.offsets))
            former = self.generation
            self.join(raw)
            assert self.generation == former + 1
        self.producer.commit_transaction(20)
        self.committed_values.append(b"of a transaction")
        assert read(address, "payments", len(self.committed_values)) == self.committed_values
        self.producer.begin_transaction()
        self.producer.produce("payments", b"of a transaction")
        assert self.producer.flush(20) == 0
        self.work(address)
        self.take_token(address)
        with Cluster(address) as cluster:
            assert first_offset(cluster, "table") >= 3
            assert cluster.offsets([("orders", 1)], at="earliest") == {("orders", 1): 2}
            assert [user.name for user in cluster.scram_users()] == ["alice"]
            assert cluster.acls() == (RULE,)
            assert len(cluster.explain_group(GROUP).stories) >= self.generation
            assert [quota.values for quota in cluster.client_quotas()] == [{"consumer_byte_rate": 1e6}]

    def produce(self, raw: RawKafka, *, again: bool = False) -> int:
        sequence = len(self.offsets) - again
        data = batch(
            b"%d" % sequence, timestamp=NOW_MS, producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence
        )
        offset = produced_at(raw.call(produce_request("orders", data)))
        if not again:
            self.offsets.append(offset)
        return offset

    def join(self, raw: RawKafka) -> None:
        joined = raw.call(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=self.member,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="any", metadata=b"%d" % self.generation),),
            )
        )
        assert joined.error_code == 0
        self.member, self.generation = joined.member_id, joined.generation_id
        synced = SyncGroupRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member, assignments=())
        assert raw.call(synced).error_code == 0

    def commit(self, raw: RawKafka, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        answer = raw.call(
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member,
                topics=(OffsetCommitRequestTopic(name="orders", partitions=(partition,)),),
            )
        )
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def in_transaction(self, address: str, name: str) -> Producer:
        producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("payments", b"of a transaction")
        assert producer.flush(20) == 0
        return producer

    def work(self, address: str) -> None:
        """Two more jobs are finished, none of which was finished before."""
        with BlockingWorkQueue(address, "jobs", group="workers") as queue:
            taken = []
            for job in queue.take():
                with job:
                    taken.append(job.value)
                if len(taken) == 2:
                    break
        assert not set(taken) & set(self.done)
        self.done += taken

    def take_token(self, address: str) -> None:
        with blocking_lead(address, "nightly") as election:
            self.tokens.append(next(iter(election)).token)


def first_offset(cluster: Cluster, topic: str) -> int:
    [part] = cluster.fetch({(topic, 0): 0}, max_wait_ms=1_000)
    return next(iter(records(part, 0))).offset


def read(address: str, topic: str, number: int) -> list[bytes]:
    settings = {"group.id": f"reader-{number}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < number:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


@contextmanager
def served(listeners: str, **where: Any) -> Iterator[str]:
    with KohortServer(listeners=listeners, **where, **SETTINGS) as server:
        yield server.bootstrap_servers


def test_clients_go_on_over_a_round_trip(tmp_path: Path, postgres_url: str) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    world = World()
    with KohortServer(data_dir=first, **SETTINGS) as server:
        listeners = server.listeners
        world.begin(server.bootstrap_servers)
    with closing(StoredFile(first)) as before:
        there = moved_apart(before, first, postgres_url)
    with served(listeners, storage=postgres_url) as address:
        world.go_on(address)
    back = moved(postgres_url, last)
    with closing(StoredFile(last)) as after, closing(UnservedDatabase(postgres_url)) as database:
        assert everything(after) == everything(database)
    with served(listeners, data_dir=last) as address:
        world.go_on(address)
    assert sorted(world.done) == JOBS
    assert world.tokens == sorted(set(world.tokens))
    assert there.counted.contents.topics == back.counted.contents.topics == 4
    assert there.counted.details == back.counted.details
    details = there.counted.details
    assert (details.open_transactions, details.share_partitions, details.quotas, details.acls) == (1, 1, 1, 1)
    assert there.counted.contents.users == 1


def moved_apart(before: StoredFile, first: Path, url: str) -> Migrated:
    """Migrates, and compares more than the migration itself."""
    found = everything(before)
    done = moved(first, url)
    with closing(UnservedDatabase(url)) as after:
        assert everything(after) == found
    return done


class Numbers:
    """What no two clusters may give."""

    def __init__(self) -> None:
        self.producer_ids: list[int] = []
        self.tokens: list[int] = []
        self.epochs: list[dict[tuple[str, int], int]] = []

    def take(self, server: KohortServer) -> None:
        with closing(RawKafka(server.bootstrap_servers)) as raw, Cluster(server.bootstrap_servers) as cluster:
            made = raw.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            self.producer_ids.append(made.producer_id)
            topics = cluster.topics(internal=True).values()
            self.epochs.append(
                {(part.topic, part.index): part.leader_epoch for topic in topics for part in topic.partitions}
            )
        with blocking_lead(server.bootstrap_servers, "nightly") as election:
            self.tokens.append(next(iter(election)).token)


def test_a_round_trip_over_nodes_that_serve_at_once(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """They have leader epochs and producer ids in tables."""
    numbers = Numbers()
    urls = [postgres_server.create(f"serving{n}") for n in range(2)]
    places: list[dict[str, Any]] = [
        {"data_dir": tmp_path / "first"},
        *({"storage": url, "cluster_serving": "all"} for url in urls),
        {"data_dir": tmp_path / "last"},
    ]
    values: list[str] = []
    for former, place in zip([None, *places], places, strict=False):
        if former is not None:
            from_, to = (str(each.get("storage") or each["data_dir"]) for each in (former, place))
            migrate(from_, to, lambda: False, lambda progress: None, serves_all="storage" in place)
        with KohortServer(**place) as server:
            if former is None:
                server.create_topic("t", 5)
            values.append(str(place))
            server.produce("t", values[-1], partition=0)
            with Cluster(server.bootstrap_servers) as cluster:
                committed = cluster.committed("billing")
                assert (committed["t", 0].offset if former is not None else 0) == len(values) - 1
                cluster.commit("billing", {("t", 0): len(values)})
                [part] = cluster.fetch({("t", 0): 0}, max_wait_ms=1_000)
                assert [record.value for record in records(part, 0)] == [value.encode() for value in values]
            numbers.take(server)
    assert numbers.producer_ids == sorted(set(numbers.producer_ids))
    assert numbers.tokens == sorted(set(numbers.tokens))
    for before, after in pairwise(numbers.epochs):
        assert before.keys() <= after.keys()
        assert all(after[place] > epoch for place, epoch in before.items())


def test_open_transactions_have_no_place_at_nodes_that_serve_at_once(tmp_path: Path, postgres_url: str) -> None:
    def wanted() -> Any:
        return count(str(tmp_path), postgres_url, serves_all=True)

    with KohortServer(data_dir=tmp_path) as server:
        server.create_topic("payments", 1)
        World().in_transaction(server.bootstrap_servers, "t")
    with pytest.raises(StorageError, match=r"transactions are open in 1 partitions.*kohort transactions abort"):
        wanted()
    with KohortServer(data_dir=tmp_path) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.fence_producer("t")
    assert wanted().notes == ("transactional ids are copied, and nodes that serve at once do not serve them yet",)


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data directory of a server that has stopped."""
    with KohortServer(data_dir=tmp_path / "data", offsets_topic_num_partitions=1) as server:
        server.create_topic("t", 2)
        server.produce("t", "a", "b", "c")
    return tmp_path / "data"


def test_a_source_that_is_served(stopped: Path, tmp_path: Path, postgres_url: str) -> None:
    with KohortServer(data_dir=stopped):
        for work in (count, moved):
            with pytest.raises(StorageError, match=r"is in use by kohort \(process \d+\); stop it first"):
                work(str(stopped), postgres_url)
    moved(stopped, postgres_url)
    with KohortServer(storage=postgres_url):
        for work in (count, moved):
            with pytest.raises(StorageError, match=r"is in use: node 1 at .* has a lease"):
                work(postgres_url, str(tmp_path / "back"))
    moved(postgres_url, tmp_path / "back")


def test_a_target_that_is_not_empty(stopped: Path, tmp_path: Path, postgres_url: str) -> None:
    moved(stopped, tmp_path / "copy")
    (stopped / "kohort.migrated").unlink()
    for work in (count, moved):
        with pytest.raises(StorageError, match=r"copy is not empty \(kohort\.db\)"):
            work(str(stopped), str(tmp_path / "copy"))
        with pytest.raises(StorageError, match="is not empty"):
            work(str(stopped), str(stopped))
    moved(stopped, postgres_url)
    for work in (count, moved):
        with pytest.raises(StorageError, match="holds data of kohort already"):
            work(str(tmp_path / "copy"), postgres_url)
    KohortServer(data_dir=tmp_path / "copy").start().stop()


def test_a_source_that_was_migrated(stopped: Path, tmp_path: Path, postgres_url: str) -> None:
    moved(stopped, postgres_url)
    with pytest.raises(
        StorageError, match=r"data was migrated to postgresql:///test\d+\S*: serve that. If that was never"
    ):
        KohortServer(data_dir=stopped).start()
    for work in (count, moved):
        with pytest.raises(StorageError, match="already: migrate that"):
            work(str(stopped), str(tmp_path / "other"))
    moved(postgres_url, tmp_path / "back")
    with pytest.raises(StorageError, match=r"was migrated to .*back: serve that. If that was never served, DROP TABLE"):
        KohortServer(storage=postgres_url).start()
    with pytest.raises(StorageError, match="already: migrate that"):
        moved(postgres_url, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_dry_run_changes_nothing(stopped: Path, tmp_path: Path, postgres_url: str) -> None:
    before = {path.name: path.read_bytes() for path in stopped.iterdir()}
    counted = count(str(stopped), postgres_url)
    assert (counted.contents.records, counted.logs, counted.notes) == (3, 5, ())
    assert count(str(stopped), str(tmp_path / "new")).size == counted.size
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == before
    assert not (tmp_path / "new").exists()
    moved(stopped, postgres_url)
    assert count(postgres_url, str(tmp_path / "new")).contents == counted.contents


def test_several_brokers_become_one(tmp_path: Path, postgres_url: str) -> None:
    with KohortServer(data_dir=tmp_path, brokers=3) as server:
        server.create_topic("t", 3)
        server.produce("t", "a")
    [note] = count(str(tmp_path), postgres_url).notes
    assert note.startswith("brokers 1, 2, 3 lead partitions")
    moved(tmp_path, postgres_url)
    with KohortServer(storage=postgres_url) as server, Cluster(server.bootstrap_servers) as cluster:
        assert {part.leader for part in cluster.topics(["t"])["t"].partitions} == {1}
        server.produce("t", "b")


@pytest.mark.parametrize("when", ["copying", "comparing"])
def test_a_stop_leaves_the_source_as_it_was(stopped: Path, tmp_path: Path, postgres_url: str, when: str) -> None:
    for target in (postgres_url, str(tmp_path / "new")):
        told: list[Progress] = []
        with pytest.raises(Stopped):
            migrate(str(stopped), target, lambda told=told: bool(told) and told[-1].doing == when, told.append)
    assert not (tmp_path / "new").exists()
    with pytest.raises(StorageError, match="is the target of a migration that runs or was interrupted"):
        KohortServer(storage=postgres_url).start()
    KohortServer(data_dir=stopped).start().stop()
    moved(stopped, postgres_url)


def test_a_crash_between_the_mark_and_the_end(
    stopped: Path, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is served, and the migration may be repeated."""

    def crash(*_: Any) -> None:
        raise StorageError("the disk is gone")

    def serve_nothing(*places: dict[str, Any]) -> None:
        for place in places:
            with pytest.raises(StorageError, match="migrat"):
                KohortServer(**place).start()

    for source, target, place in (
        (str(stopped), postgres_url, {"storage": postgres_url}),
        (postgres_url, str(tmp_path / "back"), {"data_dir": tmp_path / "back"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(UnservedDatabase, "finish", crash)
            patch.setattr("kohort.server.migration.places.RestoredDirectory.finish", crash)
            with pytest.raises(StorageError, match="the disk is gone"):
                moved(source, target)
        other = {"data_dir": source} if source == str(stopped) else {"storage": source}
        serve_nothing(place, other)
        moved(source, target)
        KohortServer(**place).start().stop()


def test_a_copy_that_differs_is_not_served(stopped: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = UnservedDatabase.read

    def lossy(self: UnservedDatabase, *arguments: Any) -> Any:
        return read(self, *arguments)[:-1]

    with monkeypatch.context() as patch:
        patch.setattr(UnservedDatabase, "read", lossy)
        with pytest.raises(StorageError, match=r"in .* differs from the source: \S+-\d+: .*batches \d+, in the copy"):
            moved(stopped, postgres_url)
    KohortServer(data_dir=stopped).start().stop()
