"""`kohort health` against a server, over HTTP and by the protocol."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from run_command import Ran
from typer.testing import CliRunner

from kohort.cli.commands import app
from kohort.cli.health import _address, _of_cluster
from kohort.client.metadata import Node, Partition, Topic
from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(http_listener="127.0.0.1:0", brokers=2) as running:
        running.create_topic("orders", 4, replication_factor=2)
        yield running


def health(*arguments: str, code: int = 0, **environment: str) -> Ran:
    result = CliRunner().invoke(app, ["health", *arguments], env=environment)
    ran = Ran(result.exit_code, result.stdout, result.stderr)
    assert ran.code == code, ran
    assert "Traceback" not in ran.err
    return ran


def checks(ran: Ran) -> dict[str, tuple[bool, str]]:
    document = json.loads(ran.out)
    assert document["healthy"] == (ran.code == 0)
    return {check["name"]: (check["ok"], check["text"]) for check in document["checks"]}


def test_over_http(server: KohortServer) -> None:
    found = checks(health("--http", server.http_address, "-o", "json"))
    assert found["listening"] == (True, "2 of 2 brokers")
    assert found["running"][0]
    assert set(checks(health("--http", server.http_address, "--live", "-o", "json"))) == {"turns", "storage"}
    table = health(KOHORT_HTTP_LISTENER=server.http_address.replace("127.0.0.1", "0.0.0.0")).out
    assert table.splitlines()[0].split() == ["CHECK", "STATE", "FOUND"]
    assert max(map(len, table.splitlines())) <= 80


def test_not_ready_over_http(server: KohortServer) -> None:
    server.stop_broker(2)
    found = checks(health("--http", server.http_address, "-o", "json", code=1))
    assert found["listening"] == (False, "the listeners of broker 2 are down")
    assert "failed" in health("--http", server.http_address, code=1).out
    health("--http", server.http_address, "--live")
    server.start_broker(2)


def test_by_the_protocol(server: KohortServer) -> None:
    found = checks(health("-b", server.bootstrap_servers, "-o", "json"))
    assert found["brokers"] == (True, "2 of 2 answer")
    assert found["controller"] == (True, "broker 1")
    assert found["leaders"][1].endswith("partitions have a leader")
    assert found["groups"] == (True, "the coordinators answer; 0 groups rebalancing")


def test_a_broker_that_does_not_answer(server: KohortServer) -> None:
    server.stop_broker(2)
    found = checks(health("-b", server.bootstrap_servers.split(",")[0], "-o", "json", code=1))
    second = server.bootstrap_servers.split(",")[1]
    assert found["brokers"] == (False, f"1 of 2 answer; not 2 at {second}")
    assert "groups" not in found
    server.start_broker(2)


class Unwell:
    """A cluster in which two of three partitions are not as they should be."""

    def nodes(self) -> dict[int, Node]:
        return {1: Node(1, "a", 9092)}

    def connection(self, node_id: int) -> None: ...

    def controller_id(self) -> int:
        return -1

    def topics(self, *, internal: bool) -> dict[str, Topic]:
        assert internal
        leaders_and_isr = [(1, (1, 2)), (-1, ()), (1, (1,))]
        partitions = [Partition("t", n, leader, 0, (1, 2), isr) for n, (leader, isr) in enumerate(leaders_and_isr)]
        return {"t": Topic("t", tuple(partitions))}

    def list_groups(self, *, states: tuple[str, ...]) -> list[object]:
        return [object()]


def test_a_cluster_that_is_not_well() -> None:
    assert _of_cluster(Unwell()) == [  # type: ignore[arg-type]
        ("brokers", True, "1 of 1 answer"),
        ("controller", False, "none"),
        ("leaders", False, "2 of 3 partitions have a leader; not t-1"),
        ("replicas", False, "1 of 3 partitions is in sync; not t-1, t-2"),
        ("groups", True, "the coordinators answer; 1 group rebalancing"),
    ]


def test_what_cannot_be_reached_is_exit_code_3() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        assert (
            f"cannot reach http://{nobody}/readyz: connection refused; check --http"
            in health("--http", nobody, code=3).err
        )
        assert len(health("-b", nobody, code=3).err.splitlines()) == 1


def test_a_server_without_room_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.cli.connect.BOOTSTRAP_TIMEOUT_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as full:
        ran = health("-b", f"127.0.0.1:{full.getsockname()[1]}", code=3)
    assert "takes connections and does not answer" in ran.err
    assert "max.connections" in ran.err


def test_a_listener_on_all_addresses_is_asked_on_loopback() -> None:
    for value in (":1", "*:1", "0.0.0.0:1", "127.0.0.1:1"):
        assert _address(value) == "127.0.0.1:1"
    assert _address("[::]:1") == _address("[::1]:1") == "[::1]:1"
    assert _address("a:1") == "a:1"


def test_another_server_is_no_health(server: KohortServer) -> None:
    kafka = server.bootstrap_servers.split(",")[0]
    assert len(health("--http", kafka, code=3).err.splitlines()) == 1


def test_wrong_usage() -> None:
    for arguments in (["--live"], ["--http", "nonsense:port"], ["--http", "localhost"], ["--http", "a:1,b:2"]):
        assert arguments[0] in health(*arguments, code=2).err
