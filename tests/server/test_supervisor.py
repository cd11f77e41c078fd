"""What a server tells systemd, over real datagram sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from process import ANYWHERE, Serve, run_to_its_end

from kohort.broker.turn import Turn
from kohort.client.cluster import Cluster
from kohort.config import load
from kohort.server.server import Server
from kohort.server.supervisor import EXTEND_EVERY_S, Supervisor, supervisor_of
from kohort.testing import KohortServer


class Manager:
    """Receives what is told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(30)
        self._socket.bind(address.replace("@", "\0") if address.startswith("@") else address)

    def next(self) -> list[str]:
        return self._socket.recv(4096).decode().split("\n")

    def rest(self) -> list[list[str]]:
        self._socket.setblocking(False)
        found = []
        while True:
            try:
                found.append(self.next())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(str(tmp_path / "notify"))
    yield found
    found.close()


class Seconds:
    """A clock of the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_server_tells_its_beginning_and_its_end(manager: Manager) -> None:
    environment = os.environ | {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    with Serve("--in-memory", *ANYWHERE, env=environment) as serve:
        [address] = serve.addresses
        assert manager.next() == ["READY=1", f"STATUS=Listening on {address}"]
        for _ in range(3):
            assert manager.next() == ["WATCHDOG=1"]
        serve.process.send_signal(signal.SIGHUP)  # as systemctl reload does: a server without TLS goes on
        for _ in range(2):
            assert manager.next() == ["WATCHDOG=1"]
        serve.process.send_signal(signal.SIGTERM)
        assert serve.ended() == 0
        told = manager.rest()
    assert [lines for lines in told if lines != ["WATCHDOG=1"]] == [["STOPPING=1", "STATUS=Stopping: SIGTERM"]]


def test_a_server_that_fails_tells_why(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    ended = run_to_its_end(
        "--data-dir", str(tmp_path / "data"), *ANYWHERE, env=os.environ | {"NOTIFY_SOCKET": manager.address}
    )
    assert ended.returncode == 2
    [status] = manager.next()
    assert status.startswith("STATUS=")
    assert "is a file" in status
    assert manager.rest() == []


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="the abstract namespace is Linux's")
def test_the_abstract_namespace() -> None:
    manager = Manager(f"@kohort-test-{os.getpid()}")
    try:
        supervisor_of({"NOTIFY_SOCKET": manager.address}).tell("READY=1")
        assert manager.next() == ["READY=1"]
    finally:
        manager.close()


def test_a_long_replay_asks_for_time(manager: Manager) -> None:
    seconds = Seconds()
    supervisor = Supervisor(manager.address, clock=seconds)
    for done in range(21):
        supervisor.replaying(done, 50)
        seconds.now += EXTEND_EVERY_S / 10
    assert manager.rest() == [
        ["EXTEND_TIMEOUT_USEC=60000000", f"STATUS=Replaying the logs: {done} of 50"] for done in (10, 20)
    ]


def test_a_replay_tells_how_far_it_is(tmp_path: Path) -> None:
    """It is called for each log with records."""
    with (
        KohortServer(data_dir=tmp_path, offsets_topic_num_partitions=4) as server,
        Cluster(server.bootstrap_servers) as cluster,
    ):
        cluster.create_topic("orders")
        for n in range(20):
            cluster.commit(f"group-{n}", {("orders", 0): 0})
    told: list[tuple[int, int]] = []
    asyncio.run(_started(tmp_path, told))
    assert told == sorted(told)
    assert {logs for _, logs in told} == {4}
    assert {done for done, _ in told} == {0, 1, 2, 3}, "twenty groups are in all four logs"


async def _started(data_dir: Path, told: list[tuple[int, int]]) -> None:
    server = Server(
        load({"data.dir": str(data_dir), "listeners": "127.0.0.1:0"}, environ={}),
        replaying=lambda done, logs: told.append((done, logs)),
    )
    await server.start()
    await server.stop()


def test_the_watchdog_waits_for_turns_that_end() -> None:
    seconds = Seconds()
    supervisor = Supervisor(watchdog_s=30, clock=seconds)
    assert supervisor.turns_end, "an idle server has no turns"
    supervisor.turn_begins(())
    seconds.now += 14
    assert supervisor.turns_end
    supervisor.turn_ends(Turn((), ()))
    supervisor.turn_begins(())
    seconds.now += 14
    assert supervisor.turns_end
    seconds.now += 1
    assert not supervisor.turns_end
    supervisor.turn_ends(Turn((), ()))
    assert supervisor.turns_end


def test_a_turn_that_hangs_ends_the_pings(manager: Manager) -> None:
    """The timers are far away: the test looks itself."""
    seconds = Seconds()

    async def watched() -> None:
        supervisor = Supervisor(manager.address, watchdog_s=3_600, clock=seconds)
        supervisor.ready("ready")
        supervisor._look()
        supervisor.turn_begins(())
        seconds.now += 1_800
        supervisor._look()
        supervisor.turn_ends(Turn((), ()))
        supervisor._look()

    asyncio.run(watched())
    assert manager.rest() == [["READY=1", "STATUS=ready"], ["WATCHDOG=1"], ["WATCHDOG=1"]]


@pytest.mark.parametrize(
    ("environment", "watches"),
    [
        ({"WATCHDOG_USEC": "30000000"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({}, False),
    ],
)
def test_whom_the_watchdog_means(manager: Manager, environment: dict[str, str], watches: bool) -> None:
    found = supervisor_of({"NOTIFY_SOCKET": manager.address} | environment, process=7)
    assert bool(found.observers) == watches
    assert supervisor_of(environment, process=7).observers == ()


def test_nobody_is_told_without_a_socket() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}):
        supervisor_of(environment).tell("READY=1")


def test_a_supervisor_that_is_gone_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = supervisor_of({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    for _ in range(3):
        supervisor.tell("WATCHDOG=1")
    [line] = [record.getMessage() for record in caplog.records]
    assert "the supervisor cannot be told" in line
