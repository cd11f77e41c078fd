"""100,000 members, a heartbeat of each every 3 s: the share of a core that the server needs, and the answers' times.

Members of 1,000 classic groups, 100 each, which have truly joined; then their heartbeats come over 100 connections,
1,000 members' in turn on each, evenly spread, 33,333 a second: what is measured is heartbeats, not connections (a
connection each costs memory, see `startup`, and wake-ups, which at this rate are there too). No server may hold an
answer. Apache Kafka gets the same as far as one core goes.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import _native
from bench._crowd import Crowd
from bench._joined import Member, coordinators_ready, heartbeat
from bench._load import load
from bench._peers import Server, Settings
from bench._run import Panel, Run, Subject, Table, Values, alone
from bench.heartbeats import ERROR_AT

SERVERS = ("compiled", "pure", "kafka", "kfake")
MEMBERS, QUICK_MEMBERS = 100_000, 10_000
A_GROUP = 100
AT_ONCE = 5_000
"""Members that join together, with a connection each until they have."""
CONNECTIONS = 100
INTERVAL_S = 3.0
DEPTH = 64
SESSION_MS = 1_800_000
MANY = Settings(
    kohort={
        "max.connections": "12000",
        "max.connections.per.ip": "12000",
        "group.initial.rebalance.delay.ms": "1000",
        "group.heartbeat.hold.enable": "false",
    },
    kafka={"group.initial.rebalance.delay.ms": "1000"},
)
WAIT_S = 120.0


def measure(run: Run) -> None:
    if not _native.available():
        print(f"many: a fixed rate needs {_native.COMPILER}")
        return
    count = QUICK_MEMBERS if run.quick else MEMBERS
    row = f"{count:,} members, {count / INTERVAL_S:,.0f} heartbeats a second"
    for name in run.names(SERVERS):
        with run.servers((name,), MANY) as (server,):
            frames = [heartbeat(member) for member in _joined(server, count)]
            spread = [frames[n::CONNECTIONS] for n in range(CONNECTIONS)]
            for _ in range(run.rounds):
                run.measure(row, server, lambda server=server, spread=spread: _load(run, server, spread), _values)


def _joined(server: Server, count: int) -> list[Member]:
    coordinators_ready(server)
    members: list[Member] = []
    for first in range(0, count, AT_ONCE):
        crowd = Crowd(server.address, session_ms=SESSION_MS)
        size = min(AT_ONCE, count - first)
        for index in range(size):
            crowd.connect(f"many-{first // A_GROUP + index % (size // A_GROUP)}").join()
            if index % 50 == 49:
                crowd.serve(0)
        crowd.run(lambda crowd=crowd, size=size: crowd.stable == size, WAIT_S)
        members += [Member(m.group, m.member_id, m.generation) for m in crowd.members.values()]
        crowd.close()
    return members


def _load(run: Run, server: Server, spread: list[list[bytes]]) -> _native.Outcome:
    rate = sum(map(len, spread)) / INTERVAL_S
    return load(server, spread, depth=DEPTH, seconds=3 * run.seconds, rate=rate, error_at=ERROR_AT)


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
)
PANELS: tuple[Panel, ...] = ()
SUBJECT = Subject("many", measure, TABLES, PANELS)


def main(words: Sequence[str] = ()) -> None:
    alone(SUBJECT, words)
