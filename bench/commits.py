"""Offset commits a second, the CPU and the time of each, from 50 clients; beside peers and a floor."""

from __future__ import annotations

from bench._joined import classic_members, commit, coordinators_ready, create_topic
from bench._load import LOAD_SHARE, half_load, measure_rates, times, warm
from bench._peers import NO_DELAY
from bench._run import Panel, Run, Subject, Table

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
SETTINGS = {"kohort": NO_DELAY, "kafka": NO_DELAY}
CLIENTS = 50
PARTITIONS = (1, 10, 100)
ERROR_AT = -5
"""The error of the last partition, before the empty tags of the partition, the topic and the answer."""
TOPIC = "bench"


def measure(run: Run) -> None:
    with run.servers(SERVERS, SETTINGS) as servers:
        coordinators_ready(servers)
        for server in servers:
            create_topic(server, TOPIC, max(PARTITIONS))
        members = {server: classic_members(server, "commits", CLIENTS) for server in servers}
        for server in servers:
            for partitions in PARTITIONS:
                warm(run, server, [[commit(m, TOPIC, partitions, 1)] for m in members[server]], depth=4)
        for partitions in PARTITIONS:
            requests = {
                server: [[commit(m, TOPIC, partitions, offset) for offset in (41, 42)] for m in some]
                for server, some in members.items()
                if server.name != "mock" or partitions == 1
            }
            row = f"{partitions} partition{'s' if partitions > 1 else ''} a commit"
            more = {"offsets_per_commit": partitions}
            measure_rates(run, row, requests, depth=1, error_at=lambda _: ERROR_AT, more=more)


TABLES = (
    Table(
        "Commits a second; offsets a second", lambda v: f"{v['rate']:,.0f}; {v['rate'] * v['offsets_per_commit']:,.0f}"
    ),
    Table("CPU of the server per commit, µs", lambda v: f"{v['cpu_us']:.1f}"),
    Table("Median and 99th percentile of the answers' times at the highest rate, ms", times),
    Table("Half of the highest rate: commits a second; the same times, ms", half_load),
    LOAD_SHARE,
)
PANELS = (
    Panel("Offset commits, 1 partition", "1 partition a commit", "rate", "1000/s", 1e-3, floor=False),
    Panel("Offset commits, 100 partitions", "100 partitions a commit", "rate", "1000/s", 1e-3, floor=False),
)
SUBJECT = Subject("commits", measure, TABLES, PANELS, needs_load=True)
