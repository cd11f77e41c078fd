"""`kohort transactions` and Kafka's own tool, against Apache Kafka and against kohort: with librdkafka's producer, and
with one whose transaction hangs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import java_libraries
import pytest
from bench import _kafka
from command_runner import Run, runner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from group import until
from hanging_transaction import WITHOUT_VERIFICATION, leave_hanging
from kafka_peer import EVERYWHERE, LIKE_KOHORT
from run_java import java

from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord


@pytest.fixture(scope="module", params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server of this module's own, because it lets transactions hang."""
    if request.param == "kafka":
        settings = LIKE_KOHORT | WITHOUT_VERIFICATION
        with _kafka.kafka(request.getfixturevalue("class_path"), settings, java_options=_kafka.BRIEF) as (_, at):
            yield "{}:{}".format(*at)
    else:
        with KohortServer(brokers=2, transaction_partition_verification_enable=False) as running:
            yield running.bootstrap_servers


@pytest.fixture
def kohort(servers: str) -> Run:
    return runner(servers)


@pytest.fixture
def topic(servers: str, unique: str) -> str:
    with Cluster(servers) as cluster:
        cluster.create_topic(unique, 2)
        cluster.offsets([(unique, 0), (unique, 1)])  # waits until the leaders serve it
    return unique


@contextmanager
def transaction(servers: str, name: str, topic: str, *values: str) -> Iterator[Producer]:
    """A producer that has written the values into partition 0 in a transaction, which is open."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    yield producer


def wait_until_ended(servers: str, name: str) -> None:
    """Apache Kafka answers a producer before the transaction's markers are in the partitions."""
    with Cluster(servers) as cluster:
        until(lambda: not cluster.describe_transactions([name])[name].open, f"the end of the transaction of {name}")


def committed_values(servers: str, topic: str) -> list[bytes | None]:
    """What a reader of committed records gets from partition 0."""
    with Cluster(servers) as cluster:
        (part,) = cluster.fetch({(topic, 0): 0}, max_wait_ms=0, isolation="read_committed")
        return [record.value for record in records(part, 0)]


@pytest.mark.conformance("TX48")
def test_an_open_transaction_is_found_and_aborted(kohort: Run, servers: str, topic: str) -> None:
    with Cluster(servers) as cluster:
        cluster.commit(topic, {(topic, 0): 0})
    with transaction(servers, topic, topic, "a", "b") as producer:
        listed = kohort("transactions", "list", "--state", "Ongoing", "-o", "json")
        (row,) = [one for one in listed if one["transactional_id"] == topic]
        (described,) = kohort("transactions", "describe", topic, "-o", "json")
        assert (described["state"], described["producer_id"]) == ("Ongoing", row["producer_id"])
        assert described["coordinator"]["id"] == row["coordinator"]
        assert described["open_for_ms"] >= 0
        place = {"topic": topic, "partition": 0, "start_offset": 0, "last_stable_offset": 0, "log_end_offset": 2}
        assert described["partitions"] == [place]
        wait = f"readers of committed records wait at offset 0, 2 offsets before the end, for transaction {topic} ("
        assert wait in kohort("topics", "describe", topic)
        assert wait in kohort("groups", "describe", topic)
        assert kohort("transactions", "find-hanging", "--topic", topic, "--idle-for", "1ms", "-o", "json") == []
        assert f"kohort transactions abort {topic}" in kohort(
            "transactions", "abort", "--topic", topic, "--partition", "0", "--yes", code=1
        )
        assert f"aborted the transaction of {topic}" in kohort("transactions", "abort", topic, "--yes")
        assert committed_values(servers, topic) == []
        assert "committed records" not in kohort("topics", "describe", topic)
        assert "no transaction is open" in kohort("transactions", "describe", topic)
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(30)
        assert raised.value.args[0].fatal()  # it is fenced
    with transaction(servers, topic, topic, "c") as producer:
        producer.commit_transaction(30)
    wait_until_ended(servers, topic)
    assert committed_values(servers, topic) == [b"c"]


def test_an_aborted_transaction_commits_no_offsets(kohort: Run, servers: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic})
    with transaction(servers, topic, topic, "a") as producer:
        offsets = [TopicPartition(topic, 1, 7)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        consumer.close()
        (described,) = kohort("transactions", "describe", topic, "-o", "json")
        assert [one["topic"] for one in described["partitions"]] == ["__consumer_offsets", topic]
        kohort("transactions", "abort", topic, "--yes")
    with Cluster(servers) as cluster:
        assert cluster.committed(topic) == {}


@pytest.mark.conformance("TX43")
def test_a_hanging_transaction_is_found_and_aborted(kohort: Run, servers: str, topic: str) -> None:
    producer_id = leave_hanging(servers, topic, topic, [b"lost", b"too"])
    with Cluster(servers) as cluster:
        cluster.produce(topic, 0, [NewRecord(None, b"later", 1_000)])
    (described,) = kohort("topics", "describe", topic, "-o", "json")
    first, second = described["partitions"]
    assert (first["last_stable_offset"], first["latest_offset"]) == (0, 3)
    (holder,) = first["open_transactions"]
    assert (holder["producer_id"], holder["start_offset"], holder["transactional_id"]) == (producer_id, 0, topic)
    assert second["open_transactions"] == []
    assert kohort("transactions", "find-hanging", "--topic", topic, "-o", "json") == []  # written a moment ago
    (found,) = kohort("transactions", "find-hanging", "--topic", topic, "--idle-for", "1ms", "-o", "json")
    assert found == holder
    assert "no transaction is open" in kohort("transactions", "abort", topic, "--yes", code=1)
    assert committed_values(servers, topic) == []
    at = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "readers of committed records go on to offset 4" in kohort("transactions", "abort", *at, "--yes")
    assert committed_values(servers, topic) == [b"later"]
    assert kohort("transactions", "find-hanging", "--topic", topic, "--idle-for", "1ms", "-o", "json") == []


def test_lists_by_age_and_pattern(kohort: Run, servers: str, topic: str) -> None:
    name = f"{topic}.x"
    with transaction(servers, name, topic, "a") as producer:

        def found(*filters: str) -> list[str]:
            listed = kohort("transactions", "list", *filters, "-o", "json")
            return [one["transactional_id"] for one in listed]

        assert found("--open-for", "1ms", "--pattern", f"{topic}.*") == [name]
        assert found("--open-for", "1h", "--pattern", f"{topic}.*") == []
        assert found("--pattern", topic) == []  # the whole id has to match
        assert "'[' is no regular expression of RE2" in kohort("transactions", "list", "--pattern", "[", code=2)
        producer.abort_transaction(30)
        wait_until_ended(servers, name)
        assert found("--open-for", "1ms", "--pattern", f"{topic}.*") == []
        assert found("--pattern", f"{topic}.*") == [name]


@pytest.mark.peers
@pytest.mark.timeout(300)
@pytest.mark.conformance("TX43", "TX48")
def test_kafkas_own_tool(servers: str, topic: str) -> None:
    classpath = java_libraries.clients()

    def tool(*arguments: str) -> list[list[str]]:
        command = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", servers)
        return [line.split() for line in java(classpath, *command, *arguments).splitlines()]

    at = ("--topic", topic, "--partition", "0")
    with transaction(servers, topic, topic, "a", "b") as producer:
        (listed,) = [row for row in tool("list") if row[0] == topic]
        _, coordinator, producer_id, state = listed
        assert state == "Ongoing"
        _, described = tool("describe", "--transactional-id", topic)
        assert described[:3] == [coordinator, topic, producer_id]
        assert (described[4], described[-1]) == ("Ongoing", f"{topic}-0")
        _, active = tool("describe-producers", *at)
        assert (active[0], active[-1]) == (producer_id, "0")
        producer.commit_transaction(30)
        wait_until_ended(servers, topic)
        assert tool("describe-producers", *at)[1][-1] == "None"
    with transaction(servers, topic, topic, "c"):
        tool("forceTerminateTransaction", "--transactionalId", topic)
        wait_until_ended(servers, topic)
        assert [row[-1] for row in tool("list") if row[0] == topic] == ["Empty"]
    assert committed_values(servers, topic) == [b"a", b"b"]
    producer_id = str(leave_hanging(servers, f"{topic}.late", topic, [b"lost"]))
    _, hanging = tool("find-hanging", *at, "--max-transaction-timeout", "0")
    assert hanging[:3] == [topic, "0", producer_id]
    tool("abort", *at, "--start-offset", hanging[5])
    assert tool("find-hanging", *at, "--max-transaction-timeout", "0")[1:] == []
    assert committed_values(servers, topic) == [b"a", b"b"]
    with Cluster(servers) as cluster:
        ends = [cluster.offsets([(topic, 0)], isolation=level) for level in ("read_committed", "read_uncommitted")]
    assert ends[0] == ends[1]
