"""The parts in C, against each other and against kohort; the whole comparison, small (`make test-bench`: needs gcc)."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
    security,
    spark,
    startup,
    transactions,
)
from bench.__main__ import SUBJECTS
from bench._joined import classic_members, create_topic, heartbeat
from bench._load import load
from bench._peers import Server, started
from bench._process import Address

from kohort.client.cluster import Cluster
from kohort.wire.codec import encode_request
from kohort.wire.schemas.heartbeat import HeartbeatRequest

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

FRAME = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "bench")
FEWER_ROWS = {("transactions", "synced"), ("joins", "kfake"), ("startup", "kfake"), ("spark", "kafka")}
ANSWER = struct.pack(">IIBIHB", 12, 0, 0, 0, 0, 0)
SMALL: dict[ModuleType, dict[str, object]] = {
    _kafka: {"USUAL": _kafka.BRIEF},
    _run: {"QUIET_CORES": 99.0, "QUICK_SECONDS": 0.1, "QUICK_ROUNDS": 1},
    _load: {"WARM_S": 0.2, "LIMIT_S": 3.0},
    heartbeats: {"ROWS": ((50, 1, 1), (20, 16, 3), (60, 16, 1))},
    commits: {"TOPIC": "commits"},
    # One Apache Kafka stands for both in this test.
    transactions: {"SERVERS": ("compiled", "pure", "kafka"), "QUICK_SECONDS": 0.3, "QUICK_LATENCY": 5},
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


BUSY = struct.pack(">IIBIHB", 12, 0, 0, 0, 51, 0)


def _answering(listener: socket.socket, answers: list[bytes]) -> list[bytes]:
    """Answer one request after the other; returns the bytes of each request behind its number."""
    connection, _ = listener.accept()
    seen = []
    with connection:
        for number, answer in enumerate(answers):
            request = connection.recv(len(FRAME), socket.MSG_WAITALL)
            assert request[8:12] == struct.pack(">I", number)
            seen.append(request[12:])
            connection.sendall(answer[:4] + request[8:12] + answer[8:])
        connection.recv(1)  # until the load has ended
    return seen


def test_steps_of_transactions_are_sent_once_and_again_if_the_coordinator_is_busy() -> None:
    frames = [FRAME[:-2] + bytes([n, 0]) for n in range(6)]
    answers = [ANSWER, BUSY, BUSY, ANSWER, ANSWER, BUSY, ANSWER, ANSWER, ANSWER]
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        seen = pool.submit(_answering, listener, answers)
        server = Server("pure", os.getpid(), listener.getsockname())
        done = load(server, [frames], depth=1, seconds=20, steps=[9, 9])
    assert seen.result() == [frames[n][12:] for n in (0, 1, 1, 1, 2, 3, 3, 4, 5)]
    assert (done["transactions"], done["again"]) == (3, 3)


def test_an_error_in_a_step_ends_the_load() -> None:
    refused = struct.pack(">IIBIHB", 12, 0, 0, 0, 90, 0)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(_answering, listener, [ANSWER, refused])
        with pytest.raises(AssertionError, match="ended with an error"):
            load(Server("pure", os.getpid(), listener.getsockname()), [[FRAME] * 4], depth=1, seconds=20, steps=[9, 9])


def test_a_transaction_that_has_begun_is_finished() -> None:
    """The time is over before the first answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        seen = pool.submit(_answering, listener, [ANSWER] * 2)
        server = Server("pure", os.getpid(), listener.getsockname())
        done = load(server, [[FRAME] * 4], depth=1, seconds=1e-9, steps=[9, 9])
    assert len(seen.result()) == 2
    assert done["transactions"] == 1


def test_transactions_commit_records_and_offsets() -> None:
    case = transactions.Case(20, 10, True, 3)
    with started("pure", transactions.SETTINGS) as server:
        create_topic(server, case.topic, case.partitions)
        members = classic_members(server, "transacts", case.producers)
        done = transactions.transact(server, case, members, 0.5)
        with Cluster(server.bootstrap) as cluster:
            ends = cluster.offsets(case.places, isolation="read_committed")
            offsets = [cluster.committed(member.group) for member in members]
        assert done["cpu_us"] > 0
    count = sum(committed[case.topic, 0].offset for committed in offsets)  # each transaction commits one more
    assert count >= case.producers
    assert set(ends.values()) == {3 * count}, "two records and a marker of each"
    assert all(len({committed[place].offset for place in case.places}) == 1 for committed in offsets)


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
    settings |= transactions.SETTINGS["kafka"]
    with _kafka.kafka(_peers.kafka_jars(), settings, java_options=_kafka.BRIEF) as running:
        yield running


def test_security_is_measured_on_both_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is open, and one with ACLs."""
    for constant, value in {"CLIENTS": 3, "ACLS": 30, "QUICK_CONNECTIONS": 5, "SERVERS": ("pure",)}.items():
        monkeypatch.setattr(security, constant, value)
    monkeypatch.setattr(security, "WAYS", dict(list(security.WAYS.items())[1::2]))
    monkeypatch.setattr(_run, "QUIET_CORES", 99.0)
    monkeypatch.setattr(_run, "QUICK_SECONDS", 0.1)
    found = _run.taken(security.SUBJECT, quick=True, only=(), rounds=1)
    assert len(found.rows()) == 4 * 2 + 3
    assert all(value > 0 for figure in found.figures for name, value in figure.values.items() if name != "kb")


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
