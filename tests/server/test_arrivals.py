"""Limits of new connections: those above max.connections and max.connection.creation.rate wait, others are closed."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest
from edges import Edge, Wire, eventually

from kohort.config import ConfigError, per_host
from kohort.server import arrivals
from kohort.testing import KohortServer, ManualClock

TWO = {
    "listeners": "INT://127.0.0.1:0,EXT://127.0.0.1:0",
    "listener.security.protocol.map": "INT:PLAINTEXT,EXT:PLAINTEXT",
}


def is_served(wire: Wire, limit_s: float = 10) -> bool:
    wire.settimeout(limit_s)
    try:
        return wire.ask(b"hello") == [b"hello"]
    except TimeoutError:
        return False


def wire_of(edge: Edge, listener: str) -> Wire:
    return Wire(edge.bootstrap_servers_of(listener))


def close_all(wires: list[Wire]) -> None:
    for wire in wires:
        wire.close()


@pytest.mark.conformance("Q6")
def test_above_max_connections_a_connection_waits_and_nobody_else(
    edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(max_connections=2)
    with caplog.at_level(logging.INFO, "kohort"), edge.wire() as first, edge.wire() as second, ExitStack() as stack:
        assert is_served(first)
        assert is_served(second)
        waiting = [stack.enter_context(edge.wire()) for _ in range(3)]
        waiting[0].push(b"waiting")
        assert not is_served(waiting[1], 0.05)
        assert is_served(first), "open connections are served"
        first.close()
        assert waiting[0].pull() == b"waiting"
        assert len(edge.connections) == 2
        waiting[1].close()  # it gives up: the next one takes the next place
        second.close()
        assert is_served(waiting[2])
        assert len(edge.connections) == 2
    assert 'connections wait listener=PLAINTEXT reason="2 connections are open (max.connections)"' in caplog.messages
    eventually(lambda: len(edge.connections) == 0)


@pytest.mark.conformance("Q6")
def test_a_listener_may_have_a_limit_of_its_own(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(**TWO, **{"listener.name.ext.max.connections": 1})
    with wire_of(edge, "EXT") as outside, wire_of(edge, "EXT") as waiting, wire_of(edge, "INT") as inside:
        assert is_served(outside)
        waiting.push(b"waiting")
        assert is_served(inside)
        outside.close()
        assert waiting.pull() == b"waiting"


@pytest.mark.conformance("Q6")
def test_max_connections_that_is_lowered_closes_what_is_silent_for_longest(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(connections_max_idle_ms=400_000)
    edge.connections._sweep_every_s = 0.02
    wires = [edge.wire() for _ in range(4)]
    for wire in (*wires, wires[0]):
        assert is_served(wire)
        time.sleep(0.002)  # their times differ
    edge.change(max_connections=2)
    assert wires[1].is_closed
    assert wires[2].is_closed
    assert is_served(wires[0])
    assert is_served(wires[3])
    close_all(wires)


def test_a_connection_that_is_opening_closes_no_other_one(edge_of: Callable[..., Edge]) -> None:
    """It counts twice for a moment, also when as many are open as may be."""
    edge = edge_of(max_connections=2)
    with edge.wire() as first, edge.wire() as second:
        assert is_served(first)
        assert is_served(second)

        def sweep() -> None:
            edge.connections.arriving("PLAINTEXT", 1)
            edge.connections._close_excess()
            edge.connections.arriving("PLAINTEXT", -1)

        edge.call(sweep)
        assert is_served(first)
        assert is_served(second)


@pytest.mark.conformance("Q6")
@pytest.mark.parametrize("setting", ["max.connection.creation.rate", "listener.name.ext.max.connection.creation.rate"])
def test_above_the_rate_a_listener_waits_and_refuses_nothing(
    edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    """Ten are within the rate. Each further one waits for a second of the event loop."""
    edge = edge_of(**TWO, **{setting: 1, "quota.window.size.seconds": 1})
    others = "INT" if setting.startswith("listener") else ""
    with ExitStack() as stack:
        began = time.monotonic()
        wires = [stack.enter_context(wire_of(edge, "EXT")) for _ in range(10)]
        assert all(map(is_served, wires))
        edge.call(lambda: wire_of(edge, "EXT").close())  # it has gone before it is accepted
        late = stack.enter_context(wire_of(edge, "EXT"))
        late.push(b"late")
        assert not others or is_served(stack.enter_context(wire_of(edge, others)), 0.5)
        assert is_served(wires[0], 0.5)
        assert late.pull() == b"late"
        assert time.monotonic() - began > 0.9
    waited = [line for line in caplog.messages if "connections wait" in line]
    assert len(waited) == 1, "the connection that was closed did not count"
    assert "listener=EXT" in waited[0]
    assert "max.connection.creation.rate" in waited[0]


@pytest.mark.conformance("Q6")
def test_an_address_has_a_limit_and_may_have_one_of_its_own(
    edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture
) -> None:
    for settings in (
        {"max_connections_per_ip": 1},
        {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": "10.0.0.1:5, localhost : 1"},
        {"max_connections_per_ip_overrides": "::ffff:127.0.0.1:1"},
    ):
        edge = edge_of(**settings)
        with caplog.at_level(logging.INFO, "kohort"), edge.wire() as first, edge.wire() as second:
            assert is_served(first)
            assert second.is_closed
            assert is_served(first)
    refused = [line for line in caplog.messages if "connection refused" in line]
    assert len(refused) == 3
    assert all("1 connections from this address are open (max.connections.per.ip)" in line for line in refused)


def test_limits_of_addresses_are_read_or_refused() -> None:
    assert per_host("10.0.0.1:5,[::1]:6,::2:7,a-b.example.org:8,") == {
        "10.0.0.1": 5,
        "::1": 6,
        "::2": 7,
        "a-b.example.org": 8,
    }
    for text in ("10.0.0.1", "10.0.0.1:many", "10.0.0.1:-1", ":5", "a b:5", "a:99999999999"):
        with pytest.raises(ConfigError, match="it takes ADDRESS:CONNECTIONS, comma separated"):
            KohortServer(max_connections_per_ip_overrides=text)
    with pytest.raises(ConfigError, match="nobody could connect"):
        KohortServer(max_connections_per_ip=0)
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides names no\.invalid: "):
        KohortServer(max_connections_per_ip_overrides="no.invalid:5").start()


def test_a_lack_of_files_is_waited_for(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "PAUSE_S", 0.02)
    [acceptor] = (listener._acceptor for listener in edge.listeners_of_server)
    [listening] = acceptor._sockets

    class Failing:
        times = 2

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            self.times -= 1
            if self.times >= 0:
                raise OSError(24, "Too many open files")
            return listening.accept()  # type: ignore[no-any-return]

    failing, accept = Failing(), acceptor._accept
    monkeypatch.setattr(type(acceptor), "_accept", lambda self, _: accept(failing))
    edge.call(acceptor._resume)
    with edge.wire() as wire:
        assert is_served(wire)
    assert failing.times < 0


def test_a_server_stops_while_connections_wait() -> None:
    with KohortServer(max_connections=1, clock=ManualClock()) as server:
        with Wire(server.bootstrap_servers) as first, Wire(server.bootstrap_servers) as waiting:
            first.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")  # ApiVersions v0
            assert first.recv(4)
            server.stop()
            assert waiting.is_closed
        server.start()
        with Wire(server.bootstrap_servers) as again:
            again.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
            assert again.recv(4)


def test_a_listener_that_goes_down_while_clients_connect_leaves_no_connection(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(brokers=2)
    host, _, port = edge.bootstrap_servers.split(",")[0].rpartition(":")
    over = threading.Event()

    def connect() -> None:
        while not over.is_set():
            with suppress(OSError):
                socket.create_connection((host, int(port)), 1).close()

    clients = [threading.Thread(target=connect) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        for _ in range(5):
            edge.stop_broker(1)
            assert not edge.connections.of_broker(1)
            edge.start_broker(1)
    finally:
        over.set()
        for client in clients:
            client.join()
    eventually(lambda: not len(edge.connections) and not edge.connections._arriving)
    assert not any(edge.connections._of_listener.values())
