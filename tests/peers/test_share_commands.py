"""The commands that show and change share groups, against Apache Kafka and against kohort."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import java_libraries
import pytest
from command_runner import Run, runner
from group import until
from kafka_peer import EVERYWHERE
from run_java import java
from share_member import ACCEPT, PATIENT, RELEASE, ShareMember

from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
ONLY_KOHORT = (
    "kohort: only kohort delivers finished records again; elsewhere stop the members, and use kohort groups "
    "reset-offsets; nothing is delivered again\n"
)


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(brokers=2, **PATIENT) as running:
        yield running


@pytest.fixture(params=EVERYWHERE)
def servers(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"servers_of_{request.param}"))


@pytest.fixture
def is_kohort(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params["servers"] == "kohort")


@pytest.fixture
def kohort(servers: str) -> Run:
    return runner(servers)


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(servers) as client:
        yield client


@pytest.fixture
def name(cluster: Cluster, unique: str) -> str:
    """A topic and a share group: two partitions with ten records each, which are read from the beginning."""
    name = f"share-{unique}"
    cluster.create_topic(name, 2, configs={"retention.ms": "-1"})
    cluster.alter_group_configs(name, {"share.auto.offset.reset": "earliest"})
    for partition in (0, 1):
        for _ in range(10):
            cluster.produce(name, partition, [NewRecord(None, b"v", 1)])
    cluster.describe_groups([name])  # waits for the coordinator
    return name


@pytest.fixture
def worker(servers: str, cluster: Cluster, name: str) -> Iterator[ShareMember]:
    with ShareMember(servers, name, name, "worker") as member:

        def is_ready() -> bool:
            """Apache Kafka initializes the state of the partitions after the heartbeat that finds them missing."""
            with suppress(KafkaError):
                return len(cluster.share_groups.offsets([name])[name].partitions) == 2
            return False

        until(is_ready, "the state of the partitions")
        yield member


def taken(member: ShareMember, partition: int, records: int) -> list[tuple[int, int, int]]:
    """Apache Kafka answers a fetch that finds a partition whose state is not read yet without records."""
    found: list[tuple[int, int, int]] = []
    until(lambda: found.extend(member.take(partition, records)) or bool(found), "records")
    first, last = found[0][0], found[-1][1]
    assert sum(end - begin + 1 for begin, end, _ in found) == last - first + 1
    assert len({count for *_, count in found}) == 1
    return [(first, last, found[0][2])]


def offsets(kohort: Run, name: str) -> dict[int, tuple[int, int | None]]:
    """The start offset and the unfinished records of each partition, as the command tells them.

    Apache Kafka stores a start offset that has moved with a later change only, so it may tell a lower one."""
    [document] = kohort("groups", "describe", name, "-o", "json")
    return {row["partition"]: (row["start_offset"], row["lag"]) for row in document["offsets"]}


def unfinished(kohort: Run, name: str) -> dict[int, int | None]:
    return {partition: lag for partition, (_, lag) in offsets(kohort, name).items()}


def test_describe(kohort: Run, worker: ShareMember, name: str, is_kohort: bool) -> None:
    assert taken(worker, 0, 6) == [(0, 5, 1)]
    assert worker.ack(0, (0, 1, ACCEPT), (2, 5, RELEASE)) is ErrorCode.NONE
    assert taken(worker, 0, 2) == [(2, 3, 2)]
    assert taken(worker, 1, 1) == [(0, 0, 1)]
    assert worker.ack(1, (0, 0, RELEASE)) is ErrorCode.NONE
    until(lambda: unfinished(kohort, name) == {0: 8, 1: 10}, "the acknowledged records")
    [document] = kohort("groups", "describe", name, "-o", "json")
    assert (document["protocol_type"], document["total_lag"]) == ("share", 18)
    assert (document["in_flight"] == 2) == is_kohort
    shown = " ".join(kohort("groups", "describe", name).split())
    assert f"{name}: Stable, 1 member, 18 unfinished records" in shown
    assert ("2 of them in flight" in shown) == is_kohort
    assert ("what was archived, is not known: the coordinator is not kohort" in shown) != is_kohort
    assert worker.member_id in kohort("groups", "describe", name, "--members")
    assert "Stable" in kohort("groups", "describe", name, "--state")
    [row] = [one for one in kohort("groups", "list", "--lag", "-o", "json") if one["group"] == name]
    assert (row["type"], row["members"], row["total_lag"]) == ("share", 1, 18)
    worker.leave()


def test_release(kohort: Run, servers: str, worker: ShareMember, name: str, is_kohort: bool) -> None:
    assert taken(worker, 0, 3) == [(0, 2, 1)]
    command = ("groups", "release", name)
    dry = kohort(*command, "worker", "--topic", f"{name}:0")
    assert "nothing was released: this is a dry run" in dry
    assert ("what 1 member holds is not known: the coordinator is not kohort" in dry) != is_kohort
    done = kohort(*command, "worker", "--topic", f"{name}:0", "--execute", "--yes")
    what = "3 records of worker" if is_kohort else "what worker held"
    assert f"released {what} in group {name}\n" in done
    with ShareMember(servers, name, name, "other") as other:
        assert taken(other, 0, 3) == [(0, 2, 2)], "another member has them, and the delivery counts"
        assert worker.ack(0, (0, 0, ACCEPT)) is ErrorCode.SHARE_SESSION_NOT_FOUND
        other.leave()
    worker.leave()


def test_only_kohort_delivers_finished_records_again(
    kohort: Run, worker: ShareMember, name: str, is_kohort: bool
) -> None:
    assert taken(worker, 0, 2) == [(0, 1, 1)]
    assert worker.ack(0, (0, 1, ACCEPT)) is ErrorCode.NONE
    command = ("groups", "redeliver", name, "--topic", f"{name}:0", "--offset", "0-1", "--execute", "--yes")
    if is_kohort:
        assert f"2 records of group {name} are delivered again" in kohort(*command)
        assert taken(worker, 0, 2) == [(0, 1, 1)]
    else:
        assert kohort(*command, code=1) == ONLY_KOHORT
        assert kohort("groups", "redeliver", name, "--archived", code=1) == ONLY_KOHORT
        assert "it is not kohort" in kohort("groups", "explain", name, code=1)
    worker.leave()


def test_reset_and_delete(kohort: Run, worker: ShareMember, name: str, is_kohort: bool, tmp_path: Any) -> None:
    assert taken(worker, 0, 4) == [(0, 3, 1)]
    assert worker.ack(0, (0, 3, ACCEPT)) is ErrorCode.NONE
    reset = ("groups", "reset-offsets", name, "--topic", f"{name}:0")
    active = f"offsets can only be changed while group {name} is inactive, and it is Stable with 1 member: worker on "
    assert active in kohort(*reset, "--to-earliest", "--execute", "--yes", code=1)
    not_empty = f"group {name} is not empty, it has 1 member: worker on "
    assert not_empty in kohort("groups", "delete-offsets", name, "--topic", name, "--yes", code=1)
    assert not_empty in kohort("groups", "delete", name, "--yes", code=1)
    worker.leave()
    until(lambda: unfinished(kohort, name)[0] == 6, "the acknowledged records")
    before = offsets(kohort, name)[0]
    assert before[0] == (4 if is_kohort else 0)
    assert "everything from the new offsets on is delivered again" in kohort(*reset, "--to-offset", "1")
    assert offsets(kohort, name)[0] == before, "a dry run"
    backup = str(tmp_path / "old.json")
    done = kohort(*reset, "--to-offset", "1", "--execute", "--yes", "--backup", backup)
    assert f"set 1 offset of group {name}\n" in done
    assert offsets(kohort, name)[0] == (1, 9)
    kohort("groups", "reset-offsets", name, "--from-file", backup, "--execute", "--yes")
    assert offsets(kohort, name)[0] == (before[0], 10 - before[0])
    deleted = kohort("groups", "delete-offsets", name, "--topic", name, "--yes")
    assert deleted == f"deleted the offsets of group {name} in {name}\n"
    assert offsets(kohort, name) == {}
    again = kohort("groups", "delete-offsets", name, "--topic", name, "--yes", code=1)
    assert again == f"kohort: group {name} does not read topic {name}; nothing was deleted\n"
    assert kohort("groups", "delete", name, "--yes") == f"deleted group {name}\n"
    assert f"group {name} does not exist" in kohort("groups", "describe", name, code=1)


@pytest.mark.peers
@pytest.mark.timeout(300)
def test_kafkas_own_tool_tells_the_same(kohort: Run, servers: str, worker: ShareMember, name: str) -> None:
    def tool(*arguments: str) -> list[list[str]]:
        """The words of each line that begins with the group's or the topic's name."""
        out = java(java_libraries.kafka(), TOOL, "--bootstrap-server", servers, *arguments)
        return [line.split() for line in out.splitlines() if line.startswith(name)]

    def of_tool() -> dict[int, tuple[int, int | None]]:
        rows = tool("--describe", "--group", name)
        return {int(row[2]): (int(row[3]), int(row[4])) for row in rows}

    assert taken(worker, 0, 4) == [(0, 3, 1)]
    assert worker.ack(0, (0, 1, ACCEPT), (2, 3, RELEASE)) is ErrorCode.NONE
    assert taken(worker, 1, 1) == [(0, 0, 1)]
    assert worker.ack(1, (0, 0, RELEASE)) is ErrorCode.NONE
    until(lambda: unfinished(kohort, name) == {0: 8, 1: 10}, "the acknowledged records")
    assert of_tool() == offsets(kohort, name)
    [member] = tool("--describe", "--group", name, "--members")
    assert worker.member_id in member
    [state] = tool("--describe", "--group", name, "--state")
    assert "Stable" in state
    worker.leave()
    plan = ("--reset-offsets", "--group", name, "--topic", name, "--to-latest")
    planned = {int(row[2]): int(row[3]) for row in tool(*plan, "--dry-run")}
    moves = kohort("groups", "reset-offsets", name, "--topic", name, "--to-latest", "-o", "json")["offsets"]
    assert planned == {move["partition"]: move["new"] for move in moves} == {0: 10, 1: 10}
    kohort("groups", "reset-offsets", name, "--topic", name, "--to-latest", "--execute", "--yes")
    assert of_tool() == offsets(kohort, name) == {0: (10, 0), 1: (10, 0)}
    kohort("groups", "delete-offsets", name, "--topic", name, "--yes")
    assert of_tool() == {}
    kohort("groups", "delete", name, "--yes")
    assert [name] not in tool("--list")
