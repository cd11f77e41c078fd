"""What the system takes away from a running server: its files, memory, open files, threads. The log or the last line
says so, and nothing that is not on disk is acknowledged."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edges import Edge, SlowStorage, eventually
from process import ANYWHERE, COMMAND, Serve

from kohort.broker.turn import Arrived, HandedOut, TaskDone
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError
from kohort.coordinator.events import PatternsAsked, PatternsResolved
from kohort.server import off_loop, serve
from kohort.server.off_loop import OffLoop
from kohort.testing import KohortServer
from kohort.wire.batches import NewRecord

# -- files


@pytest.mark.conformance("R4")
def test_a_server_whose_directory_is_deleted_acknowledges_nothing_more(tmp_path: Path) -> None:
    server = KohortServer(data_dir=tmp_path / "data").start()
    with Cluster(server.bootstrap_servers, api_timeout_ms=2_000) as cluster:
        cluster.create_topic("t", 1)
        cluster.produce("t", 0, [NewRecord(b"k", b"before", 1_000)])
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        with pytest.raises((KafkaError, OSError)):
            cluster.produce("t", 0, [NewRecord(b"k", b"after", 1_000)])
    with pytest.raises(RuntimeError, match=r"kohort\.db was deleted or replaced"):
        server.stop()


def test_an_idle_server_whose_directory_is_moved_stops_with_one_line(tmp_path: Path) -> None:
    with Serve("--data-dir", str(tmp_path / "data"), *ANYWHERE) as server:
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        assert server.ended() == 74
        [line] = server.errors
        assert line.startswith(f"kohort: {tmp_path}/data/kohort.db was deleted or replaced while kohort used it.")
    with Serve("--data-dir", str(tmp_path / "elsewhere"), *ANYWHERE):
        pass


# -- open files


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_a_server_with_few_files_says_so_and_goes_on(tmp_path: Path) -> None:
    with Serve("--data-dir", str(tmp_path), *ANYWHERE, preexec_fn=few_files) as server:
        [warned] = [line for line in server.lines if "max.connections cannot be reached" in line]
        assert "max_connections=10000 possible=0 open_files=64" in warned
        host, _, port = server.addresses[0].rpartition(":")
        opened = [socket.create_connection((host, int(port)), timeout=5) for _ in range(100)]
        eventually(lambda: [line for line in server.lines if "connection refused" in line])
        [refused, *_] = [line for line in server.lines if "connection refused" in line]
        assert "level=warning" in refused
        assert "of 64 that the process may open (ulimit -n)" in refused
        assert len([line for line in server.lines if "connection refused" in line]) <= 10
        for connection in opened:
            connection.close()

        def works() -> bool:
            try:
                with Cluster(server.addresses[0]) as cluster:
                    return cluster.topics() is not None
            except (KafkaError, OSError):
                return False

        eventually(works)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert not server.errors


def test_a_server_with_enough_files_does_not_warn() -> None:
    with Serve("--in-memory", *ANYWHERE, "--set", "max.connections=100") as server:
        assert not [line for line in server.lines if "max.connections" in line]


# -- memory and threads


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "kohort: out of memory: "),
        (OSError(12, "Cannot allocate memory"), "kohort: out of memory: "),
        (RuntimeError("can't start new thread"), "kohort: the system starts no more threads; "),
    ],
)
def test_a_lack_of_resources_is_no_bug(error: Exception, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve._explain(error) == 71
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(says)


def test_a_server_without_memory_stops_and_says_why(edge_of: Callable[..., Edge]) -> None:
    storage = SlowStorage()
    edge = edge_of(storage)
    edge.hold_commits_in_a_thread()
    storage.fail = MemoryError()
    storage.may_commit.set()
    with edge.wire() as wire:
        wire.push(b"write")
        assert wire.is_closed
    with pytest.raises(RuntimeError, match="MemoryError"):
        edge.stop()


def test_the_writer_thread_does_not_end_unseen(edge_of: Callable[..., Edge]) -> None:
    storage = SlowStorage()
    edge = edge_of(storage)
    edge.hold_commits_in_a_thread()
    storage.fail = SystemExit(3)  # type: ignore[assignment]
    storage.may_commit.set()
    with edge.wire() as wire:
        wire.push(b"write")
        assert wire.is_closed
    with pytest.raises(RuntimeError, match=r"the writer thread got SystemExit\(3\)"):
        edge.stop()


def test_no_thread_ends_unseen() -> None:
    program = """
import threading
from kohort.server import serve
ready = serve._say_ready
def lost():
    raise ZeroDivisionError("in a thread")
def say_ready(*said):
    ready(*said)
    threading.Thread(target=lost).start()
serve._say_ready = say_ready
"""
    with Serve("--in-memory", *ANYWHERE, command=[sys.executable, "-c", program + COMMAND[2], "serve"]) as server:
        assert server.ended() == 70
        assert "ZeroDivisionError: in a thread\n" in server.errors
        assert server.errors[-1].startswith("kohort: stopped by a bug")


async def outcome() -> object:
    """Of a search for topics, beside the loop."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[object] = loop.create_future()
    loop.set_exception_handler(lambda _, context: found.set_result(context["exception"]))

    def arrive(event: Arrived) -> None:
        assert isinstance(event, TaskDone)
        found.set_result(event.event)

    beside = OffLoop(arrive, 5_000)
    try:
        beside.start([HandedOut(0, PatternsAsked(1, (("a", ("b",)),)))])
        return await asyncio.wait_for(found, 60)
    finally:
        beside.stop()


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(off_loop, "PAUSES_S", (0.001, 0.002))


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_task_that_lacks_a_file_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    """An error that stays stops the server. It is no trouble with the network, after which a group would wait for the
    outcome for ever."""
    failures = [OSError(24, "Too many open files")] * times
    search = off_loop.search

    def failing(task: PatternsAsked) -> PatternsResolved:
        if failures:
            raise failures.pop()
        return search(task)

    monkeypatch.setattr(off_loop, "search", failing)
    found = asyncio.run(outcome())
    assert isinstance(found, PatternsResolved if times < 3 else RuntimeError)
    assert caplog.text.count("a task is tried again") == min(times, 2)


@pytest.mark.usefixtures("short_pauses")
def test_a_thread_that_cannot_be_started_is_started_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [RuntimeError("can't start new thread")] * 2
    start = threading.Thread.start

    def failing(thread: Any) -> None:
        if failures and thread.name == "kohort-patterns":
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing)
    assert isinstance(asyncio.run(outcome()), PatternsResolved)
    assert caplog.text.count("a thread cannot be started") == 2
