"""The server's CPU per heartbeat of classic and consumer groups, and latencies at half load; with peers and a floor."""

from __future__ import annotations

from bench._joined import (
    classic_members,
    consumer_heartbeat,
    consumer_members,
    coordinators_ready,
    create_topic,
    heartbeat,
)
from bench._load import LOAD_SHARE, half_load, measure_rates, warm
from bench._peers import LONG_SESSIONS, MANY_CONNECTIONS, NO_DELAY, Server
from bench._run import Panel, Run, Subject, Table

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
SETTINGS = {
    "kohort": {**LONG_SESSIONS, **NO_DELAY, **MANY_CONNECTIONS, "group.consumer.heartbeat.hold.enable": "false"},
    "kafka": {**LONG_SESSIONS, **NO_DELAY},
    "kfake": {"group.consumer.session.timeout.ms": "600000"},
}
FEW, MANY = 50, 1_000
ROWS = ((FEW, 1, 1), (FEW, 16, 1), (FEW, 16, 16), (MANY, 1, 1), (MANY, 16, 1))
"""Connections, heartbeats in flight on each, members on each."""
PROTOCOLS = ("classic", "consumer")
ERROR_AT = 9
"""The position of the error in both answers: after the header and the throttle time."""
TOPIC = "bench"


def measure(run: Run) -> None:
    with run.servers(SERVERS, SETTINGS) as servers:
        coordinators_ready(servers)
        joined = {protocol: {server: _join(server, protocol) for server in servers} for protocol in PROTOCOLS}
        for frames in joined.values():
            for server in servers:
                for depth in (1, 16):
                    warm(run, server, [[frame] for frame in frames[server][:FEW]], depth=depth)
        for protocol, frames in joined.items():
            for connections, depth, shared in ROWS:
                row = f"{protocol}, {connections:,} connections, depth {depth}"
                row += f", {shared} members each" if shared > 1 else ""
                requests = {
                    server: [some[n * shared : (n + 1) * shared] for n in range(connections)]
                    for server, some in frames.items()
                    if len(some) >= connections * shared
                }
                measure_rates(run, row, requests, depth=depth, error_at=_error_at, half=depth == 1)


def _join(server: Server, protocol: str) -> list[bytes]:
    """A heartbeat of each member."""
    count = max(connections * shared for connections, _, shared in ROWS)
    if server.name == "mock":
        return [heartbeat(m, 3) for m in classic_members(server, protocol, FEW)] if protocol == "classic" else []
    if protocol == "classic":
        return [heartbeat(m) for m in classic_members(server, protocol, count)]
    create_topic(server, TOPIC, 1)
    return [consumer_heartbeat(m) for m in consumer_members(server, protocol, count, TOPIC, 1)]


def _error_at(server: Server) -> int:
    """librdkafka's mock answers version 3, which has no tags."""
    return ERROR_AT - 1 if server.name == "mock" else ERROR_AT


TABLES = (
    Table("CPU of the server per heartbeat, µs", lambda v: f"{v['cpu_us']:.2f}"),
    Table("Heartbeats per second of the server's CPU", lambda v: f"{1e6 / v['cpu_us']:,.0f}"),
    Table(
        "Half of the highest rate: heartbeats a second; median and 99th percentile of the answers' times, ms", half_load
    ),
    LOAD_SHARE,
)
PANELS = (
    Panel("CPU per classic heartbeat", "classic, 50 connections, depth 1", "cpu_us", "µs"),
    Panel("The same, pipelined (depth 16)", "classic, 50 connections, depth 16", "cpu_us", "µs"),
    Panel("CPU per consumer heartbeat", "consumer, 50 connections, depth 1", "cpu_us", "µs"),
)
SUBJECT = Subject("heartbeats", measure, TABLES, PANELS, needs_load=True)
