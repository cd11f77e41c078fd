"""The parts in C, against each other and against kohort; the whole comparison, small (`make test-bench`: needs gcc)."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from bench import (
    _kafka,
    _load,
    _peers,
    _run,
    commits,
    heartbeats,
    joins,
    many,
    rebalance,
    records,
    spark,
    startup,
)
from bench.__main__ import SUBJECTS
from bench._joined import classic_members, heartbeat
from bench._load import load
from bench._peers import started
from bench._process import Address

from kohort.wire.codec import encode_request
from kohort.wire.schemas.heartbeat import HeartbeatRequest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

FRAME = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "bench")
FEWER_ROWS = {("joins", "kfake"), ("startup", "kfake"), ("spark", "kafka")}
ANSWER = struct.pack(">IIBIHB", 12, 0, 0, 0, 0, 0)
SMALL: dict[ModuleType, dict[str, object]] = {
    _kafka: {"USUAL": _kafka.BRIEF},
    _run: {"QUIET_CORES": 99.0, "QUICK_SECONDS": 0.1, "QUICK_ROUNDS": 1},
    _load: {"WARM_S": 0.2, "LIMIT_S": 3.0},
    heartbeats: {"ROWS": ((50, 1, 1), (20, 16, 3), (60, 16, 1))},
    commits: {"TOPIC": "commits"},
    records: {
        "CASES": ((1_000, "none", "all"), (100, "lz4", "1")),
        "AMOUNTS": {1_000: 9_000, 100: 9_000},
        "IDLE_LIMIT_S": 0.3,
    },
    joins: {"QUICK_SIZES": (5,), "PARTITIONS": 10},
    startup: {"QUICK_MEMBERS": 200, "QUICK_OFFSET_GROUPS": 10, "IDLE_S": 0.1, "SERVED_S": 0.1},
    many: {"QUICK_MEMBERS": 1_000, "QUICK_INTERVALS": 1, "LIMIT_S": 3.0},
    rebalance: {
        "PHASES": (("librdkafka", 3, 1), ("java", 3, 1)),
        "PAUSE_S": (0.1, 0.2),
        "QUICK_ROUNDS": 1,
    },
    spark: {
        "QUICK_ROWS": 6_000,
        "SINKS": ("noop",),
        "SIZES": (100,),
        "QUICK_RUNS": 1,
        "QUICK_WARM_UP": 0,
        "RUNS_WITHOUT": 1,
    },
}
"""For each module, the constants that make a run short."""


@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (1, 16), (50, 1), (50, 16), (1_000, 1)])
def test_the_load_saturates_the_floor(connections: int, depth: int) -> None:
    with started("floor", {}, answer=ANSWER) as server:
        done = load(server, [[FRAME]] * connections, depth=depth, seconds=0.3, error_at=9)
    assert done["cpu_us"] + done["load_share"] / done["rate"] * 1e6 < 100  # also on a busy machine
    assert 0 < done["p50_us"] <= done["p99_us"]
    assert 0 < done["load_share"] <= 1.1


def test_a_fixed_rate_is_kept() -> None:
    with started("floor", {}, answer=ANSWER) as server:
        done = load(server, [[FRAME]] * 10, depth=64, seconds=3.0, rate=2_000, error_at=9)
    assert done["rate"] == pytest.approx(2_000, rel=0.2)


def test_requests_are_sent_in_turn_and_numbered() -> None:
    """A server that reads one byte at a time, and sees two requests alternate with ids that count up."""
    other = FRAME[:8] + b"\xff\xff\xff\xff" + FRAME[12:]
    with socket.create_server(("127.0.0.1", 0)) as listener, _loading(listener, [[FRAME, other]], depth=2) as load:
        connection, _ = listener.accept()
        seen = b""
        while len(seen) < 6 * len(FRAME):
            seen += connection.recv(1)
            if len(seen) % len(FRAME) == 0:
                number = struct.pack(">I", len(seen) // len(FRAME) - 1)
                for n in range(len(ANSWER)):
                    connection.sendall((ANSWER[:4] + number + ANSWER[8:])[n : n + 1])
        assert [seen[n * len(FRAME) + 8 : n * len(FRAME) + 12] for n in range(6)] == [
            struct.pack(">I", n) for n in range(6)
        ]
        load.kill()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (struct.pack(">IIBIHB", 12, 0, 0, 0, 25, 0), "error 25"),
        (struct.pack(">IIBIHB", 12, 7, 0, 0, 0, 0), "out of order"),
        (struct.pack(">II", 4, 0), "short answer"),
        (b"", "closed"),
    ],
)
def test_a_wrong_answer_ends_the_load(answer: bytes, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, _loading(listener, [[FRAME]], depth=1) as load:
        connection, _ = listener.accept()
        connection.recv(len(FRAME))
        connection.sendall(answer)
        connection.close()
        _, said = load.communicate(timeout=30)
    assert load.returncode == 1
    assert complaint in said


def _loading(listener: socket.socket, requests: list[list[bytes]], depth: int) -> subprocess.Popen[str]:
    path = Path(_peers.c_program("load").parent) / f"requests-{listener.getsockname()[1]}"
    _load.write_requests(path, requests)
    words = ["127.0.0.1", str(listener.getsockname()[1]), str(path), str(depth), "20", "0", "9"]
    load = subprocess.Popen(
        [str(_peers.c_program("load")), *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert load.stdin is not None
    load.stdin.write("\n")
    load.stdin.flush()
    return load


def test_heartbeats_of_members_that_joined() -> None:
    with started("pure", {}) as server:
        frames = [[heartbeat(m)] for m in classic_members(server, "native", 10)]
        done = load(server, frames, depth=4, seconds=0.5, error_at=9)
        assert done["rate"] > 200
        assert server.cpu_seconds() > 0


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Address] | None]:
    """One Apache Kafka for all subjects that need none of their own; None where it cannot be had."""
    if "kafka" in _peers.missing():
        yield None
        return
    settings = {**_peers.NO_DELAY, **_peers.LONG_SESSIONS, "offsets.topic.num.partitions": "1"}
    with _kafka.kafka(_peers.kafka_jars(), settings, java_options=_kafka.BRIEF) as running:
        yield running


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_comparison_measures_every_row_on_every_server(
    monkeypatch: pytest.MonkeyPatch, apache: tuple[int, Address] | None, name: str
) -> None:
    """Small sizes and short times: that it runs, not what comes out. Kafka and kfake where they can be had."""
    for module, values in SMALL.items():
        for constant, value in values.items():
            assert hasattr(module, constant)
            monkeypatch.setattr(module, constant, value)
    if name != "rebalance":
        monkeypatch.setattr(_kafka, "kafka", lambda *_: nullcontext(apache))
    subject = SUBJECTS[name]
    found = _run.taken(subject, quick=True, only=())
    ours = next(server for server in ("pure", "pushed", "kohort") if server in subject.columns)
    for peer in set(subject.columns) - {"compiled", "mock", "floor"}:
        rows = [row for row in found.rows() if found.best(row, peer)]
        if peer not in _peers.missing() and (name, peer) not in FEWER_ROWS:
            assert len(rows) == len([row for row in found.rows() if found.best(row, ours)]), (name, peer, rows)
    assert not [figure for figure in found.figures if "failed" in figure.values], name
    assert _run.lines(found, subject), name
