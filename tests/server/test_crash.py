"""Acknowledged data is there after kill -9, after a full disk, after a bug: the acknowledged set is compared."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from edges import eventually
from group_driver import commit_request
from process import ANYWHERE, Serve
from raw_kafka import RawKafka, committed, create_topic, produce, produced_at, stored
from wire_driver import fetch_request

PARTITIONS = 4
DEPTH = 5
"""Requests that a writer has in flight."""


class Writer(threading.Thread):
    """Produces to a partition and commits offsets, pipelined, until the connection breaks; keeps what was answered."""

    def __init__(self, address: str, partition: int, name: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.partition = partition
        self.prefix = name
        self.acknowledged: dict[int, bytes] = {}
        self.committed = -1

    def run(self) -> None:
        with contextlib.suppress(ConnectionError, EOFError), RawKafka(self.address) as client:
            sent: list[int] = []
            for number in range(1_000_000):
                client.ask_later(produce("load", self.partition, self.value(number, 0), self.value(number, 1)))
                client.ask_later(commit_request(number, "group", self.partition, "load"))
                sent.append(number)
                if len(sent) >= DEPTH:
                    self.take_answer(client, sent.pop(0))

    def take_answer(self, client: RawKafka, number: int) -> None:
        base = produced_at(client.answer())
        self.acknowledged[base] = self.value(number, 0)
        self.acknowledged[base + 1] = self.value(number, 1)
        answer = client.answer()
        assert answer.topics[0].partitions[0].error_code == 0
        self.committed = number

    def value(self, number: int, index: int) -> bytes:
        return b"%s-%d-%d " % (self.prefix.encode(), number, index) * 20


@pytest.mark.conformance("R4")
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    address = "127.0.0.1:0"
    for cycle in range(4):
        with Serve("--data-dir", str(tmp_path), "--listeners", address) as serve:
            [address] = serve.addresses
            if cycle == 0:
                with RawKafka(address) as client:
                    client.call(create_topic("load", PARTITIONS))
            writers = [Writer(address, partition, f"c{cycle}p{partition}") for partition in range(PARTITIONS)]
            for writer in writers:
                writer.start()
            eventually(lambda: all(len(writer.acknowledged) > 40 for writer in writers))  # noqa: B023
            time.sleep(0.3 + 0.05 * cycle)  # how long the load lasts, not a wait for anything
            serve.process.send_signal(signal.SIGKILL)
            serve.ended()
            for writer in writers:
                writer.join(10)
                acknowledged[writer.partition].update(writer.acknowledged)
        with Serve("--data-dir", str(tmp_path), "--listeners", address), RawKafka(address) as client:
            for writer in writers:
                found = stored(client, "load", writer.partition)
                wanted = acknowledged[writer.partition]
                assert {offset: found.get(offset) for offset in wanted} == wanted
                assert len(set(found.values())) == len(found), "a record is there twice"
                assert sorted(found) == list(range(len(found)))
                assert committed(client, "group", "load", writer.partition) >= writer.committed
    assert sum(map(len, acknowledged)) > 500


SERVE = """
import sys
from kohort.cli.main import main
sys.argv = ["kohort", "serve", *sys.argv[1:]]
main()
"""
LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (6_000_000, 6_000_000))
"""


def test_a_full_disk_stops_it_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    acknowledged: dict[int, bytes] = {}
    arguments = ("--data-dir", str(tmp_path), *ANYWHERE)
    with Serve(*arguments, command=[sys.executable, "-c", LIMITED + SERVE]) as serve:
        with RawKafka(serve.addresses[0]) as client, contextlib.suppress(ConnectionError, EOFError):
            client.call(create_topic("load", 1))
            for number in range(1_000):
                value = b"%d" % number * 20_000
                acknowledged[produced_at(client.call(produce("load", 0, value)))] = value
        assert serve.ended() == 74
        [line] = serve.errors
    assert str(tmp_path) in line
    assert len(acknowledged) > 10
    with Serve(*arguments) as serve, RawKafka(serve.addresses[0]) as client:
        found = stored(client, "load", 0)
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert produced_at(client.call(produce("load", 0, b"goes on"))) == len(found)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """The first one waits for answers to be read; a reader that never reads is no reason to wait any longer."""
    with Serve("--in-memory", *ANYWHERE) as serve, RawKafka(serve.addresses[0]) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.call(create_topic("large", 1))
        for _ in range(16):
            client.call(produce("large", 0, bytes(1_000_000)))
        client.ask_later(fetch_request("large", most=1 << 24))  # one answer, and more than the system's buffers take
        eventually(lambda: client.recv(1, socket.MSG_PEEK))
        serve.process.send_signal(signal.SIGTERM)
        eventually(lambda: any("stopping" in line for line in serve.lines))
        serve.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert serve.ended() == 128 + signal.SIGINT
        assert time.monotonic() - began < 2


def test_files_are_not_limited_to_the_systems_default() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Serve("--in-memory", *ANYWHERE) as serve:
        limits = Path(f"/proc/{serve.process.pid}/limits").read_text() if sys.platform == "linux" else ""
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            assert int(line.split()[3]) >= min(10_000, hard)
    assert soft <= hard


BUGGY = """
from msgspec.structs import force_setattr
from kohort.broker import apis
def broken(state, request, context):
    raise RuntimeError("this is the bug")
force_setattr(apis.APIS[0], "handler", broken)
"""


def test_a_bug_stops_it_with_the_story_of_what_it_handled(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), *ANYWHERE)
    with (
        Serve(*arguments, command=[sys.executable, "-c", BUGGY + SERVE]) as serve,
        RawKafka(serve.addresses[0]) as client,
    ):
        client.call(create_topic("load", 1))
        client.ask_later(produce("load", 0, b"never acknowledged"))
        assert client.is_closed
        assert serve.ended() == 70
    said = "".join(serve.errors)
    assert "this is the bug" in said
    assert "Produce v9 of client 'raw'" in said
    assert "kohort: stopped by a bug" in serve.errors[-1]
    with Serve(*arguments) as serve, RawKafka(serve.addresses[0]) as client:
        assert stored(client, "load", 0) == {}
