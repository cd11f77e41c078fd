"""Start until ready, memory idle and with 10,000 members, and a restart with 1,000,000 committed offsets; with peers.

Memory is the resident memory of the process and its children. There are fewer members if `ulimit -n` is lower."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import bench._kafka as apache
from bench import _peers
from bench._crowd import ClassicCrowd
from bench._joined import connected, coordinators_ready, create_topic
from bench._machine import Others
from bench._peers import MANY_CONNECTIONS, Server, started
from bench._process import POLL_S, call, pinned, wait_until_it_answers
from bench._run import Panel, Run, Subject, Table
from kohort.client.cluster import Cluster
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
WITH_MEMBERS = ("compiled", "pure", "kafka", "kfake")
REPLAYED = ("compiled", "pure", "kafka")
OURS = ("compiled", "pure")
MANY = {"kohort": MANY_CONNECTIONS}
KEPT = {name: {"log.cleaner.enable": "false"} for name in ("kohort", "kafka")}
MEMBERS, QUICK_MEMBERS, GROUPS = 10_000, 2_000, 100
OFFSET_GROUPS, QUICK_OFFSET_GROUPS, OFFSET_PARTITIONS = 1_000, 100, 1_000
ASKED = 50
TOPIC = "orders"
IDLE_S, SERVED_S = 2.0, 4.0
"""How long a server has been idle, and has served the members, when its memory is read."""
WAIT_S = 180.0
LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Timed = AbstractContextManager[tuple[Server, float]]


def measure(run: Run) -> None:
    _ready(run)
    _memory(run)
    _replay(run)


def _ready(run: Run) -> None:
    names = run.names(SERVERS)
    for name in names:
        if name in OURS:  # caches the bytecode
            with _timed(name):
                pass
    for _ in range(run.rounds):
        for name in names:
            others = Others()
            with _timed(name) as (server, ready_ms):
                cpu = server.cpu_seconds()
                time.sleep(IDLE_S)
                found = {"ready_ms": ready_ms, "ready_cpu_s": cpu, "idle_mb": server.memory_mb()}
            run.add("empty", name, found, others.cores)


@contextmanager
def _timed(name: str, *, data: str = "") -> Iterator[tuple[Server, float]]:
    """A server, and the ms until its first answer. Kafka's storage is formatted before."""
    if name == "kafka":
        with _node() as node, _timed_node(node) as timed:
            yield timed
        return
    began = time.perf_counter()
    with started(name, KEPT, data=data) as server:
        wait_until_it_answers(server.address, WAIT_S)
        yield server, (time.perf_counter() - began) * 1e3


@contextmanager
def _node() -> Iterator[apache.Node]:
    node = apache.Node(_peers.kafka_jars(), KEPT["kafka"])
    try:
        yield node
    finally:
        node.remove()


@contextmanager
def _timed_node(node: apache.Node) -> Iterator[tuple[Server, float]]:
    began = time.perf_counter()
    with pinned(_peers.SERVER_CORE):
        node.start()
    yield Server("kafka", node.pid, node.address), (time.perf_counter() - began) * 1e3
    node.stop()


def _memory(run: Run) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(QUICK_MEMBERS if run.quick else MEMBERS, hard - 500)
    for name in run.names(WITH_MEMBERS):
        others = Others()
        with started(name, MANY) as server, closing(ClassicCrowd(server.address)) as crowd:
            coordinators_ready([server])
            idle = server.memory_mb()
            crowd.join_all([f"orders-{index % GROUPS}" for index in range(count)])
            crowd.settle(WAIT_S)
            crowd.serve(SERVED_S)
            memory = server.memory_mb()
        found = {"members_mb": memory, "kb_a_member": (memory - idle) * 1e3 / count}
        run.add(f"{count:,} members", name, found, others.cores)


def _replay(run: Run) -> None:
    """kohort's servers start with the same data."""
    groups = QUICK_OFFSET_GROUPS if run.quick else OFFSET_GROUPS
    names = run.names(REPLAYED)
    ours = [name for name in names if name in OURS]
    if ours:
        with tempfile.TemporaryDirectory() as data:
            with started(ours[0], KEPT, data=data) as server:
                _commit(server, groups)
            for name in ours * run.rounds:
                _restart(run, groups, name, lambda name=name: _timed(name, data=data))
    if "kafka" in names:
        with _node() as node:
            with _timed_node(node) as (server, _):
                _commit(server, groups)
            for _ in range(run.rounds):
                _restart(run, groups, "kafka", lambda: _timed_node(node))


def _restart(run: Run, groups: int, name: str, start: Callable[[], Timed]) -> None:
    others = Others()
    with start() as (server, ready_ms):
        began = time.perf_counter()
        for group in range(0, groups, max(1, groups // ASKED)):
            _fetch(server, f"replay-{group}")
        loaded_ms = ready_ms + (time.perf_counter() - began) * 1e3
        found = {"replay_ms": loaded_ms, "replay_cpu_s": server.cpu_seconds(), "replay_mb": server.memory_mb()}
    run.add(f"{groups * OFFSET_PARTITIONS:,} offsets", name, found, others.cores)


def _commit(server: Server, groups: int) -> None:
    create_topic(server, TOPIC, OFFSET_PARTITIONS)
    coordinators_ready([server])
    offsets = {(TOPIC, partition): 42 for partition in range(OFFSET_PARTITIONS)}
    with Cluster(server.bootstrap) as cluster:
        for group in range(groups):
            cluster.commit(f"replay-{group}", offsets)


def _fetch(server: Server, group: str) -> None:
    """Wait until the server returns all offsets of the group."""
    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=tuple(range(OFFSET_PARTITIONS)))
    request = OffsetFetchRequest(group_id=group, topics=(topic,))
    deadline = time.monotonic() + WAIT_S
    with connected(server) as connection:
        while (answer := call(connection, request, 7, OffsetFetchResponse)).error_code in LOADING:
            assert time.monotonic() < deadline, answer
            time.sleep(POLL_S)
    assert answer.error_code == 0, answer
    assert all(p.committed_offset == 42 for p in answer.topics[0].partitions), group


TABLES = (
    Table("Start until ready, ms; memory then, MB", lambda v: f"{v['ready_ms']:,.0f}; {v['idle_mb']:.0f}"),
    Table(
        "Memory with so many members, MB; for each of them, kB",
        lambda v: f"{v['members_mb']:,.0f}; {v['kb_a_member']:.1f}",
    ),
    Table(
        "Restart until the offsets are there, ms; the server's CPU for it, seconds",
        lambda v: f"{v['replay_ms']:,.0f}; {v['replay_cpu_s']:.2f}",
    ),
)
PANELS = (
    Panel("Start until ready", "empty", "ready_ms", "ms"),
    Panel("Memory, idle", "empty", "idle_mb", "MB"),
)
SUBJECT = Subject("startup", measure, TABLES, PANELS)
