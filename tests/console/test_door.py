"""Connections that do nothing do not keep others out."""

from __future__ import annotations

import http.client
import socket
import ssl
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from served import ServedConsole

from kohort.cli.console.tls import Certificate
from kohort.console import door as doors
from kohort.console.door import Door, network_of
from kohort.security.certificates import SERVER, development_certificates, write_certificates
from kohort.testing import KohortServer

PATIENCE_S = 60.0


@pytest.fixture
def door() -> Iterator[Door]:
    with Door(socket.create_server(("127.0.0.1", 0)), most=2) as made:
        yield made


def enter(door: Door) -> tuple[socket.socket, socket.socket]:
    """Both ends of a new connection."""
    ours = socket.create_connection(door.getsockname(), PATIENCE_S)
    return ours, door.accept()[0]


def test_the_one_without_a_request_for_longest_ends(door: Door) -> None:
    with ExitStack() as stack:
        (first, theirs), (second, _), *_ = pairs = [enter(door), enter(door)]
        for end in (end for pair in pairs for end in pair):
            stack.enter_context(end)
        door.heard(first.getsockname())
        third = [stack.enter_context(end) for end in enter(door)]
        assert second.recv(1) == b"", "it has ended"
        theirs.close()
        fourth = [stack.enter_context(end) for end in enter(door)]
        for ours, other in (third, fourth):
            other.send(b"x")
            assert ours.recv(1) == b"x", "one that was closed makes room first"


def test_one_that_is_gone_already(door: Door) -> None:
    with ExitStack() as stack:
        for _ in range(5):
            ours, theirs = enter(door)
            stack.enter_context(theirs)
            ours.close()
        door.heard(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.8.7", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::2", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::1", "loopback"),
        ("-", "-"),
    ],
)
def test_addresses_that_one_machine_can_choose_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_largest_network_makes_room() -> None:
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3"]
    with Door(socket.create_server(("127.0.0.1", 0)), most=len(hosts)) as door, ExitStack() as stack:
        for number, host in enumerate(hosts):
            ours, theirs = map(stack.enter_context, socket.socketpair())
            ours.settimeout(PATIENCE_S)
            door._open[host, number] = theirs
            if number == 1:
                oldest = ours
        for end in enter(door):
            stack.enter_context(end)
        assert oldest.recv(1) == b""
        assert [number for _, number in door._open][:4] == [0, 2, 3, 4], "the network with most, its oldest"


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na"]
)
def test_a_flood_of_connections(server: KohortServer, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("kohort.console.serve.Door", partial(Door, most=5))
    with ServedConsole(server.bootstrap_servers) as console, ExitStack() as stack:
        host, port = console.url.removeprefix("http://").split(":")
        flood = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(20)]
        for one in flood:
            try:
                one.sendall(sent)
            except OSError:  # ended already
                continue
        with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)) as page:
            page.request("GET", "/")
            assert page.getresponse().read()
        for one in flood[:10]:
            assert ended(one)


def test_a_flood_of_handshakes(server: KohortServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.console.serve.Door", partial(Door, most=5))
    write_certificates(tmp_path, *development_certificates(("localhost",), (), 1))
    context = Certificate(str(tmp_path / SERVER)).context
    with ServedConsole(server.bootstrap_servers, tls=context) as console, ExitStack() as stack:
        host, port = console.url.removeprefix("https://").split(":")
        flood = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(20)]
        trusting = ssl._create_unverified_context()
        with closing(http.client.HTTPSConnection(host, int(port), timeout=PATIENCE_S, context=trusting)) as page:
            page.request("GET", "/")
            assert page.getresponse().status == 200
        for one in flood[:10]:
            assert ended(one)
        assert sslproto.SSLProtocol.max_size == doors.RECORD


def ended(one: socket.socket) -> bool:
    try:
        while one.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True  # recv raises TimeoutError otherwise


def test_what_failed_handshakes_leave_is_collected(monkeypatch: pytest.MonkeyPatch, door: Door) -> None:
    collected: list[int] = []
    monkeypatch.setattr("kohort.console.door.gc.collect", lambda: collected.append(1))
    monkeypatch.setattr("kohort.console.door.COLLECT_EVERY", 3)
    with ExitStack() as stack:
        for _ in range(7):
            for end in enter(door):
                stack.enter_context(end)
    assert len(collected) == 2


def test_requests_have_a_limit_above_that_of_connections() -> None:
    from kohort.console.serve import MOST_REQUESTS

    assert MOST_REQUESTS > doors.MOST
