"""Rebalances of consumer groups (KIP-848): the time until all partitions are read again, and the pauses.

Unmodified consumers at their defaults except `group.protocol=consumer`, librdkafka's (_rebalance_members.py) and
Java's (java/RebalanceMembers.java), in groups of 3, 10 and 50 that read 60 partitions, a record of each every 50 ms.
The servers are kohort, kohort without held heartbeats, and Apache Kafka from its Maven jars, one node each, all on
this machine. They run side by side, except for groups of 50, which run on one server after the other. A round: a
newcomer subscribes, the group settles, the newcomer's process is killed (kill -9), its session expires, the group
settles. Random pauses in between spread the events over the members' heartbeat interval.

    joins   from just before subscribe() until every partition is read by its owner
    kills   from the end of the session, that is the first answer of ConsumerGroupDescribe (asked every 20 ms) in which
            the member is missing, until every partition is read by its owner
    pause   the longest time without a record of a partition, less the usual one; in all, in partition-seconds. After a
            kill the partitions of the dead member count from the end of the session
    moved   partitions with a new owner; `others`: partitions that paused without a move

The session timeout is 15 s on all three servers, not 45, for a shorter run; all else is each server's default. A
group's members are threads of one process. The newcomer has a process of its own, which has been a member of another
group before, so its code is loaded. Java and Kafka need Maven and Java 17; missing peers are left out with a message.
Takes a quarter of an hour; `--quick` three minutes. `--only librdkafka|java|pushed|plain|kafka|3|10|50`, more than one
with commas; `--rounds N`; `--json FILE` keeps every round.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import bench._kafka as apache
from bench import _peers
from bench._machine import Others
from bench._process import Address, call, serving
from bench._rebalance_group import WAIT_S, Group, Host, Outcome
from bench._run import WORST, Figure, Figures, Panel, Run, Subject, Table, Values
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

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
MEMBERS_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options for a JVM whose start disturbs the others little."""
SERVERS = {"pushed": "kohort, pushed", "plain": "kohort, not pushed", "kafka": "Apache Kafka"}
HOLD = "group.heartbeat.hold.enable="


CLIENTS, SIZES = {client for client, _, _ in PHASES}, {str(size) for _, size, _ in PHASES}
JOINS, KILLS = "newcomer", "killed"


def measure(run: Run) -> None:
    only = set(run.only)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        members = "" if only & CLIENTS and "java" not in only else _java_members(folder)
        servers = _servers(stack, _chosen(run))
        for client, size, rounds in PHASES:
            if not _wanted(only, client, size, quick=run.quick) or (client == "java" and not members):
                continue
            for some in [{name: servers[name]} for name in servers] if size >= ALONE else [servers]:
                _phase(run, client, size, some, members, run.asked or (QUICK_ROUNDS if run.quick else rounds))
    order = [f"{what}, {client}, {size}" for what in (JOINS, KILLS) for client, size, _ in sorted(PHASES, key=_place)]
    run.result.figures.sort(key=lambda figure: order.index(figure.row))


def _place(phase: tuple[str, int, int]) -> tuple[bool, int]:
    """Order in the tables: librdkafka first, small groups first."""
    client, size, _ = phase
    return client != "librdkafka", size


def _wanted(only: set[str], client: str, size: int, *, quick: bool) -> bool:
    if only & SIZES:
        return str(size) in only and (not only & CLIENTS or client in only)
    return (not only & CLIENTS or client in only) and (not quick or size <= QUICK_SIZE)


def _chosen(run: Run) -> list[str]:
    named = set(run.only) - CLIENTS - SIZES
    chosen = [name for name in SERVERS if name not in _peers.missing() and (not named or name in named)]
    run.result.versions["hot modules"] = "interpreted" if _peers.why_not_compiled() else "compiled"
    run.result.versions.update(_peers.versions(set(chosen)))
    return chosen


def _java_members(folder: Path) -> str:
    """The class path of Java's members; empty if it cannot be built."""
    if "kafka" in _peers.missing() or not shutil.which("javac"):
        print("Java's consumers are not measured: they need Maven and Java 17")
        return ""
    return apache.compile_java(apache.JAVA / "RebalanceMembers.java", _peers.kafka_jars(), folder / "classes")


# -- the servers


def _servers(stack: ExitStack, chosen: Sequence[str]) -> dict[str, Address]:
    """Start the servers, each with the topic and a stream of records."""
    found: dict[str, Address] = {}
    names = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
    session = dict.fromkeys(names, str(SESSION_MS))
    for name in chosen:
        if name == "kafka":
            _, found[name] = stack.enter_context(apache.kafka(_peers.kafka_jars(), session))
        else:
            settings = [f"{key}={value}" for key, value in session.items()]
            hold = HOLD + ("true" if name == "pushed" else "false")
            _, found[name], _ = stack.enter_context(serving(hold, *settings))
    for address in found.values():
        _create_topic(address)
        stack.enter_context(_stream(address))
    return found


def _create_topic(address: Address) -> None:
    with socket.create_connection(address, 10) as connection:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        answer = call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer


def _stream(address: Address) -> subprocess.Popen[str]:
    """Closing its stdin ends the process."""
    words = [f"{address[0]}:{address[1]}", TOPIC, str(PARTITIONS), str(PERIOD_S)]
    return subprocess.Popen([sys.executable, "-m", "bench._rebalance_stream", *words], stdin=subprocess.PIPE, text=True)


# -- a group on a server


def _phase(run: Run, client: str, size: int, servers: dict[str, Address], members: str, rounds: int) -> None:
    groups = [_Story(run, client, size, name, address, members) for name, address in servers.items()]
    if not groups:
        return
    ends = time.monotonic() + PHASE_S
    with ThreadPoolExecutor(len(groups)) as pool:
        for _ in pool.map(lambda group: group.go(rounds, ends), groups):
            pass


class _Story:
    def __init__(self, run: Run, client: str, size: int, server: str, address: Address, members: str) -> None:
        self._run, self._members = run, members
        self._client, self._size, self._server, self._address = client, size, server, address
        self._id = f"{client}-{size}"
        self._group = Group(PARTITIONS, PERIOD_S)
        self._random = random.Random(f"{self._id}-{server}")
        self._hosts: list[Host] = []

    def go(self, rounds: int, ends: float) -> None:
        try:
            settled = self._host()
            for number in range(self._size):
                self._join(settled, f"m{number}")
            self._group.settle()
            newcomer = self._warm_host(0)
            for number in range(rounds):
                if time.monotonic() > ends:
                    break
                name = f"n{number}"
                self._pause()
                self._newcomer(newcomer, name)
                self._pause()
                newcomer = self._kill(newcomer, name, number + 1)
        except AssertionError as error:
            print(f"{self._id} on {SERVERS[self._server]}: {error}", flush=True)
        finally:
            for host in self._hosts:
                host.kill()

    def _host(self) -> Host:
        where = [f"{self._address[0]}:{self._address[1]}", TOPIC]
        if self._client == "java":
            java = ["java", *MEMBERS_JVM, apache.QUIET, "-cp", self._members]
            command = [*java, "RebalanceMembers", *where]
        else:
            command = [sys.executable, "-m", "bench._rebalance_members", *where]
        self._hosts.append(Host(command, self._group.hear))
        return self._hosts[-1]

    def _warm_host(self, number: int) -> Host:
        host = self._host()
        host.say("warm", f"warm-{self._id}-{number}")
        host.wait_until_warm()
        return host

    def _join(self, host: Host, name: str) -> None:
        self._group.present.add(name)
        host.say("join", self._id, name)

    def _pause(self) -> None:
        time.sleep(self._random.uniform(*PAUSE_S))

    def _quiet(self) -> float:
        now = time.monotonic_ns()
        since = now - int(QUIET_S * 1e9)
        usual = self._group.usual(since, now)
        self._group.forget_reads(since)
        return usual

    def _newcomer(self, host: Host, name: str) -> None:
        others, usual, before = Others(), self._quiet(), self._group.owners()
        self._join(host, name)
        self._group.settle()
        self._keep(JOINS, self._group.outcome(self._group.subscribed[name], before, usual), others)

    def _kill(self, host: Host, name: str, next_number: int) -> Host:
        """Returns the next newcomer's process, which starts while the session of the killed one runs."""
        others, usual, before = Others(), self._quiet(), self._group.owners()
        host.kill()
        killed = time.monotonic()
        self._group.gone(name)
        successor = self._warm_host(next_number)
        time.sleep(max(0.0, killed + (SESSION_MS - INTERVAL_MS) / 1000 - 1 - time.monotonic()))
        began = self._session_end()
        self._group.settle()
        self._keep(KILLS, self._group.outcome(began, before, usual, gone=name), others)
        return successor

    def _session_end(self) -> int:
        """The time of the first answer in which the group has a member less."""
        deadline = time.monotonic() + WAIT_S
        with closing(socket.create_connection(self._address, 10)) as connection:
            while time.monotonic() < deadline:
                request = ConsumerGroupDescribeRequest(group_ids=(self._id,))
                group = call(connection, request, 1, ConsumerGroupDescribeResponse).groups[0]
                assert group.error_code == 0, group
                if len(group.members) <= self._size:
                    return time.monotonic_ns()
                time.sleep(0.02)
        raise AssertionError("the killed member's session does not end")

    def _keep(self, what: str, outcome: Outcome, others: Others) -> None:
        row = f"{what}, {self._client}, {self._size}"
        self._run.add(Figure(row, self._server, asdict(outcome), round(others.cores, 2)))


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
