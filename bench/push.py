"""Pushed rebalances: how long a group takes to follow when a member comes or goes, heartbeats held and not.

Real clients at their defaults, a heartbeat every 3 s: librdkafka in threads of this process (_push_members.py), Java's
in a process of its own (java/PushLatency.java), where Maven and Java are at hand. Groups of three members that read a
trickle of records; a fourth joins, all settle, it leaves, all settle; between two such events a random pause, so that
they meet any moment of the others' interval. Pushed and not pushed run side by side, on a server each. Times go from
subscribe(), or close(), to the moment when the last member has its new assignment. What holding costs the server is a
figure of `bench groups`, idle members. Takes six minutes.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench._process import Address, call, serving
from bench._push_members import Plan, Sample, measure
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

ROOT = Path(__file__).parent.parent
PLAN = Plan(topic="orders", partitions=12, members=3, rounds=10, groups=2)
HOLD = "group.heartbeat.hold.enable="


def main() -> None:
    print(f"{PLAN.members} members of {PLAN.groups} groups, {PLAN.rounds} rounds each; times in ms")
    print(f"{'':35} {'a member joins':>18} {'one leaves':>18} {'close()':>8}")
    print(f"{'client':12}{'assignor':20}{'':12}" + f"{'median':>9}{'p95':>9}" * 2 + f"{'median':>9}")
    with _both() as servers:
        _report("librdkafka", servers, measure(servers, PLAN))
    if shutil.which("mvn") and shutil.which("java"):
        with _both() as servers:
            _report("java", servers, _java(servers))
    else:
        print("java        not measured: needs Maven and Java 17")


@contextmanager
def _both() -> Iterator[dict[str, str]]:
    """Two servers with the topic and something to read: the address of each, and what it does."""
    with serving(HOLD + "true") as (_, pushing, _), serving(HOLD + "false") as (_, plain, _):
        for address in (pushing, plain):
            _create_topic(address)
        yield {f"{host}:{port}": what for (host, port), what in ((pushing, "pushed"), (plain, "not pushed"))}


def _create_topic(address: Address) -> None:
    with socket.create_connection(address, 10) as connection:
        topic = CreatableTopic(name=PLAN.topic, num_partitions=PLAN.partitions, replication_factor=1)
        call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 5, CreateTopicsResponse)


def _java(servers: dict[str, str]) -> list[Sample]:
    with tempfile.TemporaryDirectory() as lib:
        pom = ROOT / "tests" / "java" / "pom.xml"
        copy = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={lib}"]
        subprocess.run(copy, check=True, timeout=500)
        settings = [PLAN.topic, PLAN.partitions, PLAN.members, PLAN.rounds, PLAN.groups]
        run = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{lib}/*"]
        run += [str(ROOT / "bench" / "java" / "PushLatency.java"), *map(str, settings), *servers]
        done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    samples = []
    for line in done.stdout.splitlines():
        address, assignor, what, ms = line.split()
        samples.append(Sample(address, assignor, what, float(ms)))
    return samples


def _report(client: str, servers: dict[str, str], samples: list[Sample]) -> None:
    for assignor in dict.fromkeys(sample.assignor for sample in samples):
        for address, what in servers.items():
            row = f"{client:12}{assignor:20}{what:12}"
            for timed in ("join", "leave", "close"):
                of = [s.ms for s in samples if (s.address, s.assignor, s.what) == (address, assignor, timed)]
                row += f"{statistics.median(of):9.0f}"
                if timed != "close":
                    row += f"{statistics.quantiles(of, n=20, method='inclusive')[-1]:9.0f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
