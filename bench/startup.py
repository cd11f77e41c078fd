"""Start until ready, memory idle and with 10,000 members, and a restart with 1,000,000 committed offsets; with peers.

Memory is the resident memory of the process and its children. There are fewer members if `ulimit -n` is lower."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial

import bench._kafka as apache
from bench import _peers
from bench._crowd import ClassicCrowd
from bench._joined import coordinators_ready, create_topic
from bench._machine import Others
from bench._peers import MANY_CONNECTIONS, Server, started
from bench._process import pinned, wait_until_it_answers
from bench._run import Panel, Run, Subject, Table
from kohort.client.cluster import Cluster

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
WAIT_S, WAIT_MS = 180.0, 180_000

Timed = AbstractContextManager[tuple[Server, float]]
"""A server, and the ms until its first answer."""


def measure(run: Run) -> None:
    _ready(run)
    _memory(run)
    _replay(run)


def _ready(run: Run) -> None:
    names = run.names(SERVERS)
    for name in names:
        if name in OURS:  # caches the bytecode
            with _storage(name) as start, start():
                pass
    for _ in range(run.rounds):
        for name in names:
            others = Others()
            with _storage(name) as start, start() as (server, ready_ms):
                cpu = server.cpu_seconds()
                time.sleep(IDLE_S)
                found = {"ready_ms": ready_ms, "ready_cpu_s": cpu, "idle_mb": server.memory_mb()}
            run.add("empty", name, found, others.cores)


@contextmanager
def _storage(name: str) -> Iterator[Callable[[], Timed]]:
    """A new data directory, which Kafka has formatted: each call of the result starts the server with it."""
    with ExitStack() as stack:
        if name == "kafka":
            node = apache.Node(_peers.kafka_jars(), KEPT["kafka"])
            stack.callback(node.remove)
            yield partial(_timed_node, node)
        else:
            yield partial(_timed, name, stack.enter_context(tempfile.TemporaryDirectory()))


@contextmanager
def _timed(name: str, data: str) -> Iterator[tuple[Server, float]]:
    began = time.perf_counter()
    with started(name, KEPT, data=data) as server:
        wait_until_it_answers(server.address, WAIT_S)
        yield server, (time.perf_counter() - began) * 1e3


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
    groups = QUICK_OFFSET_GROUPS if run.quick else OFFSET_GROUPS
    for name in run.names(REPLAYED):
        with _storage(name) as start:
            with start() as (server, _):
                _commit(server, groups)
            for _ in range(run.rounds):
                others = Others()
                with start() as (server, ready_ms):
                    began = time.perf_counter()
                    _fetch(server, groups)
                    replay_ms = ready_ms + (time.perf_counter() - began) * 1e3
                    used = {"replay_cpu_s": server.cpu_seconds(), "replay_mb": server.memory_mb()}
                row = f"{groups * OFFSET_PARTITIONS:,} offsets"
                run.add(row, name, {"replay_ms": replay_ms, **used}, others.cores)


def _commit(server: Server, groups: int) -> None:
    create_topic(server, TOPIC, OFFSET_PARTITIONS)
    coordinators_ready([server])
    offsets = {(TOPIC, partition): 42 for partition in range(OFFSET_PARTITIONS)}
    with Cluster(server.bootstrap) as cluster:
        for group in range(groups):
            cluster.commit(f"replay-{group}", offsets)


def _fetch(server: Server, groups: int) -> None:
    """Wait until the server returns all offsets of fifty groups."""
    with Cluster(server.bootstrap, api_timeout_ms=WAIT_MS, retry_backoff_ms=3, retry_backoff_max_ms=3) as cluster:
        for group in range(0, groups, max(1, groups // ASKED)):
            offsets = cluster.committed(f"replay-{group}").values()
            assert [found.offset for found in offsets] == [42] * OFFSET_PARTITIONS, group


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
