"""100,000 members with a heartbeat every 3 s each: the server's share of a core, and latencies.

This measures heartbeats, not connections (`startup` measures the memory of a connection)."""

from __future__ import annotations

from bench._joined import classic_members, coordinators_ready, heartbeat
from bench._load import LOAD_SHARE, load, times, warm
from bench._peers import NO_DELAY
from bench._run import Run, Subject, Table
from bench.heartbeats import ERROR_AT

SERVERS = ("compiled", "pure", "kafka", "kfake")
MEMBERS, QUICK_MEMBERS = 100_000, 10_000
CONNECTIONS = 100
INTERVAL_S = 3.0
INTERVALS, QUICK_INTERVALS = 10, 3
"""Heartbeats of each member; with the first one its server learns of it on this connection."""
LIMIT_S = 20.0
"""Time limit of the JVM's warm-up; a quarter in a quick run."""
SETTINGS = {"kohort": {**NO_DELAY, "group.heartbeat.hold.enable": "false"}, "kafka": NO_DELAY}


def measure(run: Run) -> None:
    count = QUICK_MEMBERS if run.quick else MEMBERS
    rate, seconds = count / INTERVAL_S, INTERVAL_S * (QUICK_INTERVALS if run.quick else INTERVALS)
    for name in run.names(SERVERS):
        with run.servers((name,), SETTINGS) as (server,):
            coordinators_ready([server])
            frames = [heartbeat(member) for member in classic_members(server, "many", count)]
            spread = [frames[n::CONNECTIONS] for n in range(CONNECTIONS)]
            warm(run, server, spread, depth=4, limit_s=LIMIT_S)
            run.measure(
                f"{count:,} members, {rate:,.0f} heartbeats a second",
                server,
                lambda server=server, spread=spread: load(
                    server, spread, depth=64, seconds=seconds, rate=rate, error_at=ERROR_AT
                ),
                lambda done, _: {"core_share": done["cpu_us"] * done["rate"] / 1e6, **done},
            )


TABLES = (
    Table("The server's share of a core", lambda v: f"{v['core_share']:.2f}"),
    Table("Heartbeats answered a second", lambda v: f"{v['rate']:,.0f}"),
    Table("Median and 99th percentile of the answers' times, ms", times),
    LOAD_SHARE,
)
SUBJECT = Subject("many", measure, TABLES, (), needs_load=True)
