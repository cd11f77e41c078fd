"""The server's CPU per heartbeat of classic and consumer groups, and latencies at half load; with peers and a floor.

The members have joined, a group each; 50 and 1,000 connections with a member each, 1 and 16 heartbeats in flight on
each. In one row sixteen members share a connection and take turns, since identical requests are the cheapest for a
server. Sessions last ten minutes, so members not under test do not expire. kohort does not hold heartbeats here.
Members of consumer groups own one partition each. librdkafka's mock has no consumer groups and does not accept 1,000
connections.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench import _native
from bench._joined import classic_members, consumer_heartbeat, consumer_members, create_topic, heartbeat
from bench._load import load, warm
from bench._peers import LONG_SESSIONS, NO_DELAY, Server, Settings, floor
from bench._process import receive
from bench._run import LOAD_SHARE, Panel, Run, Subject, Table, Values

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
SETTINGS = Settings(
    kohort={
        **LONG_SESSIONS,
        **NO_DELAY,
        "group.consumer.heartbeat.hold.enable": "false",
        "max.connections": "3000",
        "max.connections.per.ip": "3000",
    },
    kafka={**LONG_SESSIONS, **NO_DELAY},
    kfake={"group.consumer.session.timeout.ms": "600000"},
)
FEW, MANY = 50, 1_000
DEPTHS = (1, 16)
SHARED = 16
"""Members that share a connection, in one row."""
ROWS = ((FEW, 1, 1), (FEW, 16, 1), (FEW, 16, SHARED), (MANY, 1, 1), (MANY, 16, 1))
"""Connections, heartbeats in flight on each, members on each."""
PROTOCOLS = ("classic", "consumer")
ERROR_AT = 9
"""The position of the error in both answers: after the header and the throttle time."""
TOPIC = "bench"
LIMIT_S = 12.0
"""Time limit of the JVM's warm-up for each kind; a quarter in a quick run."""

Frames = list[list[bytes]]


def measure(run: Run) -> None:
    with ExitStack() as stack:
        servers = stack.enter_context(run.servers(SERVERS, SETTINGS))
        frames = {(s.name, protocol): _join(s, protocol) for s in servers for protocol in PROTOCOLS}
        _warm(run, servers, frames)
        for protocol in PROTOCOLS:
            with ExitStack() as floors:
                some = [s for s in servers if frames[s.name, protocol]] + _floor(run, floors, servers, frames, protocol)
                for connections, depth, shared in ROWS:
                    row = f"{protocol}, {connections:,} connections, depth {depth}"
                    row += f", {shared} members each" if shared > 1 else ""
                    chosen = [s for s in some if len(frames[s.name, protocol]) >= connections * shared]
                    _rounds(run, row, chosen, _spread(frames, protocol, connections, shared), depth)


def _spread(frames: dict[tuple[str, str], Frames], protocol: str, connections: int, shared: int) -> dict[str, Frames]:
    """By server and connection: one heartbeat of each of `shared` members."""
    return {
        name: [[members[n * shared + m][0] for m in range(shared)] for n in range(connections)]
        for (name, of), members in frames.items()
        if of == protocol and len(members) >= connections * shared
    }


def _join(server: Server, protocol: str) -> Frames:
    count = max(connections * shared for connections, _, shared in ROWS)
    if protocol == "classic":
        count = FEW if server.name == "mock" else count
        version = 3 if server.name == "mock" else 4
        return [[heartbeat(m, version)] for m in classic_members(server.address, "classic", count)]
    if server.name == "mock":
        return []
    create_topic(server, TOPIC, 1)
    return [[consumer_heartbeat(m)] for m in consumer_members(server.address, "consumer", count, TOPIC)]


def _floor(
    run: Run, stack: ExitStack, servers: Sequence[Server], frames: dict[tuple[str, str], Frames], protocol: str
) -> list[Server]:
    """It answers as the other servers do."""
    model = next((s for s in servers if frames[s.name, protocol] and s.name != "mock"), None)
    if model is None or not run.names(("floor",)):
        return []
    frames["floor", protocol] = frames[model.name, protocol]
    return [stack.enter_context(floor(answer_of(model, frames[model.name, protocol][0][0])))]


def answer_of(server: Server, frame: bytes) -> bytes:
    with socket.create_connection(server.address, 10) as connection:
        connection.sendall(frame)
        size = receive(connection, 4)
        return size + receive(connection, int.from_bytes(size, "big"))


def _warm(run: Run, servers: Sequence[Server], frames: dict[tuple[str, str], Frames]) -> None:
    for server in servers:
        for protocol in PROTOCOLS if server.name == "kafka" else ():
            for depth in DEPTHS:
                warm(server, frames[server.name, protocol][:50], depth=depth, limit_s=LIMIT_S / (4 if run.quick else 1))


def _rounds(run: Run, row: str, servers: Sequence[Server], frames: dict[str, Frames], depth: int) -> None:
    def once(server: Server, rate: float) -> _native.Outcome:
        return load(
            server, frames[server.name], depth=depth, seconds=run.seconds, rate=rate, error_at=_error_at(server)
        )

    full_and_half(run, row, servers, once, saturated, half=depth == 1)


def full_and_half(
    run: Run,
    row: str,
    servers: Sequence[Server],
    once: Callable[[Server, float], _native.Outcome],
    values: Callable[[_native.Outcome, float], Values],
    *,
    half: bool = True,
) -> None:
    """The rounds at the highest rate (`once` gets rate 0), then fewer at half of the highest rate of each server."""
    most = {server.name: 0.0 for server in servers}
    for _ in range(run.rounds):
        for server in servers:
            found = run.measure(row, server, lambda server=server: once(server, 0.0), values)
            most[server.name] = max(most[server.name], found["rate"])
    for _ in range(max(1, run.rounds - 1) if half else 0):
        for server in servers:
            run.measure(row, server, lambda server=server: once(server, most[server.name] / 2), at_half_load)


def _error_at(server: Server) -> int:
    """librdkafka's mock answers version 3, which has no tags."""
    return ERROR_AT - 1 if server.name == "mock" else ERROR_AT


def saturated(done: _native.Outcome, _: float) -> Values:
    return {
        "cpu_us": done.cpu_us,
        "rate": done.rate,
        "p50_us": done.p50_us,
        "p99_us": done.p99_us,
        "load_share": done.own_cpu / done.seconds,
    }


def at_half_load(done: _native.Outcome, _: float) -> Values:
    return {
        "half_rate": done.rate,
        "half_cpu_us": done.cpu_us,
        "half_p50_us": done.p50_us,
        "half_p99_us": done.p99_us,
    }


TABLES = (
    Table("CPU of the server per heartbeat, µs", lambda v: f"{v['cpu_us']:.2f}" if "cpu_us" in v else None),
    Table(
        "Heartbeats per second of the server's CPU", lambda v: f"{1e6 / v['cpu_us']:,.0f}" if "cpu_us" in v else None
    ),
    Table(
        "Half of the highest rate: heartbeats a second; median and 99th percentile of the answers' times, ms",
        lambda v: (
            f"{v['half_rate']:,.0f}; {v['half_p50_us'] / 1e3:.2f}, {v['half_p99_us'] / 1e3:.2f}"
            if "half_rate" in v
            else None
        ),
    ),
    LOAD_SHARE,
)
PANELS = (
    Panel("CPU per classic heartbeat", "classic, 50 connections, depth 1", "cpu_us", "µs"),
    Panel("The same, pipelined (depth 16)", "classic, 50 connections, depth 16", "cpu_us", "µs"),
    Panel("CPU per consumer heartbeat", "consumer, 50 connections, depth 1", "cpu_us", "µs"),
)
SUBJECT = Subject("heartbeats", measure, TABLES, PANELS, needs_load=True)
