"""Produce and fetch with librdkafka: MB and records a second, the server's CPU for each MB; with peers.

The server's CPU counts until it is idle again, so deferred work is included. Topics stay until the end, because servers
delete files later, which would be in other figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

from bench._joined import create_topic
from bench._peers import Server
from bench._run import Panel, Run, Subject, Table, Values
from kohort.client.cluster import Cluster

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
PARTITIONS = 4
AMOUNTS = {1_000: 300_000, 100: 1_000_000}
"""Value size in bytes to number of records."""
CASES = ((1_000, "none", "all"), (1_000, "none", "1"), (1_000, "lz4", "all"), (100, "none", "all"), (100, "lz4", "all"))
"""Value size in bytes, compression, acks."""
WARM_UP, QUICK_WARM_UP = 6, 1
"""Repetitions of the first case, with and without compression, that warm the JVM up."""
IDLE_S, IDLE_SHARE, IDLE_LIMIT_S = 0.3, 0.1, 5.0
"""A server is idle if it uses less than this share of a core for this long."""


@dataclass(frozen=True, slots=True)
class Case:
    size: int
    compression: str
    acks: str
    records: int

    @property
    def mb(self) -> float:
        return self.records * self.size / 1e6

    def row(self, what: str) -> str:
        compressed = "" if self.compression == "none" else f", {self.compression}"
        return f"{what}, {self.size:,} bytes{compressed}" + (f", acks={self.acks}" if what == "produce" else "")

    def values(self, done: Values, cpu: float) -> Values:
        return {
            "mb_s": self.mb / done["seconds"],
            "records_s": self.records / done["seconds"],
            "cpu_ms_mb": cpu / self.mb * 1e3,
            "client_ms_mb": done["own_cpu"] / self.mb * 1e3,
        }


def measure(run: Run) -> None:
    with run.servers(SERVERS, {}) as servers:
        for server in servers:
            if server.name == "kafka":
                _warm(run, server)
        for size, compression, acks in CASES:
            case = Case(size, compression, acks, AMOUNTS[size] // (3 if run.quick else 1))
            for number in range(run.rounds):
                for server in servers:
                    _round(run, server, case, f"records-{size}-{compression}-{acks}-{number}")


def _warm(run: Run, server: Server) -> None:
    size, _, acks = CASES[0]
    for number in range(QUICK_WARM_UP if run.quick else WARM_UP):
        for compression in ("none", "lz4"):
            case, topic = Case(size, compression, acks, AMOUNTS[size] // 3), f"warm-{compression}-{number}"
            create_topic(server, topic, PARTITIONS)
            _client("produce", server, topic, case)
            _client("consume", server, topic, case)
            _delete(server, topic)


def _round(run: Run, server: Server, case: Case, topic: str) -> None:
    # A round that `measure` repeats appends records; the fetch reads the number of one round.
    create_topic(server, topic, PARTITIONS)
    _idle(server)
    run.measure(case.row("produce"), server, lambda: _client("produce", server, topic, case), case.values)
    if case.acks == "all" and server.name != "mock":  # which keeps 5 MB of a partition
        run.measure(case.row("fetch"), server, lambda: _client("consume", server, topic, case), case.values)
    if server.name == "kfake":  # its memory
        _delete(server, topic)


def _delete(server: Server, topic: str) -> None:
    with Cluster(server.bootstrap) as cluster:
        cluster.delete_topic(topic)


def _client(what: str, server: Server, topic: str, case: Case) -> Values:
    words = [what, server.bootstrap, topic, str(case.records), str(case.size)]
    command = [sys.executable, "-m", "bench._librdkafka", *words, case.compression, case.acks]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300, text=True)
    _idle(server)
    found: Values = json.loads(done.stdout)
    return found


def _idle(server: Server) -> None:
    """Wait until the server is idle, or for the time limit."""
    deadline = time.monotonic() + IDLE_LIMIT_S
    while time.monotonic() < deadline:
        before = server.cpu_seconds()
        time.sleep(IDLE_S)
        if server.cpu_seconds() - before < IDLE_SHARE * IDLE_S:
            return


TABLES = (
    Table("CPU of the server, ms for each MB", lambda v: f"{v['cpu_ms_mb']:.2f}"),
    Table("MB a second; thousand records a second", lambda v: f"{v['mb_s']:,.0f}; {v['records_s'] / 1e3:,.0f}"),
    Table("CPU of the client, ms for each MB", lambda v: f"{v['client_ms_mb']:.2f}"),
)
PANELS = (
    Panel("CPU to produce 1 kB records", "produce, 1,000 bytes, acks=all", "cpu_ms_mb", "ms/MB"),
    Panel("CPU to fetch 1 kB records", "fetch, 1,000 bytes", "cpu_ms_mb", "ms/MB"),
)
SUBJECT = Subject("records", measure, TABLES, PANELS)
