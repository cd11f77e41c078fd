"""Programs that work in transactions: Kafka Streams, Kafka Connect, and Kafka's own tool for transactions. Rows of
docs/clients.md (`make peers-clients`; Maven, Java 17)."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from crash_server import CrashServer
from hanging_transaction import leave_hanging
from matrix_stage import RECORDED, recorded_server
from run_java import java, running
from test_connect import CONNECTORS, configured, members, running_tasks, until, worker
from test_connect import TOPIC as LINES

from kohort.client.cluster import Cluster
from kohort.client.records import next_position, records
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.matrix, pytest.mark.timeout(600)]

WORDS, COUNTS = "words", "counts"
ROUNDS, WORDS_A_ROUND = 40, 10
END_TXN = 26
SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.program(
    "Kafka Streams, exactly_once_v2",
    "two instances count words in transactions; one is killed: each count is in the output once, and in order",
)
def test_streams_one_instance_killed(classpath: str, tmp_path: Path) -> None:
    with (
        recorded_server("kafka-streams-eos", group_min_session_timeout_ms=1_000) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        for topic in (WORDS, COUNTS):
            cluster.create_topic(topic, 2)

        def instance(name: str) -> tuple[str, ...]:
            return ("StreamsCount", server.bootstrap_servers, str(tmp_path / name), "exactly_once_v2")

        with running(classpath, tmp_path / "first.log", *instance("first")) as first:
            say(cluster)
            until(lambda: len(committed(cluster, COUNTS)) == 2 * WORDS_A_ROUND)
            with running(classpath, tmp_path / "second.log", *instance("second")):
                until(lambda: len(cluster.describe_groups(["counting"])["counting"].members) == 2)
                for number in range(1, ROUNDS):
                    say(cluster)
                    if number == ROUNDS // 2:
                        first.kill()
                    time.sleep(0.05)  # a load over some commits
                until(lambda: len(committed(cluster, COUNTS)) >= 2 * WORDS_A_ROUND * ROUNDS)
                until(lambda: not cluster.open_transactions([(COUNTS, 0), (COUNTS, 1)]))
        counts = defaultdict(list)
        for word, count in committed(cluster, COUNTS):
            counts[word].append(int(count))
        assert counts == {f"w{n}": list(range(1, 2 * ROUNDS + 1)) for n in range(WORDS_A_ROUND)}
        assert (END_TXN, 5, 0) in RECORDED["kafka-streams-eos"].frames, "a new epoch for each transaction (KIP-890)"


def test_streams_while_the_server_is_killed(classpath: str, tmp_path: Path) -> None:
    """SIGKILL, three times, under transactions: each count is in the output once, and in order."""
    server = CrashServer(tmp_path / "data", tmp_path / "server.log", SETTINGS)

    def start() -> None:
        server.spawn()
        server.wait_ready()

    def instance(name: str) -> tuple[str, ...]:
        return ("StreamsCount", server.address, str(tmp_path / name), "exactly_once_v2")

    start()
    try:
        with Cluster(server.address) as cluster:
            for topic in (WORDS, COUNTS):
                cluster.create_topic(topic, 2)
        with (
            running(classpath, tmp_path / "first.log", *instance("first")),
            running(classpath, tmp_path / "second.log", *instance("second")),
        ):
            for number in range(ROUNDS):
                with Cluster(server.address) as cluster:
                    say(cluster)
                    if number == 0:
                        until(lambda: len(cluster.describe_groups(["counting"])["counting"].members) == 2)
                        until(lambda: len(committed(cluster, COUNTS)) == 2 * WORDS_A_ROUND)
                time.sleep(0.05)  # a load over some commits
                if number in (ROUNDS // 4, ROUNDS // 2, 3 * ROUNDS // 4):
                    server.kill()
                    start()
            with Cluster(server.address) as cluster:
                until(lambda: len(committed(cluster, COUNTS)) >= 2 * WORDS_A_ROUND * ROUNDS)
                until(lambda: not cluster.open_transactions([(COUNTS, 0), (COUNTS, 1)]))
                counts = defaultdict(list)
                for word, count in committed(cluster, COUNTS):
                    counts[word].append(int(count))
        assert counts == {f"w{n}": list(range(1, 2 * ROUNDS + 1)) for n in range(WORDS_A_ROUND)}
        assert server.kills == 3
    finally:
        server.stop()


def say(cluster: Cluster) -> None:
    """Each word once in each partition."""
    line = " ".join(f"w{n}" for n in range(WORDS_A_ROUND)).encode()
    for partition in range(2):
        cluster.produce(WORDS, partition, [NewRecord(None, line, int(time.time() * 1000))])


def committed(cluster: Cluster, topic: str) -> list[tuple[str, str]]:
    """Keys and values of committed records, in the order of each partition."""
    if topic not in cluster.topics():
        return []
    places = dict.fromkeys(((topic, partition.index) for partition in cluster.topics()[topic].partitions), 0)
    ends = cluster.offsets(places, isolation="read_committed")
    found = []
    while behind := {place: at for place, at in places.items() if at < ends[place]}:
        for part in cluster.fetch(behind, max_wait_ms=0, isolation="read_committed"):
            place = (part.topic, part.partition)
            found += [((r.key or b"").decode(), (r.value or b"").decode()) for r in records(part, places[place])]
            places[place] = next_position(part, places[place])
    return found


@pytest.mark.program(
    "Kafka Connect, exactly-once source",
    "two workers share four connectors that read files in transactions; one worker is killed: each line comes once",
)
def test_connect_one_worker_killed(classpath: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.txt" for name in CONNECTORS}
    exactly = {"exactly_once_source_support": "enabled"}
    with (
        recorded_server("kafka-connect-eos", group_min_session_timeout_ms=1_000) as server,
        Cluster(server.bootstrap_servers) as cluster,
        worker(classpath, server, tmp_path / "first", **exactly) as first,
        worker(classpath, server, tmp_path / "second", **exactly) as second,
    ):
        until(lambda: members(cluster) == 2)
        for name, path in files.items():
            path.write_text(f"{name} line 0\n")
            configured(first, name, path, exactly_once_support="required")
        until(lambda: set(running_tasks(first).values()) == {first.name, second.name})
        for number in range(1, 60):
            for name, path in files.items():
                with path.open("a") as file:
                    file.write(f"{name} line {number}\n")
            if number == 30:
                second.process.kill()
                second.process.wait()
            time.sleep(0.05)  # a load over some commits
        expected = sorted(f"{name} line {number}" for name in CONNECTORS for number in range(60))
        until(lambda: running_tasks(first) == dict.fromkeys(CONNECTORS, first.name))
        until(lambda: len(committed(cluster, LINES)) >= len(expected))
        assert sorted(line for _, line in committed(cluster, LINES)) == expected


@pytest.mark.program("kafka-transactions", "lists, describes, ends transactions; finds and aborts a hanging one")
def test_the_tool_for_transactions(classpath: str) -> None:
    topic = "held"
    with (
        recorded_server("kafka-transactions", transaction_partition_verification_enable=False) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        at = ("--topic", topic, "--partition", "0")

        def tool(*arguments: str) -> list[list[str]]:
            command = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", server.bootstrap_servers)
            return [line.split() for line in java(classpath, *command, *arguments).splitlines()[1:]]

        cluster.create_topic(topic, 1)
        settings = {"bootstrap.servers": server.bootstrap_servers, "client.id": "kohort", "transactional.id": "open"}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"a", partition=0)
        assert producer.flush(30) == 0
        assert [(row[0], row[3]) for row in tool("list")] == [("open", "Ongoing")]
        [described] = tool("describe", "--transactional-id", "open")
        assert (described[1], described[4], described[-1]) == ("open", "Ongoing", f"{topic}-0")
        tool("forceTerminateTransaction", "--transactionalId", "open")
        assert not cluster.open_transactions([(topic, 0)])
        producer_id = leave_hanging(server.bootstrap_servers, "late", topic, [b"lost"])
        [hanging] = tool("find-hanging", *at, "--max-transaction-timeout", "0")
        assert hanging[:3] == [topic, "0", str(producer_id)]
        tool("abort", *at, "--start-offset", hanging[5])
        assert committed(cluster, topic) == []
        assert not cluster.open_transactions([(topic, 0)])
