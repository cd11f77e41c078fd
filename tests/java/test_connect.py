"""Kafka Connect's distributed workers on kohort: a group of protocol type `connect`, whose bytes only Connect reads.

Two workers share four connectors, each of which copies the lines of a file into a topic. One worker is killed; the
other goes on with everything.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench._kafka import free_ports
from group import until as until_in_time
from matrix_stage import recorded_server
from run_java import running

from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.testing import KohortServer
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

pytestmark = [pytest.mark.java, pytest.mark.matrix, pytest.mark.timeout(600)]

GROUP, TOPIC = "connect-cluster", "lines"
CONNECTORS = tuple(f"file-{n}" for n in range(4))
PATIENCE_S = 120
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


@pytest.mark.program("Kafka Connect", "two distributed workers share four connectors; one worker is killed")
def test_two_workers_one_of_them_killed(classpath: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.txt" for name in CONNECTORS}
    with (
        recorded_server("kafka-connect", group_min_session_timeout_ms=1_000) as server,
        Cluster(server.bootstrap_servers) as cluster,
        worker(classpath, server, tmp_path / "first") as first,
        worker(classpath, server, tmp_path / "second") as second,
    ):
        until(lambda: members(cluster) == 2)
        described = cluster.describe_groups([GROUP])[GROUP]
        assert (described.protocol_type, described.protocol) == ("connect", "sessioned")
        for name, path in files.items():
            path.write_text(f"{name} before\n")
            configured(first, name, path)
        until(lambda: set(running_tasks(first).values()) == {first.name, second.name})
        until(lambda: lines(cluster) == {f"{name} before" for name in CONNECTORS})
        until(lambda: bytes_are_connects(cluster, first, second))

        second.process.kill()
        second.process.wait()
        for name, path in files.items():
            with path.open("a") as file:
                file.write(f"{name} after\n")
        until(lambda: running_tasks(first) == dict.fromkeys(CONNECTORS, first.name))
        until(lambda: lines(cluster) == {f"{name} {when}" for name in CONNECTORS for when in ("before", "after")})
        assert members(cluster) == 1


class Worker:
    """A worker's process, and where its REST interface listens."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.name = f"127.0.0.1:{port}"
        """The worker's name in Connect."""

    def ask(self, path: str, body: object = None) -> Any:
        """The answer; None where it has none now, as during a rebalance."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self.name}{path}", data, {"Content-Type": "application/json"}, method="PUT" if data else "GET"
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409, 500, 503):
                return None
            raise


@contextmanager
def worker(classpath: str, server: KohortServer, folder: Path, **more: str) -> Iterator[Worker]:
    """`more`: further settings, with `_` for `.`."""
    folder.mkdir()
    [port] = free_ports(1)
    settings = {
        "bootstrap.servers": server.bootstrap_servers,
        "group.id": GROUP,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "1000",
        "plugin.discovery": "only_scan",
    }
    for topic in ("config", "offset", "status"):
        settings |= {f"{topic}.storage.topic": f"connect-{topic}", f"{topic}.storage.replication.factor": "1"}
    settings |= {"offset.storage.partitions": "2", "status.storage.partitions": "2"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    program = ("org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
    with running(classpath, folder / "log", *program) as process:
        yield Worker(process, port)


def configured(worker: Worker, name: str, path: Path, kind: str = "Source", **more: str) -> None:
    """A connector that copies between a file and the topic. `more`: further settings, with `_` for `.`."""
    config = {
        **{setting.replace("_", "."): value for setting, value in more.items()},
        "connector.class": f"org.apache.kafka.connect.file.FileStream{kind}Connector",
        "file": str(path),
        "topic" if kind == "Source" else "topics": TOPIC,
    }
    until(lambda: worker.ask(f"/connectors/{name}/config", config) is not None)


def running_tasks(worker: Worker) -> dict[str, str]:
    """Which worker runs a connector's task, for those that run."""
    found = {}
    for name in worker.ask("/connectors") or ():
        status = worker.ask(f"/connectors/{name}/status")
        for task in [] if status is None else status["tasks"]:
            if task["state"] == "RUNNING":
                found[name] = task["worker_id"]
    return found


def members(cluster: Cluster) -> int:
    """The number of members of the group if it is stable, else 0."""
    group = cluster.describe_groups([GROUP])[GROUP]
    return len(group.members) if group.state == "Stable" else 0


def lines(cluster: Cluster) -> set[str]:
    fetched = cluster.fetch({(TOPIC, 0): 0}, max_wait_ms=0) if TOPIC in cluster.topics() else []
    return {(record.value or b"").decode() for part in fetched for record in records(part, 0)}


def bytes_are_connects(cluster: Cluster, *workers: Worker) -> bool:
    """Whether what members say of themselves and are assigned came through: the addresses of both, and of a leader."""
    request = DescribeGroupsRequest(groups=(GROUP,))
    answers = (cluster.connection(node).request(request, DescribeGroupsResponse) for node in cluster.nodes())
    [group] = [group for answer in answers for group in answer.groups if group.members]
    names = {worker.name.encode() for worker in workers}
    said = b"".join(bytes(member.member_metadata) for member in group.members)
    leaders = [{name for name in names if name in bytes(member.member_assignment)} for member in group.members]
    return all(name in said for name in names) and len(leaders[0]) == 1 and leaders[1:] == leaders[:1]


def until(holds: Callable[[], bool]) -> None:
    until_in_time(holds, "a step of the workers", PATIENCE_S)
