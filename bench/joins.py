"""Time from the first join until a new group is stable, for 10 to 5,000 members, classic and consumer; with peers.

The members come as fast as one thread can connect them. They call themselves Java's client, whose heartbeats kohort may
hold. The time includes the work of their thread: `asked` is the time until the last member had sent its join."""

from __future__ import annotations

import time
from contextlib import closing

from bench._crowd import ClassicCrowd, ConsumerCrowd, Crowd
from bench._joined import coordinators_ready, create_topic
from bench._peers import MANY_CONNECTIONS, TITLES, Server
from bench._run import Panel, Run, Subject, Table, Values
from kohort.client.errors import KafkaError

SERVERS = ("compiled", "pure", "kafka", "kfake")
SIZES, QUICK_SIZES = (10, 100, 1_000, 5_000), (10, 100, 1_000)
TWICE = 100
"""Larger groups are measured once."""
TOPIC, PARTITIONS = "orders", 500
JAVA = "apache-kafka-java"
DELAYS = {"3000": "", "0": ", no initial delay"}
"""The default, and none."""
WAIT_S = 120.0


def measure(run: Run) -> None:
    for delay, suffix in DELAYS.items():
        setting = {"group.initial.rebalance.delay.ms": delay}
        servers = SERVERS if not suffix else [name for name in SERVERS if name != "kfake"]
        with run.servers(servers, {"kohort": MANY_CONNECTIONS | setting, "kafka": setting}) as started:
            for server in started:
                create_topic(server, TOPIC, PARTITIONS)
            coordinators_ready(started)
            for size in QUICK_SIZES if run.quick else SIZES:
                for _ in range(1 if run.quick or size > TWICE else 2):
                    for server in started:
                        _measure(run, f"classic, {size:,} members{suffix}", server, size)
                        if not suffix:
                            _measure(run, f"consumer, {size:,} members", server, size)


def _measure(run: Run, row: str, server: Server, size: int) -> None:
    def once() -> Values:
        """A new group each time."""
        group = f"joins-{time.monotonic_ns()}"
        crowd: Crowd = (
            ClassicCrowd(server.address, software=JAVA)
            if row.startswith("classic")
            else ConsumerCrowd(server.address, TOPIC, PARTITIONS)
        )
        with closing(crowd):
            began = time.monotonic()
            crowd.join_all([group] * size)
            asked = time.monotonic() - began
            crowd.settle(WAIT_S)
            return {"stable_s": time.monotonic() - began, "asked_s": asked}

    try:
        run.measure(row, server, once, lambda found, cpu: {**found, "cpu_s": cpu})
    except (AssertionError, OSError, KafkaError) as error:
        print(f"  {row:34} {TITLES[server.name]}: {error}", flush=True)
        run.add(row, server.name, {"failed": 1.0}, 0.0)


TABLES = (
    Table(
        "Seconds from the first join until the group is stable",
        lambda v: f"{v['stable_s']:.2f}" if "stable_s" in v else f"not within {WAIT_S:.0f} s",
    ),
    Table("The server's CPU for it, seconds", lambda v: f"{v['cpu_s']:.2f}"),
    Table("After how many seconds the last had asked", lambda v: f"{v['asked_s']:.2f}"),
)
PANELS = (
    Panel("Classic group of 1,000 until stable", "classic, 1,000 members", "stable_s", "s"),
    Panel("Consumer group of 1,000 until stable", "consumer, 1,000 members", "stable_s", "s"),
)
SUBJECT = Subject("joins", measure, TABLES, PANELS)
