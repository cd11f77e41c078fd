"""The HTTP listener: what it answers, and what hostile clients cannot do."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from edges import SlowStorage
from http_client import ask, connected, numbers, parts_of, said, value
from process import ANYWHERE, Serve, run_to_its_end
from time_taken import takes_less

import kohort.server.http.connection as connections
import kohort.server.http.health as health
from kohort import __version__
from kohort.compiled import running
from kohort.config import Config, ConfigError, check
from kohort.server.http.door import MOST
from kohort.server.http.request import HEAD_BYTES, Refused, read_request, wants_open_metrics
from kohort.server.server import Server
from kohort.testing import KohortServer


@pytest.fixture(scope="module")
def server() -> Iterator[KohortServer]:
    with KohortServer(http_listener="127.0.0.1:0", brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: KohortServer) -> str:
    return server.http_address


def test_pages(address: str) -> None:
    assert ask(address, "/livez")[::2] == (200, "ok turns: none takes longer than 10 s\nok storage: its thread runs\n")
    status, head, text = ask(address, "/readyz?verbose")
    assert (status, text.splitlines()[:2]) == (200, ["ok running: yes", "ok listening: 2 of 2 brokers"])
    assert "Cache-Control: no-store" in head
    assert ask(address, "/")[0] == 200
    status, _, text = ask(address, "/nothing")
    assert status == 404
    assert "/metrics" in text


def test_head_has_the_length_and_no_body(address: str) -> None:
    status, head, body = ask(address, "/readyz", method="HEAD")
    assert (status, body) == (200, "")
    assert int(head.split("Content-Length: ")[1].split()[0]) > 100


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"hello", 400),
        (b"GET /metrics", 400),
        (b"GET /metrics HTTP/2.0\r\nHost: localhost", 400),
        (b"GET http://localhost/metrics HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /m\x01 HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /metrics HTTP/1.1", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n folded", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : localhost", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example:9404", 403),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost.evil.example", 403),
        (b"GET /livez HTTP/1.1\r\nHost: localhost:9404", 200),
        (b"GET /livez HTTP/1.1\r\nHost: 10.0.0.7:9404", 200),
        (b"GET /livez HTTP/1.1\r\nHost: [::1]:9404", 200),
        (b"GET /livez HTTP/1.0", 200),
    ],
)
def test_requests(address: str, request_bytes: bytes, status: int) -> None:
    """With something behind it, and byte by byte."""
    whole = request_bytes + b"\r\n\r\n"
    for pieces in ([whole + b"GET / HTTP/1.1"], [bytes((one,)) for one in whole]):
        with connected(address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                connection.sendall(piece)
            assert parts_of(said(connection))[0] == status


def test_garbage_is_refused() -> None:
    """It raises Refused or nothing."""
    good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*"
    read = 0
    for at in range(len(good)):
        for byte in (0, 10, 13, 97, 255):
            with suppress(Refused):
                read_request(good[:at] + bytes((byte,)) + good[at + 1 :], frozenset(("localhost",)))
                read += 1
    assert 0 < read < len(good)


@pytest.mark.parametrize("value", [b" " * 1_500, b"\t" * 1_500, b" a" * 750])
def test_a_header_takes_no_longer_than_it_is_long(value: bytes) -> None:
    with takes_less(0.5, time.thread_time):
        for end in (b"", b"\0", b"\xff"):
            with suppress(Refused):
                read_request(b"GET / HTTP/1.1\r\nHost: localhost\r\nX:" + value + end, frozenset(("localhost",)))


def test_a_long_header_is_refused(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * HEAD_BYTES)
        assert parts_of(said(connection))[0] == 431


def test_the_format_that_is_asked_for() -> None:
    assert wants_open_metrics("application/openmetrics-text")
    assert wants_open_metrics(
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"
    )
    assert not wants_open_metrics("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4")
    assert not wants_open_metrics("text/plain, application/openmetrics-text;q=0.5")
    assert not wants_open_metrics("application/openmetrics-text;q=0")
    assert not wants_open_metrics("*/*")
    assert not wants_open_metrics("")
    assert not wants_open_metrics(";;q=,=;q=999999999")


def test_silent_clients_keep_nobody_out(address: str) -> None:
    silent = [connected(address) for _ in range(3 * MOST)]
    for client in silent:
        client.sendall(b"GET /metrics")
    assert ask(address, "/livez")[0] == 200
    assert said(silent[0]) == b""  # it made room
    for client in silent:
        client.close()


def test_a_request_has_a_limited_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_S", 0.05)
    with connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert said(connection) == b""


def unread(address: str) -> socket.socket:
    """A connection that has asked for /metrics, and has little room for the answer."""
    connection = socket.socket()
    connection.settimeout(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    host, _, port = address.rpartition(":")
    connection.connect((host, int(port)))
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


def test_an_answer_that_nobody_reads_is_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets what fits into the sockets; then the time is over."""
    monkeypatch.setattr(connections, "SEND_S", 0.5)
    kept: list[Any] = []

    class Watched(connections.HttpConnection):
        def connection_made(self, transport: Any) -> None:
            kept.append(transport)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            over.set()
            super().connection_lost(exc)

    over = threading.Event()
    monkeypatch.setattr("kohort.server.http.door.HttpConnection", Watched)
    with KohortServer(http_listener="127.0.0.1:0", metrics_max_series=100_000) as server:
        server.create_topic("wide", 4_000)
        server.create_topic("wider", 4_000)
        with unread(server.http_address) as connection:
            assert connection.recv(12) == b"HTTP/1.1 200"
            largest = 0
            while not over.is_set():
                largest = max(largest, kept[0].get_write_buffer_size())
                over.wait(0.01)
        assert 0 < largest <= 3 * connections.PIECE_BYTES
        monkeypatch.undo()
        with ExitStack() as stack:
            waiting = [stack.enter_context(unread(server.http_address)) for _ in range(MOST)]
            assert all(connection.recv(12) == b"HTTP/1.1 200" for connection in waiting)
            assert ask(server.http_address, "/livez")[0] == 200, "one that is not read makes room"
        status, _, text = ask(server.http_address)
        assert status == 200
        assert len(text) > 3_000_000


def test_a_page_that_fails_does_not_stop_the_server(server: KohortServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("kohort.broker.metrics.scrape.add_topics", fail)
    assert ask(server.http_address)[0] == 500
    monkeypatch.undo()
    assert ask(server.http_address)[0] == 200
    assert server.produce("still-there", "a")


def test_a_broker_that_does_not_listen_is_not_ready(server: KohortServer) -> None:
    server.stop_broker(2)
    status, _, text = ask(server.http_address, "/readyz")
    assert (status, text.splitlines()[0]) == (503, "failed listening: the listeners of broker 2 are down")
    assert ask(server.http_address, "/livez")[0] == 200
    server.start_broker(2)
    assert ask(server.http_address, "/readyz")[0] == 200


def test_a_commit_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """/metrics waits for the turn, but not for ever; /livez says after a while that the process does not work."""
    monkeypatch.setattr(connections, "MAKE_S", 0.1)
    storage = SlowStorage()
    storage.may_commit.set()

    async def run() -> None:
        monkeypatch.setattr("kohort.server.server.MemoryStorage", dict)  # so that it commits in a thread
        server = Server(check(Config(listeners="127.0.0.1:0", http_listener="127.0.0.1:0")), storage)
        await server.start()
        storage.may_commit.clear()
        loop, address = asyncio.get_running_loop(), str(server.http_address)
        moved = asyncio.ensure_future(server.move_group("g", 1))
        server._broker.state.topics.create("new", server._broker.state.topics.place(1, 1), {})
        await asyncio.sleep(0)
        while not server._http.times.under_way_s:  # type: ignore[union-attr]
            await asyncio.sleep(0)
        status, _, text = await loop.run_in_executor(None, ask, address)
        assert status == 503
        assert "a turn takes longer" in text
        assert (await loop.run_in_executor(None, ask, address, "/livez"))[0] == 200
        monkeypatch.setattr(health, "LONGEST_TURN_S", 0.01)
        assert (await loop.run_in_executor(None, ask, address, "/livez"))[0] == 503
        assert (await loop.run_in_executor(None, ask, address, "/readyz"))[0] == 503
        monkeypatch.setattr(connections, "MAKE_S", 10.0)
        storage.may_commit.set()
        await moved
        assert (await loop.run_in_executor(None, ask, address, "/metrics"))[0] == 200
        await server.stop()

    asyncio.run(run())


def test_a_full_disk_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free, total = 1, 1_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Full)
    assert str(health.disk_check("/data")) == "failed disk: 0.1% of the volume of /data is free"


def test_other_machines_do_not_reach_it_by_accident() -> None:
    with pytest.raises(ConfigError, match=r"allow\.insecure\.listeners"):
        KohortServer(http_listener="0.0.0.0:0").start()
    with KohortServer(http_listener="0.0.0.0:0", allow_insecure_listeners=True) as server:
        port = server.http_address.rpartition(":")[2]
        with connected(f"127.0.0.1:{port}") as connection:  # a name of the network may be in Host
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: kohort.monitoring.svc\r\n\r\n")
            assert parts_of(said(connection))[0] == 200
    for wrong in ("nonsense", "127.0.0.1:1,127.0.0.1:2", "SSL://127.0.0.1:1"):
        with pytest.raises(ConfigError, match=r"http\.listener"):
            check(Config(http_listener=wrong))


def test_without_the_setting_there_is_no_listener_and_no_observer() -> None:
    with KohortServer(log_slow_request_ms=0) as server:
        assert server.http_address == ""
        assert server._running._http is None
        assert server._running._turns._schedule._observers == ()


def test_a_server_as_a_process(tmp_path: Path) -> None:
    """The ready line names the address; the pages answer as long as the server runs."""
    with Serve(*ANYWHERE, "--data-dir", str(tmp_path), "--set", "http.listener=127.0.0.1:0") as served:
        [address] = re.findall(r" http=(\S+)", served.ready)
        status, _, text = ask(address, "/readyz")
        assert status == 200
        assert f"of the volume of {tmp_path} is free" in text
        assert value(numbers(address), "kohort_build_info", version=__version__, runs=running()) == 1
        served.process.terminate()
        assert served.ended() == 0
        with pytest.raises(ConnectionError):
            ask(address, "/readyz")
    taken = run_to_its_end(*ANYWHERE, "--in-memory", "--set", "http.listener=0.0.0.0:0")
    assert (taken.returncode, len(taken.stderr.splitlines())) == (2, 1)
