"""The commands that change groups and topics, against Apache Kafka and against kohort."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import java_libraries
import pytest
from command_runner import Run, runner
from confluent_kafka import Consumer
from group import until
from group_member import GroupMember
from kafka_peer import EVERYWHERE
from run_java import java

from kohort.client.admin.groups import Committed
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kohort_servers() -> Iterator[str]:
    with KohortServer(brokers=2, group_initial_rebalance_delay_ms=0) as running:
        yield running.bootstrap_servers


@pytest.fixture(params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> str:
    place = "servers_of_kafka" if request.param == "kafka" else "kohort_servers"
    return str(request.getfixturevalue(place))


@pytest.fixture
def kohort(servers: str) -> Run:
    return runner(servers)


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


@pytest.fixture
def name(cluster: Cluster) -> str:
    """A topic of two partitions with 5 records, a second apart, in partition 0, and a group that has read three."""
    name = f"acting-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 2, configs={"retention.ms": "-1"})
    cluster.produce(name, 0, [NewRecord(b"k", b"%d" % n, START_MS + 1000 * n) for n in range(5)])
    cluster.commit(name, {(name, 0): 3})
    return name


def committed(cluster: Cluster, group: str) -> dict[int, Committed]:
    return {index: found for (_, index), found in cluster.committed(group).items()}


def test_reset_offsets(kohort: Run, cluster: Cluster, name: str, tmp_path: Any) -> None:
    command = ("groups", "reset-offsets", name)

    def planned(*arguments: str) -> list[tuple[int, int | None, int]]:
        document = kohort(*command, *arguments, "-o", "json")
        return [(row["partition"], row["old"], row["new"]) for row in document["offsets"]]

    assert planned("--to-earliest", "--topic", name) == [(0, 3, 0), (1, None, 0)]
    assert planned("--to-offset", "9", "--all-topics") == [(0, 3, 5)]
    assert planned("--shift-by", "-1", "--all-topics") == [(0, 3, 2)]
    assert planned("--to-datetime", "2023-11-14T22:13:24Z", "--topic", name) == [(0, 3, 4), (1, None, 0)]
    assert planned("--by-duration", "1h", "--topic", f"{name}:0") == [(0, 3, 5)]
    assert "0: 1 at " in kohort(*command, "--to-offset", "1", "--topic", f"{name}:0", "--preview")
    assert committed(cluster, name) == {0: Committed(3)}
    backup = str(tmp_path / "backup")
    done = kohort(*command, "--to-latest", "--topic", name, "--execute", "--yes", "--backup", backup)
    assert f"set 2 offsets of group {name}\n" in done
    assert committed(cluster, name) == {0: Committed(5), 1: Committed(0)}
    kohort(*command, "--from-file", backup, "--execute", "--yes")
    assert committed(cluster, name)[0].offset == 3
    command = ("groups", "reset-offsets", f"{name}x")
    assert f"group {name}x does not exist" in kohort(*command, "--to-latest", "--all-topics", code=1)
    kohort(*command, "--new", "--to-group", name, "--topic", f"{name}:0", "--execute", "--yes")
    assert committed(cluster, f"{name}x") == {0: Committed(3)}
    (move,) = kohort(*command, "--to-current", "--topic", f"{name}:1", "-o", "json")["offsets"]
    assert (move["old"], move["new"]) == (None, 0)


def test_delete_and_delete_offsets(kohort: Run, cluster: Cluster, servers: str, name: str) -> None:
    member = GroupMember(servers, name, {name: (0, 1)})
    try:
        refused = kohort("groups", "delete-offsets", name, "--topic", name, "--yes", code=1)
        assert f"members of group {name} subscribe to the topic; stop them first: {name}[0]\n" in refused
        assert f"group {name} is not empty, it has 1 member: by-hand on " in kohort(
            "groups", "delete", name, "--yes", code=1
        )
        reset = kohort("groups", "reset-offsets", name, "--to-latest", "--all-topics", code=1)
        assert "is inactive, and it is Stable with 1 member: by-hand on " in reset
    finally:
        member.leave()
    assert f"deleted 1 offset of group {name}: {name}[0]\n" in kohort(
        "groups", "delete-offsets", name, "--topic", name, "--yes"
    )
    cluster.commit(name, {(name, 0): 1})
    assert kohort("groups", "delete", name, "--yes").startswith(f"deleted group {name}\n")
    assert kohort("groups", "delete", name, "--yes", code=1).startswith(f"kohort: group {name} does not exist")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_remove_a_member(kohort: Run, cluster: Cluster, servers: str, name: str, protocol: str) -> None:
    settings = {"bootstrap.servers": servers, "group.id": name, "group.protocol": protocol}
    consumers = [
        Consumer({**settings, "client.id": "dynamic"}),
        Consumer({**settings, "client.id": "static", "group.instance.id": "worker-1"}),
    ]

    def members() -> list[str]:
        return sorted(member.client_id for member in cluster.describe_groups([name])[name].members)

    for consumer in consumers:
        consumer.subscribe([name])

    def joined() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        group = cluster.describe_groups([name])[name]
        return group.state == "Stable" and members() == ["dynamic", "static"]

    command = ("groups", "remove-member", name)
    try:
        until(joined, "both members")
        assert "did you mean dynamic?" in kohort(*command, "dinamic", code=1)
        assert "nobody was removed: this is a dry run" in kohort(*command, "dynamic")
        assert members() == ["dynamic", "static"]
        assert "removed dynamic on " in kohort(*command, "dynamic", "--execute", "--yes", "--reason", "a test")
        assert members() == ["static"]
        done = kohort(*command, "--instance-id", "worker-1", "--execute", "--yes", "-o", "json")
        assert [(row["group_instance_id"], row["removed"]) for row in done["members"]] == [("worker-1", True)]
        assert members() == []
        assert "has no members; nobody was removed" in kohort(*command, "--all", code=1)
    finally:
        for consumer in consumers:
            consumer.close()


def test_export_and_import(kohort: Run, cluster: Cluster, name: str, tmp_path: Any) -> None:
    cluster.commit(name, {(name, 1): Committed(0, -1, "mark")})
    file = tmp_path / "offsets"
    file.write_text(kohort("groups", "export", name))
    cluster.delete_group(name)
    (planned,) = kohort("groups", "import", str(file), "-o", "json")
    assert [(row["old"], row["new"]) for row in planned["offsets"]] == [(None, 3), (None, 0)]
    kohort("groups", "import", str(file), "--execute", "--yes")
    assert committed(cluster, name) == {0: Committed(3), 1: Committed(0, -1, "mark")}


def test_alter_a_topic(kohort: Run, cluster: Cluster, name: str) -> None:
    arguments = ("--partitions", "3", "--config", "retention.ms=7", "--delete-config", "cleanup.policy", "--yes")
    changed = kohort("topics", "alter", name, *arguments, "-o", "json")
    assert changed["partitions"] == {"old": 2, "new": 3}
    assert changed["configs"] == {
        "retention.ms": {"old": "-1", "new": "7"},
        "cleanup.policy": {"old": "delete", "new": None},
    }
    until(lambda: len(cluster.topics([name])[name].partitions) == 3, "the third partition")
    configs = {entry.name: entry for entry in cluster.describe_configs([name])[name]}
    assert configs["retention.ms"].value == "7"
    assert not configs["cleanup.policy"].set_on_topic
    assert "did you mean retention.ms?" in kohort("topics", "alter", name, "--config", "retention.mss=7", code=1)


def test_delete_records(kohort: Run, cluster: Cluster, name: str) -> None:
    deleted = kohort("topics", "delete-records", f"{name}:0", "--before", "2", "--yes", "-o", "json")
    assert deleted == [{"topic": name, "partition": 0, "old_start": 0, "new_start": 2}]
    assert cluster.offsets([(name, 0)], "earliest") == {(name, 0): 2}
    assert "nothing was deleted" in kohort(
        "topics", "delete-records", name, "--before-time", "2023-01-01T00:00Z", "--yes"
    )
    kohort("topics", "delete-records", name, "--before", "end", "--yes")
    assert cluster.offsets([(name, 0)], "earliest") == {(name, 0): 5}


def test_lists_patterns_and_the_cluster(kohort: Run, cluster: Cluster, name: str) -> None:
    (listed,) = (row for row in kohort("groups", "list", "--lag", "-o", "json") if row["group"] == name)
    assert (listed["members"], listed["total_lag"]) == (0, 2)
    (described,) = kohort("groups", "describe", f"{name[:-1]}?", "-o", "json")
    assert (described["group"], described["total_lag"]) == (name, 2)
    assert name in {row["group"] for row in kohort("groups", "describe", "--all", "-o", "json")}
    found = kohort("cluster", "describe", "-o", "json")
    assert found["cluster_id"] == cluster.cluster_id()
    assert {node["id"] for node in found["nodes"]} == set(cluster.nodes())
    assert found["topics"] == len(cluster.topics())


def test_topics_and_records(kohort: Run, cluster: Cluster, name: str, tmp_path: Any) -> None:
    topic = f"{name}-b"
    assert kohort("topics", "create", topic, "--partitions", "3") == f"created topic {topic}\n"
    until(lambda: len(cluster.topics([topic])[topic].partitions) == 3, "the topic")
    assert {row["topic"] for row in kohort("topics", "list", "-o", "json")} >= {name, topic}
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    kohort("produce", topic, "-p", "1", "--file", str(lines))
    assert kohort("consume", topic, "--from-beginning", "-e", "-q") == "one\ntwo\n"
    (described,) = kohort("topics", "describe", topic, "-o", "json")
    assert described["topic"] == topic
    kohort("topics", "delete", topic, "--yes")
    until(lambda: topic not in cluster.topics(), "the deletion")
    assert kohort("health").count(" ok ") >= 3


def test_members_states_and_settings(kohort: Run, servers: str, name: str) -> None:
    member = GroupMember(servers, name, {name: (0, 1)})
    try:
        assert "by-hand" in kohort("groups", "describe", name, "--members", "--verbose")
        assert "Stable" in kohort("groups", "describe", name, "--state")
        assert "is a classic group" in kohort("groups", "hold", name, "--for", "1m", code=1)
        assert "consumer.session.timeout.ms" in kohort("groups", "configs", name)
        moves = kohort("groups", "assign", name, "--assignor", "range", "--dry-run")
        assert "nothing was changed" in moves
    finally:
        member.leave()


def test_what_only_kohort_tells(kohort: Run, cluster: Cluster, name: str, request: pytest.FixtureRequest) -> None:
    """The age of a lag, and offsets from before a reset. Against Apache Kafka the commands do without."""
    is_kohort = request.node.callspec.params["servers"] != "kafka"
    [described] = kohort("groups", "describe", name, "-o", "json")
    [row] = described["offsets"]
    assert (row["current_offset"], row["log_end_offset"], row["lag"], row["last_stable_offset"]) == (3, 5, 2, 5)
    assert (row["lag_ms"] is not None, described["lag_as_of_ms"] is not None) == (is_kohort, is_kohort)
    assert ("LAG-TIME" in kohort("groups", "describe", name)) == is_kohort
    assert ("LAG-TIME" in kohort("groups", "list", "--lag")) == is_kohort
    done = kohort("groups", "reset-offsets", name, "--to-earliest", "--all-topics", "--execute", "--yes")
    assert (f"kohort groups restore {name} --before " in done) == is_kohort
    told = kohort("groups", "explain", name, code=0 if is_kohort else 1)
    assert ("set 1 committed offset" in told) == is_kohort
    if is_kohort:
        undo = done.partition("to undo: kohort ")[2].split()
        kohort(*undo, "--execute", "--yes")
        assert committed(cluster, name) == {0: Committed(3)}
    else:
        refused = kohort("groups", "restore", name, "--before", "2026-01-01T00:00Z", code=1)
        assert "nothing was changed" in refused


@pytest.mark.peers
@pytest.mark.timeout(300)
def test_kafkas_own_tool_reads_our_csv_and_we_read_its(
    kohort: Run, cluster: Cluster, servers: str, name: str, tmp_path: Any
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(kohort("groups", "export", name, "-o", "csv"))
    cluster.commit(name, {(name, 0): 1})
    tool = ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", servers)
    plan = ("--group", name, "--reset-offsets", "--from-file", str(file), "--dry-run", "--export")
    file.write_text(java(java_libraries.clients(), *tool, *plan))
    (move,) = kohort("groups", "reset-offsets", name, "--from-file", str(file), "-o", "json")["offsets"]
    assert (move["partition"], move["old"], move["new"]) == (0, 1, 3)


def test_configs(kohort: Run, cluster: Cluster, name: str) -> None:
    topic = f"topic:{name}"

    def own(resource: str) -> dict[str, tuple[str, str]]:
        (found,) = kohort("configs", "describe", resource, "-o", "json")
        return {entry["name"]: (entry["value"], entry["source"]) for entry in found["configs"]}

    assert own(topic)["retention.ms"] == ("-1", "dynamic-topic")
    assert "nothing was changed" in kohort("configs", "set", topic, "retention.ms=9", "--dry-run")
    kohort("configs", "set", topic, "retention.ms=8", "cleanup.policy=compact")
    until(lambda: own(topic)["retention.ms"] == ("8", "dynamic-topic"), "the topic's setting")
    kohort("configs", "unset", topic, "retention.ms")
    until(lambda: own(topic).get("retention.ms", ("", ""))[1] != "dynamic-topic", "the default")
    assert "did you mean retention.ms?" in kohort("configs", "set", topic, "retention.mss=7", code=1)
    setting = "log.cleaner.delete.retention.ms"
    for resource, source in ((f"broker:{max(cluster.nodes())}", "dynamic-broker"), ("brokers", "dynamic-brokers")):
        kohort("configs", "set", resource, f"{setting}=77", "--yes")
        try:
            until(partial(_has, own, resource, setting, ("77", source)), "the broker's setting")
        finally:
            kohort("configs", "unset", resource, setting, "--yes")


def _has(own: Callable[[str], dict[str, tuple[str, str]]], resource: str, name: str, wanted: tuple[str, str]) -> bool:
    return own(resource).get(name) == wanted
