"""Rebalances of consumer groups (KIP-848): the time until all partitions are read again, and the pauses.

A round: a newcomer subscribes, the group settles, the newcomer's process is killed (kill -9), its session expires, the
group settles. The members are librdkafka's (_librdkafka.py) and Java's (java/RebalanceMembers.java)."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import bench._kafka as apache
from bench import _peers
from bench._joined import create_topic
from bench._machine import Others
from bench._peers import Server
from bench._process import Address, serving
from bench._rebalance_group import WAIT_S, Group, Host
from bench._run import WORST, Figures, Panel, Run, Subject, Table, Values
from bench.gateway import gateway
from kohort.client.cluster import Cluster
from kohort.client.errors import KafkaError

TOPIC, PARTITIONS, PERIOD_S = "orders", 60, 0.05
SESSION_MS, INTERVAL_MS = 15_000, 5_000
"""A session timeout of at least three times the hold limit, because a shorter one shortens holds; and the default
heartbeat interval."""
PAUSE_S = (2.5, 6.5)
QUIET_S = 2.0
PHASES = (
    ("librdkafka", 3, 3),
    ("java", 3, 3),
    ("librdkafka", 10, 3),
    ("java", 10, 3),
    ("librdkafka", 50, 2),
    ("java", 50, 3),
)
"""Client, size, rounds."""
ALONE = 50
"""Groups of this size run on one server after the other: three times 50 consumers are too many for two cores."""
PHASE_S = 200.0
"""No round begins when a phase has taken this long, on a server or on all."""
QUICK_ROUNDS, QUICK_SIZE = 2, 10
SERVERS = {"pushed": "kohort, pushed", "plain": "kohort, not pushed", "kafka": "Apache Kafka"}
KINDS = (("librdkafka", "java"), ("3", "10", "50"))
"""The words of `--only` besides servers: clients and sizes."""
GATEWAY = "gateway"
"""A gateway before the Apache Kafka of the same run (gateway_rebalance.py)."""
JOINS, KILLS = "newcomer", "killed"


def measure(run: Run) -> None:
    kinds = (tuple(run.columns), *KINDS)
    names, clients, sizes = (run.chosen(kind, kinds) for kind in kinds)
    names = [name for name in names if name not in _peers.missing()]
    run.result.versions["hot modules"] = "interpreted" if _peers.why_not_compiled() else "compiled"
    run.result.versions.update(_peers.versions(set(names)))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        members = _java_members(folder) if "java" in clients else ""
        servers = _servers(stack, names)
        for client, size, rounds in PHASES:
            too_large = run.quick and size > QUICK_SIZE and str(size) not in run.only
            if client not in clients or str(size) not in sizes or too_large or (client == "java" and not members):
                continue
            stories = [_Story(run, client, size, name, address, members) for name, address in servers.items()]
            at_once = 1 if size >= ALONE else len(run.columns)
            for first in range(0, len(stories), at_once):
                go = partial(_Story.go, rounds=run.asked or (QUICK_ROUNDS if run.quick else rounds))
                with ThreadPoolExecutor(at_once) as pool:
                    list(pool.map(go, stories[first : first + at_once]))
    # In the tables newcomers come first, then librdkafka, then small groups.
    places = sorted(PHASES, key=lambda phase: (phase[0] != "librdkafka", phase[1]))
    order = [f"{what}, {client}, {size}" for what in (JOINS, KILLS) for client, size, _ in places]
    run.result.figures.sort(key=lambda figure: order.index(figure.row))


def _java_members(folder: Path) -> str:
    """The class path of Java's members; empty if it cannot be built."""
    if "kafka" in _peers.missing() or not shutil.which("javac"):
        print("Java's consumers are not measured: they need Maven and Java 17")
        return ""
    return apache.compile_java(apache.JAVA / "RebalanceMembers.java", _peers.kafka_jars(), folder / "classes")


def _servers(stack: ExitStack, chosen: Sequence[str]) -> dict[str, Address]:
    """Start the servers, each with the topic and a stream of records."""
    found: dict[str, Address] = {}
    names = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
    settings = dict.fromkeys(names, str(SESSION_MS))
    for name in chosen:
        if name == "kafka":
            pid, address = stack.enter_context(apache.kafka(_peers.kafka_jars(), settings))
        elif name == GATEWAY:
            found[name] = stack.enter_context(gateway(found["kafka"], settings)).address
            continue
        else:
            hold = {"group.heartbeat.hold.enable": "true" if name == "pushed" else "false"}
            pid, address = stack.enter_context(serving(*_peers.pairs({**settings, **hold})))
        create_topic(Server(name, pid, address), TOPIC, PARTITIONS)
        words = ["stream", f"{address[0]}:{address[1]}", TOPIC, str(PARTITIONS), str(PERIOD_S)]
        command = [sys.executable, "-m", "bench._librdkafka", *words]
        stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, text=True))
        found[name] = address
    return found


class _Story:
    def __init__(self, run: Run, client: str, size: int, server: str, address: Address, members: str) -> None:
        self._run, self._members = run, members
        self._client, self._size, self._server, self._address = client, size, server, address
        self._id = f"{client}-{size}"
        self._group = Group(PARTITIONS, PERIOD_S)
        self._random = random.Random(f"{self._id}-{server}")
        self._hosts: list[Host] = []

    def go(self, rounds: int) -> None:
        ends = time.monotonic() + PHASE_S
        try:
            settled = self._host()
            for number in range(self._size):
                self._join(settled, f"m{number}")
            self._group.settle()
            self._next = self._warm_host()
            for number in range(rounds):
                if time.monotonic() > ends:
                    break
                host, name = self._next, f"n{number}"
                self._pause()
                self._newcomer(host, name)
                self._pause()
                self._kill(host, name, last=number + 1 == rounds)
        except (AssertionError, KafkaError) as error:
            print(f"{self._id} on {self._run.columns[self._server]}: {error}", flush=True)
        finally:
            for host in self._hosts:
                host.kill()

    def _host(self) -> Host:
        where = [f"{self._address[0]}:{self._address[1]}", TOPIC]
        if self._client == "java":
            java = ["java", *apache.BRIEF, apache.QUIET, "-cp", self._members]
            command = [*java, "RebalanceMembers", *where]
        else:
            command = [sys.executable, "-m", "bench._librdkafka", "members", *where]
        self._hosts.append(Host(command, self._group))
        return self._hosts[-1]

    def _warm_host(self) -> Host:
        host = self._host()
        host.warm(f"warm-{self._id}-{len(self._hosts)}")
        return host

    def _join(self, host: Host, name: str) -> None:
        self._group.present.add(name)
        host.say("join", self._id, name)

    def _pause(self) -> None:
        time.sleep(self._random.uniform(*PAUSE_S))

    def _newcomer(self, host: Host, name: str) -> None:
        others, usual, before = Others(), self._group.usual(QUIET_S), self._group.owners()
        self._join(host, name)
        self._group.settle()
        self._keep(JOINS, self._group.outcome(self._group.subscribed[name], before, usual), others)

    def _kill(self, host: Host, name: str, *, last: bool) -> None:
        """The next newcomer's process starts while the session of the killed one runs."""
        others, usual, before = Others(), self._group.usual(QUIET_S), self._group.owners()
        host.kill()
        killed = time.monotonic()
        self._group.present.discard(name)
        if not last:
            self._next = self._warm_host()
        time.sleep(max(0.0, killed + (SESSION_MS - INTERVAL_MS) / 1000 - 1 - time.monotonic()))
        began = self._session_end()
        self._group.settle(began)
        self._keep(KILLS, self._group.outcome(began, before, usual, gone=name), others)

    def _session_end(self) -> int:
        """The time of the first answer in which the group has a member less."""
        deadline = time.monotonic() + WAIT_S
        with Cluster("{}:{}".format(*self._address)) as cluster:
            while time.monotonic() < deadline:
                group = cluster.describe_groups([self._id])[self._id]
                assert group.state != "Dead", group
                if len(group.members) <= self._size:
                    return time.monotonic_ns()
                time.sleep(0.02)
        raise AssertionError("the killed member's session does not end")

    def _keep(self, what: str, outcome: Values, others: Others) -> None:
        self._run.add(f"{what}, {self._client}, {self._size}", self._server, outcome, others.cores)


def _pair(values: Values, name: str, form: str) -> str:
    return f"{values[name]:{form}}, {values[WORST + name]:{form}}"


TABLES = (
    Table("Until every partition is read again, ms: median, worst", lambda v: _pair(v, "settled_ms", ",.0f")),
    Table("Pauses of all partitions, partition-seconds: median, worst", lambda v: _pair(v, "pause_s", ".1f")),
    Table(
        "Partitions that changed hands; others that paused all the same; both medians. Rounds",
        lambda v: f"{v['moved']:.0f}; {v['stayed_paused']:.0f}. {v['rounds']:.0f}",
    ),
)
PANELS = (
    Panel("A newcomer, 10 librdkafka consumers", f"{JOINS}, librdkafka, 10", "settled_ms", "ms"),
    Panel("One of 10 Java consumers is killed", f"{KILLS}, java, 10", "settled_ms", "ms"),
)
SUBJECT = Subject("rebalance", measure, TABLES, PANELS, columns=SERVERS, shown=Figures.typical, pinned=False)
