"""Java's clients and Kafka's own command line tools against a server. Runs under `make test-java` (Maven, Java 17)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from crowd import Crowd
from produce import create_topic, produce

from kohort.testing import KohortServer

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


def java(classpath: str, *arguments: str, feed: str = "", timeout: float = 60) -> str:
    done = subprocess.run(
        ["java", "-Xmx512m", QUIET, "-cp", classpath, *arguments],
        input=feed,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_java_clients(classpath: str, server: KohortServer) -> None:
    out = java(classpath, str(HERE / "ClientCheck.java"), server.bootstrap_servers, timeout=300)
    assert len([line for line in out.splitlines() if line.startswith("ok ")]) == 8, out


def test_groups_of_the_consumer_protocol(classpath: str, server: KohortServer) -> None:
    out = java(classpath, str(HERE / "ConsumerGroups.java"), server.bootstrap_servers, timeout=180)
    assert out.count("ok ") == 5, out


def test_held_heartbeats(classpath: str) -> None:
    """A rebalance is pushed, nothing waits behind a held answer, and the clients find nothing to warn of."""
    with KohortServer(group_heartbeat_hold_max_ms=20_000) as holding:
        done = subprocess.run(
            ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]
            + [str(HERE / "HeldHeartbeats.java"), holding.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 3, done.stdout
    assert "WARN" not in done.stderr, done.stderr
    assert "ERROR" not in done.stderr, done.stderr


def test_commits_fenced_by_ownership(classpath: str) -> None:
    settings = {"group_consumer_ownership_fencing_enable": True, "group_consumer_assignment_interval_ms": 0}
    with KohortServer(**settings) as fencing:
        out = java(classpath, str(HERE / "FencedCommits.java"), fencing.bootstrap_servers, timeout=120)
    assert out.count("ok ") == 2, out


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
