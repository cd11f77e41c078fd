"""Rebalances of consumer groups (KIP-848): how long until all partitions are read again, and what paused meanwhile.

Unmodified consumers at their defaults but for `group.protocol=consumer`, librdkafka's (_rebalance_members.py) and
Java's (java/RebalanceMembers.java), in groups of 3, 10 and 50 that read 60 partitions, a record of each every 50 ms.
Kohort, kohort without held heartbeats, Apache Kafka from its Maven jars, one node each, all on this machine; side by
side, but for groups of 50, which run on one after another. A round: a newcomer subscribes, the group settles, the
newcomer's process is killed (kill -9), its session ends, the group settles. Random times in between, so that each meets
any moment of the others' heartbeat interval.

    joins   from just before subscribe() until every partition is read by its owner
    kills   from the end of the session, that is the first answer of ConsumerGroupDescribe (asked every 20 ms) in which
            the member is missing, until every partition is read by its owner
    pause   the longest time without a record of a partition, less the usual one; in all, in partition-seconds. After a
            kill the partitions of the dead member count from the end of the session
    moved   how many partitions changed hands; `others`: how many more paused all the same

The session timeout is 15 s on all three servers, not 45, so that a run is short; all else is each server's default. A
group's members are threads of one process, the newcomer has a process of its own, which has been a member of another
group before: its code is loaded. Needs Maven and Java 17 for Java and Kafka; what is missing is left out and said.
Takes a quarter of an hour; `--quick` three minutes. `--only librdkafka|java|pushed|plain|kafka|3|10|50`, more than one
with commas; `--rounds N`; `--json FILE` keeps every sample.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

import bench._kafka as apache
from bench._process import Address, call, serving
from bench._rebalance_group import WAIT_S, Group, Host, Outcome
from kohort.wire.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPIC, PARTITIONS, PERIOD_S = "orders", 60, 0.05
SESSION_MS, INTERVAL_MS = 15_000, 5_000
"""Not below three times the limit of a hold, which would shorten it; and the default heartbeat interval."""
PAUSE_S = (2.5, 6.5)
QUIET_S = 2.0
PHASES = (
    ("librdkafka", 3, 3),
    ("java", 3, 3),
    ("librdkafka", 10, 2),
    ("java", 10, 2),
    ("librdkafka", 50, 2),
    ("java", 50, 2),
)
"""Client, size, rounds."""
ALONE = 50
"""Groups of this size run on one server after another: three times 50 consumers are too much for two cores."""
PHASE_S = 200.0
"""No round begins when a phase has taken this long, on a server or on all."""
QUICK_ROUNDS = 2
MEMBERS_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""So that one that starts costs the others less."""
SERVERS = {"pushed": "kohort, pushed", "plain": "kohort, not pushed", "kafka": "Apache Kafka"}
HOLD = "group.heartbeat.hold.enable="


@dataclass(frozen=True, slots=True)
class Sample:
    client: str
    size: int
    server: str
    what: str
    """join or kill."""
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What is at hand."""

    class_path: str
    """Kafka's jars; empty without Maven and Java."""
    members: str
    """The class path of the Java members."""


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    with ExitStack() as stack:
        tools = _tools(Path(stack.enter_context(tempfile.TemporaryDirectory())), options.only)
        versions = _versions(tools)
        print(versions, flush=True)
        servers = _servers(stack, tools, options.only)
        samples: list[Sample] = []
        for client, size, rounds in PHASES:
            if not _wanted(options.only, client, size) or (client == "java" and not tools.members):
                continue
            busy = _Busy()
            for some in [{name: servers[name]} for name in servers] if size >= ALONE else [servers]:
                samples += _measure(client, size, some, tools, options.rounds or rounds)
            _report(client, size, samples, busy.cores)
    if options.json:
        kept = {"versions": versions, "session_ms": SESSION_MS, "samples": [asdict(s) for s in samples]}
        Path(options.json).write_text(json.dumps(kept, indent=1))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench rebalance")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--json", default="")
    options = parser.parse_args(words)
    options.only = {word for word in options.only.split(",") if word}
    if options.quick:
        options.rounds = options.rounds or QUICK_ROUNDS
        options.only |= {"3", "10"} if not options.only & {"3", "10", "50"} else set()
    return options


def _wanted(only: set[str], client: str, size: int) -> bool:
    return (not only & {"librdkafka", "java"} or client in only) and (not only & {"3", "10", "50"} or str(size) in only)


def _tools(folder: Path, only: set[str]) -> Toolbox:
    if not (shutil.which("mvn") and shutil.which("javac")):
        print("Java's consumers and Apache Kafka are not measured: they need Maven and Java 17")
        return Toolbox("", "")
    class_path = apache.fetch_jars(folder / "lib")
    if only & {"librdkafka", "java"} and "java" not in only:
        return Toolbox(class_path, "")
    return Toolbox(
        class_path, apache.compile_java(apache.JAVA / "RebalanceMembers.java", class_path, folder / "classes")
    )


def _versions(tools: Toolbox) -> str:
    import confluent_kafka

    import kohort

    revision = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    kafka = f", Apache Kafka and its Java client {apache.version(tools.class_path)}" if tools.class_path else ""
    return (
        f"kohort {kohort.__version__} ({revision or 'no revision'}), "
        f"librdkafka {confluent_kafka.libversion()[0]}{kafka}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )


class _Busy:
    """How many cores of the machine work, this run's own work included."""

    def __init__(self) -> None:
        self._began = self._read()

    @property
    def cores(self) -> float:
        (all_before, idle_before), (all_now, idle_now) = self._began, self._read()
        share = 1 - (idle_now - idle_before) / max(1, all_now - all_before)
        return share * (os.cpu_count() or 1)

    @staticmethod
    def _read() -> tuple[int, int]:
        with open("/proc/stat") as file:
            times = [int(word) for word in file.readline().split()[1:9]]
        return sum(times), times[3] + times[4]


# -- the servers


def _servers(stack: ExitStack, tools: Toolbox, only: set[str]) -> dict[str, Address]:
    """Each with the topic and a stream of records."""
    chosen = [name for name in SERVERS if not only & set(SERVERS) or name in only]
    found: dict[str, Address] = {}
    names = ("group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms")
    session = dict.fromkeys(names, str(SESSION_MS))
    for name in chosen:
        if name == "kafka":
            if tools.class_path:
                _, found[name] = stack.enter_context(apache.kafka(tools.class_path, session))
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
    """Its exit closes stdin, which ends it."""
    words = [f"{address[0]}:{address[1]}", TOPIC, str(PARTITIONS), str(PERIOD_S)]
    return subprocess.Popen([sys.executable, "-m", "bench._rebalance_stream", *words], stdin=subprocess.PIPE, text=True)


# -- a group on a server


def _measure(client: str, size: int, servers: dict[str, Address], tools: Toolbox, rounds: int) -> list[Sample]:
    runs = [_Run(client, size, name, address, tools) for name, address in servers.items()]
    if not runs:
        return []
    ends = time.monotonic() + PHASE_S
    with ThreadPoolExecutor(len(runs)) as pool:
        for _ in pool.map(lambda run: run.go(rounds, ends), runs):
            pass
    return [sample for run in runs for sample in run.samples]


class _Run:
    def __init__(self, client: str, size: int, server: str, address: Address, tools: Toolbox) -> None:
        self.samples: list[Sample] = []
        self._client, self._size, self._server, self._address, self._tools = client, size, server, address, tools
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
            java = ["java", *MEMBERS_JVM, apache.QUIET, "-cp", self._tools.members]
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
        usual, before = self._quiet(), self._group.owners()
        self._join(host, name)
        self._group.settle()
        self._keep("join", self._group.outcome(self._group.subscribed[name], before, usual))

    def _kill(self, host: Host, name: str, next_number: int) -> Host:
        """The next newcomer's process, which starts while the dead one's session runs."""
        usual, before = self._quiet(), self._group.owners()
        host.kill()
        killed = time.monotonic()
        self._group.gone(name)
        successor = self._warm_host(next_number)
        time.sleep(max(0.0, killed + (SESSION_MS - INTERVAL_MS) / 1000 - 1 - time.monotonic()))
        began = self._session_end()
        self._group.settle()
        self._keep("kill", self._group.outcome(began, before, usual, gone=name))
        return successor

    def _session_end(self) -> int:
        """When the server says for the first time that the group has a member less."""
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

    def _keep(self, what: str, outcome: Outcome) -> None:
        self.samples.append(Sample(self._client, self._size, self._server, what, outcome))


# -- what is told


def _report(client: str, size: int, samples: list[Sample], busy: float) -> None:
    print(f"\n{client}, {size} members, {PARTITIONS} partitions; {busy:.1f} cores were busy; median, worst of n")
    print(
        f"{'':20}{'join, ms':>15}{'pause, p·s':>14}{'moved':>6}{'others':>7}"
        f"{'kill, ms':>16}{'pause, p·s':>14}{'moved':>6}{'others':>7}{'n':>4}"
    )
    for server, name in SERVERS.items():
        mine = [s for s in samples if (s.client, s.size, s.server) == (client, size, server)]
        if not mine:
            continue
        row = f"{name:20}"
        for what in ("join", "kill"):
            of = [s.outcome for s in mine if s.what == what]
            row += f"{'':1}" + _pair([o.settled_ms for o in of], 7, ".0f") + _pair([o.pause_s for o in of], 7, ".1f")
            row += f"{statistics.median([o.moved for o in of] or [0]):6.0f}"
            row += f"{statistics.median([o.stayed_paused for o in of] or [0]):7.0f}"
        print(f"{row}{len(of):4}", flush=True)


def _pair(values: list[float], width: int, form: str) -> str:
    if not values:
        return f"{'-':>{width}}{'-':>{width}}"
    return f"{statistics.median(values):{width}{form}}{max(values):{width}{form}}"


if __name__ == "__main__":
    main(sys.argv[1:])
