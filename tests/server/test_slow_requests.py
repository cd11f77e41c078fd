"""Slow requests in the log: what counts as slow, and the phases."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from raw_kafka import RawKafka

from kohort.broker.turn import ConnectionId, Frame, LateRequest, Send, Turn
from kohort.coordinator.events import ServerPaused
from kohort.server.slow_requests import SlowRequests
from kohort.storage.memory import MemoryStorage
from kohort.testing import KohortServer
from kohort.wire.codec import encode_request
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.metadata import MetadataRequest

HERE = ConnectionId(1)
NOW = 5_000_000


class Times:
    """The clocks of an observer: the seconds that turns take, and the server's time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.observer = SlowRequests(1_000, lambda: NOW, lambda client: f"peer-{client}", clock=lambda: self.seconds)

    def turn(self, turn: Turn, *arrived: Any, step: float = 0.0, commit: float = 0.0, send: float = 0.0) -> None:
        self.observer.turn_begins(arrived)
        self.seconds += step
        self.observer.decided(turn)
        self.seconds += commit
        if commit:
            self.observer.committed(turn)
        self.seconds += send
        self.observer.turn_ends(turn)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [line.removeprefix("slow request ") for line in caplog.messages if line.startswith("slow request ")]
    caplog.clear()
    return found


def frame(correlation_id: int = 7, arrived: int = NOW, connection: ConnectionId = HERE) -> Frame:
    return Frame(connection, encode_request(MetadataRequest(topics=None), 9, correlation_id, "app")[4:], arrived)


def answer(correlation_id: int = 7, connection: ConnectionId = HERE) -> Send:
    return Send(connection, b"\0\0\0\4" + correlation_id.to_bytes(4, "big"))


def test_a_slow_turn_names_the_requests_that_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    others = frame(8), frame(9, connection=ConnectionId(2))
    turn = Turn((), (answer(), answer(1, ConnectionId(2))))
    times.turn(turn, frame(), *others, step=0.3, commit=0.9, send=0.1)
    assert told(caplog) == ["api=Metadata took_ms=1300 step_ms=300 commit_ms=900 send_ms=100 client_id=app peer=peer-1"]
    times.turn(turn, frame(), step=0.3, commit=0.6)
    assert told(caplog) == []


def test_the_wait_before_the_turn_counts(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    times.turn(Turn((), (answer(),)), frame(arrived=NOW - 600), commit=0.5)
    [line] = told(caplog)
    assert line.startswith("api=Metadata took_ms=1100 waited_ms=600 commit_ms=500 ")
    times.turn(Turn((), (answer(),)), frame(arrived=0), commit=0.7)
    assert told(caplog) == []


def test_a_request_of_earlier_turns(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    late = LateRequest(HERE, 1, "app", 700, 400, 9_000)
    times.turn(Turn((), (answer(),), late=(late,)))
    assert told(caplog) == [
        "api=Fetch took_ms=1100 waited_ms=700 steps_ms=400 parked_ms=9000 client_id=app peer=peer-1"
    ]
    times.turn(Turn((), (answer(),), late=(LateRequest(HERE, 1, "app", 700, 0, 9_000),)))
    assert told(caplog) == [], "what waits on purpose is not slow"
    times.turn(Turn((), (answer(),), late=(LateRequest(HERE, 1, "a\nb", 700),)), step=0.4)
    [line] = told(caplog)
    assert "client_id=a\\nb" in line


def test_a_pause_is_no_slow_request(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    times.turn(Turn((), (answer(),)), ServerPaused(5_000, "stopped"), frame(arrived=NOW - 6_000), step=2.0)
    assert told(caplog) == []


def test_lines_are_limited_and_frames_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    for _ in range(20):
        times.turn(Turn((), (answer(),)), frame(), step=1.0)
    assert len(told(caplog)) == 10
    assert times.observer._arrived == ()


class SlowDisk(MemoryStorage):
    """Its clock says that some commits take long."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.takes_s = 0.0

    def commit(self, operations: Any, lease: Any) -> None:
        super().commit(operations, lease)
        self.seconds += self.takes_s


@pytest.mark.parametrize("limit_ms", [1_000, 0])
def test_a_server_with_a_slow_disk(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, limit_ms: int
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    disk = SlowDisk()
    monkeypatch.setattr(SlowRequests.__init__, "__kwdefaults__", {"clock": lambda: disk.seconds})
    server = KohortServer(log_slow_request_ms=limit_ms)
    server._memory = disk
    with server, RawKafka(server.bootstrap_servers) as client:
        disk.takes_s = 2.5
        topics = (CreatableTopic(name="t", num_partitions=1, replication_factor=1),)
        client.call(CreateTopicsRequest(topics=topics, timeout_ms=1_000))
        disk.takes_s = 0.0
        client.call(CreateTopicsRequest(topics=topics, timeout_ms=1_000))  # the line is written by now
        lines = [line for line in told(caplog) if "commit_ms=2500" in line]
    if limit_ms:
        [line] = lines
        assert line.startswith("api=CreateTopics took_ms=2")
        assert "peer=127.0.0.1:" in line
    else:
        assert lines == []
