"""Kafka's own programs on kohort: rows of docs/clients.md. Runs under `make peers-clients` (Maven, Java 17)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from crowd import Crowd
from group import until
from matrix_stage import recorded_server
from produce import create_topic, produce
from run_java import java, running

from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

pytestmark = [pytest.mark.java, pytest.mark.matrix, pytest.mark.timeout(600)]


@pytest.mark.program(
    "kafka-consumer-groups and kafka-topics",
    "lists, describes, resets, deletes; with kafka-console-producer and kafka-console-consumer in a group",
)
def test_the_command_line_tools(classpath: str, server: KohortServer) -> None:
    address = ("--bootstrap-server", server.bootstrap_servers)
    topics = "org.apache.kafka.tools.TopicCommand"
    java(classpath, topics, *address, "--create", "--topic", "cli", "--partitions", "3")
    assert "PartitionCount: 3" in java(classpath, topics, *address, "--describe", "--topic", "cli")
    java(classpath, topics, *address, "--alter", "--topic", "cli", "--partitions", "4")
    assert "cli" in java(classpath, topics, *address, "--list").split()
    java(classpath, "org.apache.kafka.tools.ConsoleProducer", *address, "--topic", "cli", feed="one\ntwo\nthree\n")
    read = java(
        classpath,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *address,
        *("--topic", "cli", "--from-beginning", "--group", "cli-group", "--max-messages", "3"),
        *("--timeout-ms", "20000"),
    )
    assert sorted(read.split()) == ["one", "three", "two"]
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    assert "cli-group" in java(classpath, groups, *address, "--list").split()
    described = java(classpath, groups, *address, "--describe", "--group", "cli-group")
    assert "cli" in described
    assert "Empty" in java(classpath, groups, *address, "--describe", "--group", "cli-group", "--state")
    reset = ("--reset-offsets", "--group", "cli-group", "--topic", "cli", "--to-earliest", "--execute")
    assert "cli" in java(classpath, groups, *address, *reset)
    java(classpath, groups, *address, "--delete", "--group", "cli-group")
    assert "cli-group" not in java(classpath, groups, *address, "--list").split()


@pytest.mark.program("kafka-consumer-groups", "describes a group of KIP-848, its members and their assignments")
def test_the_command_line_tools_know_groups_of_the_consumer_protocol(classpath: str, server: KohortServer) -> None:
    address = server.bootstrap_servers
    create_topic(address, "tools", 4)
    produce("confluent", address, "tools", [f"v{number}" for number in range(8)], 4)

    def groups(*arguments: str) -> list[list[str]]:
        command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        return [
            line.split() for line in java(classpath, command, "--bootstrap-server", address, *arguments).splitlines()
        ]

    of_it = ("--group", "tools")
    with Crowd(address, "tools", "tools") as crowd:
        crowd.join(), crowd.join()
        crowd.wait_shared([2, 2])
        crowd.wait(lambda: len(crowd.values()) == 8, "all values")
        assert ["tools", "Consumer"] in groups("--list", "--type", "consumer")
        assert not any("tools" in line for line in groups("--list", "--type", "classic"))
        state = groups("--describe", *of_it, "--state", "--verbose")
        assert any({"tools", "uniform", "Stable", "2"} <= set(line) for line in state), state
        members = [line for line in groups("--describe", *of_it, "--members", "--verbose") if line[:1] == ["tools"]]
        assert sorted(word for line in members for word in line if word.startswith("tools:")) == sorted(
            2 * ["tools:0,1", "tools:2,3"]
        ), "the current and the target assignment of both"
        partitions = [line for line in groups("--describe", *of_it) if line[:2] == ["tools", "tools"]]
        assert sorted(line[2:6] for line in partitions) == [[str(p), "2", "2", "0"] for p in range(4)]
        reset = ("--reset-offsets", *of_it, "--topic", "tools", "--to-earliest", "--execute")
        assert any("inactive," in line for line in groups(*reset)), "refused while there are members"
    groups(*reset)
    partitions = [line for line in groups("--describe", *of_it) if line[:2] == ["tools", "tools"]]
    assert sorted(line[2:6] for line in partitions) == [[str(p), "0", "2", "2"] for p in range(4)]
    groups("--delete-offsets", *of_it, "--topic", "tools:0")
    groups("--delete", *of_it)
    assert not any("tools" in line for line in groups("--list"))


@pytest.mark.program("kafka-console-consumer", "reads `__consumer_offsets` with Kafka's own formatter")
def test_the_offsets_log_is_read_by_kafkas_own_formatter(classpath: str, server: KohortServer) -> None:
    """`__consumer_offsets` is fetchable and written in Kafka's schema."""
    address = ("--bootstrap-server", server.bootstrap_servers)
    java(classpath, "org.apache.kafka.tools.ConsoleProducer", *address, "--topic", "logged", feed="one\n")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    once = ("--topic", "logged", "--from-beginning", "--group", "logged-group", "--max-messages", "1")
    java(classpath, consumer, *address, *once)
    formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    log = java(
        classpath,
        consumer,
        *address,
        *("--topic", "__consumer_offsets", "--from-beginning", "--formatter", formatter, "--timeout-ms", "4000"),
    )
    assert '"logged-group"' in log, log
    assert '"offset":1' in log.replace(" ", ""), log


@pytest.mark.program("kafka-verifiable-consumer", "reads and commits what kafka-verifiable-producer wrote")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer(classpath: str, server: KohortServer, protocol: str) -> None:
    name = f"verified-{protocol}"
    create_topic(server.bootstrap_servers, name, 2)
    of_topic = ("--bootstrap-server", server.bootstrap_servers, "--topic", name, "--max-messages", "100")
    produced = events(java(classpath, "org.apache.kafka.tools.VerifiableProducer", *of_topic))
    assert [event["acked"] for event in produced if event["name"] == "tool_data"] == [100]
    consumer = "org.apache.kafka.tools.VerifiableConsumer"
    of_group = ("--group-id", name, "--group-protocol", protocol, "--reset-policy", "earliest")
    consumed = events(java(classpath, consumer, *of_topic, *of_group))
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == 100
    assert all(event["success"] for event in consumed if event["name"] == "offsets_committed")
    with Cluster(server.bootstrap_servers) as cluster:
        assert sum(at.offset for at in cluster.committed(name).values()) == 100
        assert [g.type for g in cluster.list_groups() if g.group_id == name] == [protocol]


def events(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


WORDS, COUNTS, APPLICATION, LEAST = "words", "counts", "counting", "at_least_once"


@pytest.mark.program(
    "Kafka Streams",
    "counts words, at least once, through a repartition topic; killed, it goes on from its changelog where it was",
)
def test_streams_killed_and_started_again(classpath: str, tmp_path: Path) -> None:
    with (
        recorded_server("kafka-streams", group_min_session_timeout_ms=1_000) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        for topic in (WORDS, COUNTS):
            cluster.create_topic(topic, 2)
        counting = ("StreamsCount", server.bootstrap_servers)
        expected = Counter({"to": 2, "be": 2, "or": 1, "not": 1})
        say(cluster, ["to be or", "not to be"])
        with running(classpath, tmp_path / "first.log", *counting, str(tmp_path / "first"), LEAST) as first:
            until(lambda: counted(cluster) == expected, "the first counts")
            until(lambda: sum(at.offset for at in cluster.committed(APPLICATION).values()) >= 2 + 6, "committed")
            first.kill()
        say(cluster, ["that is", "to be"])
        with running(classpath, tmp_path / "second.log", *counting, str(tmp_path / "second"), LEAST):
            until(lambda: counted(cluster) == expected + Counter(["that", "is", "to", "be"]), "the later counts")


def say(cluster: Cluster, lines: list[str]) -> None:
    for partition, line in enumerate(lines):
        cluster.produce(WORDS, partition, [NewRecord(None, line.encode(), 1_800_000_000_000)])


def counted(cluster: Cluster) -> Counter[str]:
    """The last count of each word."""
    found: Counter[str] = Counter()
    for part in cluster.fetch({(COUNTS, 0): 0, (COUNTS, 1): 0}, max_wait_ms=0):
        for record in records(part, 0):
            found[(record.key or b"").decode()] = int(record.value or b"0")
    return found
