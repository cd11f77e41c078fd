"""Start until ready, memory idle and with 10,000 members, and a restart with 1,000,000 committed offsets; with peers.

The start ends with the first answer to a Metadata request that names a broker, sent every few milliseconds; with a new
directory, code and libraries in the page cache, and kohort's bytecode cached as in an installation. Memory is the
resident memory of the process and its children, two seconds later, and with 10,000 members of 100 classic groups with a
connection each, which heartbeat every 3 s (fewer if `ulimit -n` is lower). For the restart, 1,000 groups have committed
1,000 partitions each; it ends when the offsets of fifty groups have been fetched. No log is compacted.
"""

from __future__ import annotations

import resource
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import bench._kafka as apache
from bench import _peers
from bench._crowd import Crowd
from bench._joined import coordinators_ready, create_topic
from bench._machine import Others
from bench._peers import Server, Settings, started
from bench._process import Address, call, pinned, serving
from bench._run import Figure, Panel, Run, Subject, Table
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
WITH_MEMBERS = ("compiled", "pure", "kafka", "kfake")
REPLAYED = ("compiled", "pure", "kafka")
OURS = ("compiled", "pure")
MANY = Settings(kohort={"max.connections": "12000", "max.connections.per.ip": "12000"})
KEPT = Settings(kohort={"log.cleaner.enable": "false"}, kafka={"log.cleaner.enable": "false"})
MEMBERS, QUICK_MEMBERS, GROUPS = 10_000, 2_000, 100
OFFSET_GROUPS, QUICK_OFFSET_GROUPS, OFFSET_PARTITIONS = 1_000, 100, 1_000
ASKED = 50
TOPIC = "orders"
IDLE_S = 2.0
POLL_S = 0.003
WAIT_S = 180.0

Timed = AbstractContextManager[tuple[Server, float]]


def measure(run: Run) -> None:
    _ready(run)
    _memory(run)
    _replay(run)


# -- ready


def _ready(run: Run) -> None:
    names = run.names(SERVERS)
    for name in names:
        if name in OURS:
            with _timed(name):
                pass
    for _ in range(run.rounds):
        for name in names:
            others = Others()
            with _timed(name) as (server, ready_ms):
                cpu = server.cpu_seconds()
                time.sleep(IDLE_S)
                memory = server.memory_mb()
            figure = {"ready_ms": ready_ms, "ready_cpu_s": cpu, "idle_mb": memory}
            run.add(Figure("empty", name, figure, round(others.cores, 2)))


@contextmanager
def _timed(name: str, *, node: apache.Node | None = None, data: str = "") -> Iterator[tuple[Server, float]]:
    """A server, and the ms until its first answer. Kafka's storage is formatted before."""
    if name == "kafka":
        made = node or apache.Node(_peers.kafka_jars(), KEPT.kafka)
        try:
            began = time.perf_counter()
            with pinned(_peers.SERVER_CORE):
                made.start()
            yield Server(name, made.pid, made.address), (time.perf_counter() - began) * 1e3
            made.stop()
        finally:
            if node is None:
                made.remove()
        return
    began = time.perf_counter()
    with started(name, KEPT, data=data) as server:
        answered(server.address)
        yield server, (time.perf_counter() - began) * 1e3


def answered(address: Address) -> None:
    """Wait until the server names a broker."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, 5) as connection:
                if call(connection, MetadataRequest(topics=()), 4, MetadataResponse).brokers:
                    return
        except (OSError, AssertionError):
            pass
        time.sleep(POLL_S)
    raise AssertionError(f"no answer from {address}")


# -- memory


def _memory(run: Run) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(QUICK_MEMBERS if run.quick else MEMBERS, hard - 500)
    for name in run.names(WITH_MEMBERS):
        others = Others()
        with started(name, MANY) as server:
            coordinators_ready(server)
            idle = server.memory_mb()
            crowd = Crowd(server.address)
            for index in range(count):
                crowd.connect(f"orders-{index % GROUPS}").join()
                if index % 50 == 49:
                    crowd.serve(0)
            crowd.run(lambda crowd=crowd, count=count: crowd.stable == count, WAIT_S)
            crowd.serve(4)
            memory = server.memory_mb()
            crowd.close()
        figure = {"members_mb": memory, "kb_a_member": (memory - idle) * 1e3 / count}
        run.add(Figure(f"{count:,} members", name, figure, round(others.cores, 2)))


# -- replay


def _replay(run: Run) -> None:
    groups = QUICK_OFFSET_GROUPS if run.quick else OFFSET_GROUPS
    row = f"{groups * OFFSET_PARTITIONS:,} offsets"
    names = run.names(REPLAYED)
    with tempfile.TemporaryDirectory() as data:
        ours = [name for name in names if name != "kafka"]
        if ours:
            with serving("log.cleaner.enable=false", data=data) as (pid, address, _):
                _commit(Server(ours[0], pid, address), groups)
            for _ in range(run.rounds):
                for name in ours:
                    _restart(run, row, groups, name, lambda name=name: _timed(name, data=data))
    if "kafka" in names:
        node = apache.Node(_peers.kafka_jars(), KEPT.kafka)
        try:
            node.start()
            _commit(Server("kafka", node.pid, node.address), groups)
            node.stop()
            for _ in range(run.rounds):
                _restart(run, row, groups, "kafka", lambda: _timed("kafka", node=node))
        finally:
            node.remove()


def _restart(run: Run, row: str, groups: int, name: str, start: Callable[[], Timed]) -> None:
    others = Others()
    with start() as (server, ready_ms):
        began = time.perf_counter()
        for group in range(0, groups, max(1, groups // ASKED)):
            _fetched(server, f"replay-{group}")
        loaded_ms = ready_ms + (time.perf_counter() - began) * 1e3
        figure = {"replay_ms": loaded_ms, "replay_cpu_s": server.cpu_seconds(), "replay_mb": server.memory_mb()}
    run.add(Figure(row, name, figure, round(others.cores, 2)))


def _commit(server: Server, groups: int) -> None:
    create_topic(server, TOPIC, OFFSET_PARTITIONS)
    coordinators_ready(server)
    asked = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=42, committed_metadata="")
        for p in range(OFFSET_PARTITIONS)
    )
    with socket.create_connection(server.address, 60) as connection:
        for group in range(groups):
            topic = OffsetCommitRequestTopic(name=TOPIC, partitions=asked)
            deadline = time.monotonic() + WAIT_S
            while True:
                request = OffsetCommitRequest(group_id=f"replay-{group}", topics=(topic,))
                errors = {p.error_code for p in call(connection, request, 8, OffsetCommitResponse).topics[0].partitions}
                if errors == {0}:
                    break
                assert errors <= {3, 14, 15, 16}, errors
                assert time.monotonic() < deadline, errors
                time.sleep(0.1)


def _fetched(server: Server, group: str) -> None:
    """Wait until the server returns all offsets of the group."""
    deadline = time.monotonic() + WAIT_S
    with socket.create_connection(server.address, 60) as connection:
        topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=tuple(range(OFFSET_PARTITIONS)))
        while True:
            answer = call(connection, OffsetFetchRequest(group_id=group, topics=(topic,)), 7, OffsetFetchResponse)
            if answer.error_code == 0:
                assert all(p.committed_offset == 42 for p in answer.topics[0].partitions), group
                return
            assert answer.error_code in (14, 15, 16), answer.error_code
            assert time.monotonic() < deadline, answer.error_code
            time.sleep(POLL_S)


TABLES = (
    Table(
        "Start until ready, ms; memory then, MB",
        lambda v: f"{v['ready_ms']:,.0f}; {v['idle_mb']:.0f}" if "ready_ms" in v else None,
    ),
    Table(
        "Memory with so many members, MB; for each of them, kB",
        lambda v: f"{v['members_mb']:,.0f}; {v['kb_a_member']:.1f}" if "members_mb" in v else None,
    ),
    Table(
        "Restart until the offsets are there, ms; the server's CPU for it, seconds",
        lambda v: f"{v['replay_ms']:,.0f}; {v['replay_cpu_s']:.2f}" if "replay_ms" in v else None,
    ),
)
PANELS = (
    Panel("Start until ready", "empty", "ready_ms", "ms"),
    Panel("Memory, idle", "empty", "idle_mb", "MB"),
)
SUBJECT = Subject("startup", measure, TABLES, PANELS)
