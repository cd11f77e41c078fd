"""A gateway beside the cluster before which it stands: produce and fetch through it and direct, in pairs of rounds.

The cluster is one broker of Apache Kafka, or kohort where Maven is not there, pinned to the load's core; the gateway
has the other core for itself. The CPU of a column is that of its own process: of the cluster, direct, and of the
gateway alone, through it. So the cost of the gateway is the CPU in its column, and the time that it adds is the
difference of the medians.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from bench._joined import CLIENT, create_topic
from bench._peers import COMPILED, LOAD_CORE, SERVER_CORE, Server, pairs, started
from bench._process import Address, pinned, program, wait_until_it_answers
from bench._run import Panel, Run, Subject, Table, Values
from kohort.client.cluster import Cluster
from kohort.wire.batches import encode_batch
from kohort.wire.codec import encode_request
from kohort.wire.records import NewRecord
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

COLUMNS = {"direct": "direct", "through": "through the gateway"}
TOPIC = "gateway"
PRODUCE, FETCH = 9, 12
MB = 1_000_000
BATCH_BYTES = 100_000
ROWS = {
    # Row: fetch or produce, bytes of records in one request, requests under way.
    "fetch 1 MB": ("fetch", MB, 2),
    "fetch 100 kB": ("fetch", BATCH_BYTES, 2),
    "fetch 1 kB, one at a time": ("fetch", 1_000, 1),
    "produce 100 kB": ("produce", BATCH_BYTES, 2),
    "produce 1 kB, one at a time": ("produce", 1_000, 1),
}


def measure(run: Run) -> None:
    with ExitStack() as stack:
        names = run.names(("kafka",)) or ["compiled"]
        cluster = stack.enter_context(_on_core(LOAD_CORE, names[0]))
        direct = Server("direct", cluster.pid, cluster.address)
        with pinned(SERVER_CORE):
            through = stack.enter_context(gateway(cluster.address))
        create_topic(direct, TOPIC, 1)
        with Cluster(direct.bootstrap) as client:
            for _ in range(2 * MB // BATCH_BYTES):
                client.produce(TOPIC, 0, _batch(BATCH_BYTES))
            client.create_topic(f"{TOPIC}-small", 1)
            client.produce(f"{TOPIC}-small", 0, _batch(1_000))
        for row, (kind, size, depth) in ROWS.items():
            frame = _fetch(size) if kind == "fetch" else _produce(size)
            for server in (direct, through):
                _round(server, frame, depth, 2 * run.seconds)  # a JVM compiles frequent code
            for _ in range(run.rounds):
                for server in (direct, through):
                    run.measure(row, server, partial(_round, server, frame, depth, run.seconds))


def _round(server: Server, frame: bytes, depth: int, seconds: float) -> Values:
    """Requests on one connection, `depth` of them under way."""
    times: list[float] = []
    sent: deque[float] = deque()
    room = bytearray(4 * MB)
    moved = 0
    with socket.create_connection(server.address, 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _take(connection, frame, room)  # the gateway opens its own connection
        before, began = server.cpu_seconds(), time.perf_counter()
        while time.perf_counter() - began < seconds or sent:
            while len(sent) < depth and time.perf_counter() - began < seconds:
                connection.sendall(frame)
                sent.append(time.perf_counter())
            moved += len(frame) + _answer(connection, room)
            times.append(time.perf_counter() - sent.popleft())
        took, used = time.perf_counter() - began, server.cpu_seconds() - before
    times.sort()
    return {
        "mb_s": moved / took / MB,
        "cpu_ms_mb": used * 1e3 / (moved / MB),
        "cpu_us": used * 1e6 / len(times),
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[len(times) * 99 // 100] * 1e3,
    }


def _take(connection: socket.socket, frame: bytes, room: bytearray) -> int:
    connection.sendall(frame)
    return _answer(connection, room)


def _answer(connection: socket.socket, room: bytearray) -> int:
    """The size of the next answer, which is read as a whole."""
    view = memoryview(room)
    have = 0
    while have < 4:
        have += connection.recv_into(view[have:4])
    size = 4 + int.from_bytes(room[:4], "big")
    while have < size:
        have += connection.recv_into(view[have:size])
    return size


@contextmanager
def _on_core(core: int, name: str) -> Iterator[Server]:
    """`started` pins to the core of servers, which is the gateway's here."""
    with started(name, {}) as server:
        for thread in os.listdir(f"/proc/{server.pid}/task"):
            os.sched_setaffinity(int(thread), {core})
        yield server


@contextmanager
def gateway(cluster: Address, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as fresh:
        upstream = "{}:{}".format(*cluster)
        command = [sys.executable, "-m", "kohort", "gateway", "--upstream", upstream, "--data-dir", fresh]
        command += ["--listen", "127.0.0.1:0", "--set", "log.format=logfmt"]
        for setting in pairs(settings or {}):
            command += ["--set", setting]
        with program(command, r"listeners=([^ :]+):(\d+) .*took_ms=", COMPILED) as (pid, address):
            wait_until_it_answers(address, 30)
            yield Server("through", pid, address)


def _batch(size: int) -> bytes:
    count = max(size // 1_000, 1)
    return encode_batch([NewRecord(None, b"v" * 990, int(time.time() * 1e3))] * count)


def _fetch(size: int) -> bytes:
    topic = TOPIC if size > BATCH_BYTES // 2 else f"{TOPIC}-small"
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    asked = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=size,
        topics=(FetchTopic(topic=topic, partitions=(part,)),),
        session_epoch=-1,
    )
    return encode_request(asked, FETCH, 1, CLIENT)


def _produce(size: int) -> bytes:
    data = (PartitionProduceData(index=0, records=_batch(size)),)
    topics = (TopicProduceData(name=TOPIC, partition_data=data),)
    return encode_request(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), PRODUCE, 1, CLIENT)


TABLES = (
    Table("MB/s", lambda v: f"{v['mb_s']:,.0f}"),
    Table("CPU of the column's own process, ms for each MB", lambda v: f"{v['cpu_ms_mb']:.2f}"),
    Table("CPU of the column's own process, µs for each request", lambda v: f"{v['cpu_us']:,.0f}"),
    Table("Median and 99th percentile, ms", lambda v: f"{v['p50_ms']:.2f}, {v['p99_ms']:.2f}"),
)
PANELS = (Panel("CPU of a gateway, fetches of 1 MB", "fetch 1 MB", "cpu_ms_mb", "ms/MB", floor=False),)
SUBJECT = Subject("gateway", measure, TABLES, PANELS, COLUMNS)
