"""KohortServer and the pytest plugin, as users of the package use them in their own tests."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.client.cluster import Cluster
from kohort.config import ConfigError
from kohort.testing import KohortServer

pytest_plugins = ["pytester"]


def topics(server: KohortServer) -> list[str]:
    with Cluster(server.bootstrap_servers) as cluster:
        return sorted(cluster.topics())


def create(server: KohortServer, name: str, partitions: int = 1) -> None:
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic(name, partitions=partitions)


def test_the_server_starts_quickly() -> None:
    with KohortServer():
        pass  # the imports are paid once a process
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        with KohortServer(brokers=3):
            took.append(time.perf_counter() - began)
    assert min(took) < 0.15, took  # the best of five: the machine may be busy


def test_settings_are_the_configurations_attributes() -> None:
    with KohortServer(num_partitions=7, default_replication_factor=2, brokers=2, broker_id=10) as server:
        assert server.broker_ids == [10, 11]
        assert len(set(server.bootstrap_servers.split(","))) == 2
    with pytest.raises(ConfigError, match=r"num\.partitions is 0"):
        KohortServer(num_partitions=0)
    with pytest.raises(TypeError, match="frobnicate"):
        KohortServer(frobnicate=1)
    with pytest.raises(TypeError, match="KohortServer: unknown setting num_partition; did you mean num_partitions"):
        KohortServer(**{"num.partition": 6})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"num_partitions": "abc"}, "num.partitions is 'abc'; it takes a whole number"),
        ({"num.partitions": "6"}, "num.partitions is '6'; it takes a whole number"),
        ({"num_partitions": True}, "num.partitions is True; it takes a whole number"),
        ({"num_partitions": 2.5}, "num.partitions is 2.5; it takes a whole number"),
        ({"memory_max_bytes": None}, "memory.max.bytes is None; it takes a whole number"),
        ({"auto_create_topics_enable": "false"}, "auto.create.topics.enable is 'false'; it takes True or False"),
        ({"broker_rack": 1}, "broker.rack is 1; it takes a string"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KohortServer(**settings)
    assert str(refused.value) == told


def test_files_are_named_by_paths_too(tmp_path: Path) -> None:
    KohortServer(data_dir=tmp_path / "data", ssl_keystore_location=tmp_path / "server.pem")


def test_a_server_says_what_it_is() -> None:
    server = KohortServer()
    assert repr(server) == "<KohortServer 127.0.0.1:0, stopped>"
    with server:
        assert repr(server) == f"<KohortServer {server.bootstrap_servers}, running>"
        with pytest.raises(ValueError, match="group_protocol is 'share'; it takes classic or consumer"):
            server.client_config("billing", group_protocol="share")  # type: ignore[arg-type]


def test_memory_is_kept_over_restarts_and_crashes() -> None:
    with KohortServer() as server:
        address = server.bootstrap_servers
        create(server, "kept")
        server.restart()
        assert topics(server) == ["kept"]
        server.kill()
        server.start()
        assert topics(server) == ["kept"]
        assert server.bootstrap_servers == address
    with KohortServer() as another:
        assert topics(another) == []


def test_a_stopped_server_keeps_its_ports() -> None:
    with KohortServer(brokers=2, http_listener="127.0.0.1:0") as server:
        held = [*server.bootstrap_servers.split(","), server.http_address]
        server.kill()
        for address in held:
            host, _, port = address.rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=5)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))
        server.start()
        assert [*server.bootstrap_servers.split(","), server.http_address] == held
    for address in held:
        host, _, port = address.rpartition(":")
        socket.create_server((host, int(port))).close()


def test_a_data_directory_is_kept_beyond_the_server(tmp_path: Path) -> None:
    with KohortServer(data_dir=tmp_path) as server:
        assert server.data_dir == tmp_path
        create(server, "kept")
        server.kill()
    with KohortServer(data_dir=str(tmp_path)) as server:
        assert topics(server) == ["kept"]


def test_a_failed_start_says_why_and_can_be_repeated(tmp_path: Path) -> None:
    with KohortServer(data_dir=tmp_path) as first:
        second = KohortServer(data_dir=tmp_path)
        with pytest.raises(Exception, match="in use"):
            second.start()
        with pytest.raises(RuntimeError, match="is not running"):
            second.bootstrap_servers  # noqa: B018
        with pytest.raises(RuntimeError, match="already running"):
            first.start()
        first.stop()
        with second:
            assert topics(second) == []
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Exception, match="the port is in use"):
        KohortServer(listeners=f"127.0.0.1:{taken.getsockname()[1]}").start()


def test_a_broker_goes_and_comes_back() -> None:
    with KohortServer(brokers=3) as server:
        host, _, port = server.bootstrap_servers.split(",")[1].rpartition(":")
        server.stop_broker(2)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
        server.start_broker(2)
        socket.create_connection((host, int(port)), timeout=5).close()
        with pytest.raises(ValueError, match="no broker 4"):
            server.start_broker(4)


def test_leaders_and_coordinators_move() -> None:
    with KohortServer(brokers=2) as server:
        create(server, "moving", partitions=2)
        for to_broker in (2, 1, 2):
            server.move_partition("moving", 0, to_broker)
            with Cluster(server.bootstrap_servers) as cluster:
                assert cluster.topics()["moving"].partitions[0].leader == to_broker
        server.move_group("billing", 2)
        for wrong in (("absent", 0, 1), ("moving", 9, 1), ("moving", 0, 9)):
            with pytest.raises(ValueError, match="there is no"):
                server.move_partition(*wrong)
        with pytest.raises(ValueError, match="no broker 9"):
            server.move_group("billing", 9)
        assert topics(server) == ["moving"]


def test_servers_leave_nothing_behind(kohort_server_factory: Callable[..., KohortServer]) -> None:
    before = threading.active_count()
    server = kohort_server_factory()
    assert threading.active_count() > before
    server.stop()
    server.stop()
    assert threading.active_count() == before


def test_the_plugin_imports_nothing_heavy() -> None:
    program = (
        "import sys, kohort.testing.plugin\n"
        "wrong = {'kohort.server', 'kohort.broker', 'kohort.testing.server', 'uvloop', 'asyncio', 'sqlite3'} "
        "& set(sys.modules)\n"
        "assert not wrong, wrong"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_the_fixtures_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import socket

        def reach(address):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()

        def test_one(kohort_server):
            reach(kohort_server.bootstrap_servers)

        def test_made_to_order(kohort_server_factory):
            servers = [kohort_server_factory(), kohort_server_factory(brokers=2)]
            for server in servers:
                for address in server.bootstrap_servers.split(","):
                    reach(address)
        """
    )
    pytester.runpytest_subprocess("-q", timeout=60).assert_outcomes(passed=2)
