"""100,000 members with a heartbeat every 3 s each: the server's share of a core, and latencies.

The members have joined classic groups, a group each. Their heartbeats come over 100 connections, each shared by 1,000
members in turn, evenly spread, 33,333 a second. So this measures heartbeats, not connections (`startup` measures the
memory of a connection). No server may hold an answer. Apache Kafka gets the same load, as far as one core allows.
"""

from __future__ import annotations

from bench import _native
from bench._joined import classic_members, coordinators_ready, heartbeat
from bench._load import load, warm
from bench._peers import NO_DELAY, Server, Settings
from bench._run import LOAD_SHARE, Panel, Run, Subject, Table, Values
from bench.heartbeats import ERROR_AT

SERVERS = ("compiled", "pure", "kafka", "kfake")
MEMBERS, QUICK_MEMBERS = 100_000, 10_000
CONNECTIONS = 100
INTERVAL_S = 3.0
INTERVALS = 10
"""Heartbeats of each member; with the first one its server learns of it on this connection."""
DEPTH = 64
LIMIT_S = 20.0
"""Time limit of the JVM's warm-up; a quarter in a quick run."""
SETTINGS = Settings(kohort={**NO_DELAY, "group.heartbeat.hold.enable": "false"}, kafka=NO_DELAY)


def measure(run: Run) -> None:
    count = QUICK_MEMBERS if run.quick else MEMBERS
    row = f"{count:,} members, {count / INTERVAL_S:,.0f} heartbeats a second"
    for name in run.names(SERVERS):
        with run.servers((name,), SETTINGS) as (server,):
            coordinators_ready(server)
            frames = [heartbeat(member) for member in classic_members(server.address, "many", count)]
            spread = [frames[n::CONNECTIONS] for n in range(CONNECTIONS)]
            if name == "kafka":
                warm(server, spread, depth=4, limit_s=LIMIT_S / (4 if run.quick else 1))
            run.measure(row, server, lambda server=server, spread=spread: _load(run, server, spread), _values)


def _load(run: Run, server: Server, spread: list[list[bytes]]) -> _native.Outcome:
    rate = sum(map(len, spread)) / INTERVAL_S
    seconds = INTERVAL_S * (INTERVALS // 3 if run.quick else INTERVALS)
    return load(server, spread, depth=DEPTH, seconds=seconds, rate=rate, error_at=ERROR_AT)


def _values(done: _native.Outcome, _: float) -> Values:
    return {
        "core_share": done.server_cpu / done.seconds,
        "rate": done.rate,
        "cpu_us": done.cpu_us,
        "p50_us": done.p50_us,
        "p99_us": done.p99_us,
        "load_share": done.own_cpu / done.seconds,
    }


TABLES = (
    Table("The server's share of a core", lambda v: f"{v['core_share']:.2f}"),
    Table("Heartbeats answered a second", lambda v: f"{v['rate']:,.0f}"),
    Table(
        "Median and 99th percentile of the answers' times, ms",
        lambda v: f"{v['p50_us'] / 1e3:.2f}, {v['p99_us'] / 1e3:.2f}",
    ),
    LOAD_SHARE,
)
PANELS: tuple[Panel, ...] = ()
SUBJECT = Subject("many", measure, TABLES, PANELS, needs_load=True)
