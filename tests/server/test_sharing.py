"""Several nodes on one PostgreSQL that serve at once, as processes: slots move, nodes die, clients go on."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from process import COMMAND, Serve

from kohort.client.cluster import Cluster
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

LEASE_MS = 3_000
PARTITIONS = 6
ENOUGH = 8
"""Slots of a node."""
CLUSTER = [*COMMAND[:-1], "cluster"]
Start = Callable[..., Serve]


@pytest.fixture
def addresses() -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@pytest.fixture
def start(postgres_url: str, addresses: list[str]) -> Iterator[Start]:
    with ExitStack() as nodes:

        def start(number: int) -> Serve:
            settings = {
                "broker.id": number,
                "cluster.serving": "all",
                "cluster.move.interval.ms": 1,
                "broker.session.timeout.ms": LEASE_MS,
                "broker.heartbeat.interval.ms": 500,
                "group.initial.rebalance.delay.ms": 0,
            }
            flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            return nodes.enter_context(
                Serve("--listeners", addresses[number - 1], "--storage", postgres_url, *flags, until="kohort is ready")
            )

        yield start


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)


def command(url: str, *arguments: str) -> str:
    done = subprocess.run([*CLUSTER, *arguments, "--storage", url], check=True, capture_output=True, text=True)
    return done.stdout


def slots_of(url: str) -> dict[int, int]:
    """Of the nodes with a lease."""
    count = "(SELECT count(*) FROM kohort.slot WHERE owner = lease.id)"
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            f"SELECT id, {count} FROM kohort.node_lease lease WHERE until > clock_timestamp()"
        ).fetchall()
    return {row[0]: row[1] for row in rows}


class Traffic:
    """A producer of numbers, and a member of a group that commits what it has read, in a thread each."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: set[int] = set()
        self.of_partition: dict[int, int] = defaultdict(int)
        self.errors: list[str] = []
        self.committed: dict[int, int] = defaultdict(int)
        """By partition: the highest offset that a commit was acknowledged for."""
        self.commits = 0
        # A client that has not heard of a node that is back knows only the one that dies next.
        self._settings: dict[str, Any] = {"bootstrap.servers": servers, "topic.metadata.refresh.interval.ms": 1_000}
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 0})
        number = 0
        while not self._ends.is_set():
            producer.produce("orders", str(number), partition=number % PARTITIONS, callback=self._done(number))
            number += 1
            producer.poll(0.01)
        producer.flush(30)

    def _done(self, number: int) -> Callable[[Any, Any], None]:
        def done(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged.add(number)
                self.of_partition[number % PARTITIONS] += 1
            else:
                self.errors.append(str(error))

        return done

    def _consume(self) -> None:
        settings = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self._settings, **settings})
        consumer.subscribe(["orders"])
        while not self._ends.is_set():
            message = consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                continue
            self.commits += 1
            place, offset = message.partition(), message.offset()
            assert place is not None
            assert offset is not None
            self.committed[place] = max(self.committed[place], offset + 1)
        consumer.close()

    def goes_on(self) -> None:
        """Wait until more records of every partition and a commit are acknowledged."""
        written, commits = dict(self.of_partition), self.commits
        wait_for(
            lambda: (
                self.commits > commits
                and all(self.of_partition[each] > written.get(each, 0) + 3 for each in range(PARTITIONS))
            )
        )


def numbers_in(cluster: Cluster) -> list[int]:
    from kohort.wire.batches import decode_records, split_batches

    found = []
    for partition in range(PARTITIONS):
        offset = 0
        while True:
            [part] = cluster.fetch({("orders", partition): offset}, max_wait_ms=0)
            batches = [batch for _, batch in split_batches(part.records, strict=False)]
            records = [record for batch in batches for record in decode_records(batch) if record.offset >= offset]
            if not records:
                break
            found += [int(record.value or b"") for record in records]
            offset = records[-1].offset + 1
    return found


def check(traffic: Traffic, address: str) -> None:
    assert traffic.errors == []
    with Cluster(address) as cluster:
        found = numbers_in(cluster)
        assert len(found) == len(set(found)), "exactly once"
        assert traffic.acknowledged <= set(found)
        committed = cluster.committed("billing")
        for partition, offset in traffic.committed.items():
            assert committed[("orders", partition)].offset >= offset


def shares(url: str, *nodes: int) -> bool:
    """All these nodes have slots, and no others."""
    found = slots_of(url)
    return set(found) == set(nodes) and all(count >= ENOUGH for count in found.values())


def with_topic(address: str) -> None:
    with Cluster(address) as cluster:
        cluster.create_topic("orders", PARTITIONS)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nodes_join_and_die_under_load(start: Start, addresses: list[str], postgres_url: str) -> None:
    start(1)
    with_topic(addresses[0])
    with Traffic(",".join(addresses)) as traffic:
        traffic.goes_on()
        second = start(2)
        with Cluster(addresses[1]) as cluster:
            wait_for(lambda: {part.leader for part in cluster.topics()["orders"].partitions} == {1, 2})
            assert set(cluster.nodes()) == {1, 2}
        traffic.goes_on()
        second.process.kill()
        wait_for(lambda: slots_of(postgres_url) == {1: 128})
        traffic.goes_on()
    check(traffic, addresses[0])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_controller_that_was_stopped_too_long_stops(start: Start, addresses: list[str], postgres_url: str) -> None:
    first = start(1)
    with_topic(addresses[0])
    start(2)
    wait_for(lambda: shares(postgres_url, 1, 2))
    with Traffic(",".join(addresses)) as traffic:
        traffic.goes_on()
        first.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: slots_of(postgres_url) == {2: 128})
        first.process.send_signal(signal.SIGCONT)
        assert first.ended() == 75
        traffic.goes_on()
        with Cluster(addresses[1]) as cluster:
            assert cluster.controller_id() == 2
            cluster.create_topic("more", 3)
            cluster.delete_topic("more")
        start(1)
        wait_for(lambda: shares(postgres_url, 1, 2))
        traffic.goes_on()
    check(traffic, addresses[1])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_node_is_drained_and_stopped(start: Start, addresses: list[str], postgres_url: str) -> None:
    start(1)
    with_topic(addresses[0])
    refused = subprocess.run(
        [*CLUSTER, "drain", "1", "--storage", postgres_url], check=False, capture_output=True, text=True
    )
    assert (refused.returncode, "no other node" in refused.stderr) == (1, True)
    second = start(2)
    wait_for(lambda: shares(postgres_url, 1, 2))
    with Traffic(",".join(addresses)) as traffic:
        assert command(postgres_url, "drain", "2").startswith("node 2 gives its slots to the others")
        wait_for(lambda: slots_of(postgres_url) == {1: 128, 2: 0})
        assert "drained" in command(postgres_url, "nodes")
        assert command(postgres_url, "drain", "2", "--undo") == "node 2 takes slots again\n"
        wait_for(lambda: shares(postgres_url, 1, 2))
        traffic.goes_on()
        second.process.send_signal(signal.SIGTERM)
        assert second.ended() == 0
        wait_for(lambda: slots_of(postgres_url) == {1: 128})
        traffic.goes_on()
    check(traffic, addresses[0])


@pytest.mark.timeout(300)
def test_any_node_takes_any_request(start: Start, addresses: list[str]) -> None:
    start(1)
    start(2)
    with Cluster(addresses[1]) as cluster:
        assert cluster.controller_id() == 1
        topic = CreatableTopic(name="asked", num_partitions=4, replication_factor=2, assignments=(), configs=())
        request = CreateTopicsRequest(topics=(topic,))
        [made] = cluster.connection(2).request(request, CreateTopicsResponse).topics
        assert (made.error_code, made.num_partitions) == (0, 4)
        [again] = cluster.connection(2).request(request, CreateTopicsResponse).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        wait_for(lambda: "asked" in cluster.topics())
        wait_for(lambda: {part.leader for part in cluster.topics()["asked"].partitions} == {1, 2})
        places = [("asked", index) for index in range(4)]
        for _, partition in places:
            cluster.produce("asked", partition, [NewRecord(None, b"1", 0)] * 2)
        cluster.commit("billing", dict.fromkeys(places, 0))
        wait_for(lambda: cluster.group_lags(["billing"])["billing"].total == 8)  # also on the other node
    # Metadata of a node that is not the controller creates topics too.
    producer = Producer({"bootstrap.servers": addresses[1], "enable.idempotence": True})
    producer.produce("at.first.use", b"1")
    assert producer.flush(30) == 0
    transactional = Producer({"bootstrap.servers": addresses[0], "transactional.id": "t"})
    with pytest.raises(KafkaException):
        transactional.init_transactions(30)
