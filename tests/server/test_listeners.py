"""Several listeners of a broker: each client gets the addresses of the listener that it came by."""

from __future__ import annotations

import socket

import pytest
from process import run_to_its_end

from kohort.client.cluster import Cluster
from kohort.config import Address, ConfigError
from kohort.server.listeners import check_secured
from kohort.testing import KohortServer

TWO = {
    "listeners": "INT://127.0.0.1:0,EXT://127.0.0.1:0",
    "listener.security.protocol.map": "INT:PLAINTEXT,EXT:PLAINTEXT",
}
EXT = {"listener.security.protocol.map": "EXT:PLAINTEXT"}


def addresses_at(bootstrap: str) -> set[str]:
    """The addresses of all brokers, as Metadata and DescribeCluster tell them."""
    with Cluster(bootstrap, api_timeout_ms=5_000) as cluster:
        return {f"{node.host}:{node.port}" for node in cluster.nodes().values()}


@pytest.mark.conformance("AU15")
def test_each_client_gets_the_addresses_of_its_listener() -> None:
    with KohortServer(brokers=2, **TWO) as server:
        inside, outside = (server.bootstrap_servers_of(name) for name in ("INT", "EXT"))
        assert len({*inside.split(","), *outside.split(",")}) == 4
        for bootstrap in (inside, outside):
            assert addresses_at(bootstrap) == set(bootstrap.split(","))
        server.restart()
        assert server.bootstrap_servers_of("EXT") == outside


def test_each_listener_has_its_advertised_addresses() -> None:
    told = {"advertised.listeners": "INT://127.0.0.1,EXT://kafka.example.org:9094"}
    with KohortServer(**TWO, **told) as server:
        assert server.bootstrap_servers_of("EXT") == "kafka.example.org:9094"
        outside = server.listeners.partition(",EXT://")[2]
        assert addresses_at(outside) == {"kafka.example.org:9094"}
        assert addresses_at(server.bootstrap_servers) == {server.bootstrap_servers}


def test_a_broker_that_goes_down_closes_all_its_listeners() -> None:
    with KohortServer(brokers=2, **TWO) as server:
        server.stop_broker(1)
        for name in ("INT", "EXT"):
            first, second = (
                (host, int(port))
                for host, _, port in (a.rpartition(":") for a in server.bootstrap_servers_of(name).split(","))
            )
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(first, 5)
            socket.create_connection(second, 5).close()
        server.start_broker(1)
        assert addresses_at(server.bootstrap_servers_of("EXT")) == set(server.bootstrap_servers_of("EXT").split(","))


@pytest.mark.parametrize("host", ["0.0.0.0", "", "[::]"])
def test_an_open_listener_without_tls_and_sasl_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"allow\.insecure\.listeners=true") as refused:
        KohortServer(listeners=f"{host}:0").start()
    for line in (f"listeners=SASL_SSL://{host}:0", "ssl.keystore.location=", "sasl.enabled.mechanisms="):
        assert line in str(refused.value)


def test_an_open_listener_may_be_allowed() -> None:
    with KohortServer(listeners="0.0.0.0:0", advertised_listeners="127.0.0.1", allow_insecure_listeners=True) as server:
        assert addresses_at(server.bootstrap_servers) == {server.bootstrap_servers}


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_clients_get_no_address_that_they_cannot_connect_to(host: str) -> None:
    with pytest.raises(ConfigError, match=r"set advertised\.listeners=HOST:PORT") as refused:
        KohortServer(listeners=f"EXT://{host}:0", allow_insecure_listeners=True, **EXT).start()
    assert f"the listener EXT at {host}:" in str(refused.value)


def test_a_listener_without_a_host_tells_the_name_of_the_machine() -> None:
    with KohortServer(listeners=":0", allow_insecure_listeners=True) as server:
        host, _, port = server.bootstrap_servers.rpartition(":")
        assert host in (socket.gethostname(), "127.0.0.1")
        assert int(port) > 0


def test_all_addresses_of_a_name_count() -> None:

    check_secured("PLAINTEXT", Address("localhost", 1), ["127.0.0.1", "::1", "127.9.9.9"])
    for other in ("10.0.0.1", "fe80::1%eth0", "2001:db8::1"):
        with pytest.raises(ConfigError, match="name:1"):
            check_secured("PLAINTEXT", Address("name", 1), ["127.0.0.1", other])


def test_the_process_says_what_to_do() -> None:
    ended = run_to_its_end("--in-memory", "--listeners", ":0")
    assert ended.returncode == 2
    assert "allow.insecure.listeners=true" in ended.stderr
