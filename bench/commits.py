"""Offset commits a second, the CPU and the time of each, from 50 clients; beside peers and a floor.

50 members of classic groups, a group and a connection each, one commit under way on each; 1, 10 or 100 partitions in
each commit. kohort answers when the offsets are on the disk (fdatasync), Apache Kafka when they are in the page cache:
these are the defaults. kfake and librdkafka's mock keep them in memory; the mock's topics have four partitions. The
floor answers the same bytes and stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench import _native
from bench._joined import classic_members, commit, create_topic
from bench._load import load, warm
from bench._peers import NO_DELAY, Server, Settings, floor
from bench._run import LOAD_SHARE, Panel, Run, Subject, Table, Values
from bench.heartbeats import answer_of, full_and_half, saturated

SERVERS = ("compiled", "pure", "kafka", "kfake", "mock")
SETTINGS = Settings(kohort=NO_DELAY, kafka=NO_DELAY)
CLIENTS = 50
PARTITIONS = (1, 10, 100)
ERROR_AT = -5
"""The error of the last partition, before the empty tags of the partition, the topic and the answer."""
TOPIC = "bench"
LIMIT_S = 12.0
"""Time limit of the JVM's warm-up for each kind; a quarter in a quick run."""


def measure(run: Run) -> None:
    with run.servers(SERVERS, SETTINGS) as servers:
        members = {}
        for server in servers:
            create_topic(server, TOPIC, max(PARTITIONS))
            members[server.name] = classic_members(server.address, "commits", CLIENTS)
        for server in servers:
            if server.name == "kafka":
                for partitions in PARTITIONS:
                    once = [[commit(m, TOPIC, partitions, 1)] for m in members["kafka"]]
                    warm(server, once, depth=4, limit_s=LIMIT_S / (4 if run.quick else 1))
        for partitions in PARTITIONS:
            frames = {
                name: [[commit(m, TOPIC, partitions, offset) for offset in (41, 42)] for m in some]
                for name, some in members.items()
            }
            with ExitStack() as floors:
                model = next((s for s in servers if s.name != "mock"), None)
                chosen = [s for s in servers if s.name != "mock" or partitions == 1]
                if model is not None and run.names(("floor",)):
                    frames["floor"] = frames[model.name]
                    chosen.append(floors.enter_context(floor(answer_of(model, frames[model.name][0][0]))))
                _rounds(run, partitions, chosen, frames)


def _rounds(run: Run, partitions: int, servers: Sequence[Server], frames: dict[str, list[list[bytes]]]) -> None:
    row = f"{partitions} partition{'s' if partitions > 1 else ''} a commit"

    def once(server: Server, rate: float) -> _native.Outcome:
        return load(server, frames[server.name], depth=1, seconds=run.seconds, rate=rate, error_at=ERROR_AT)

    def values(done: _native.Outcome, cpu: float) -> Values:
        return {**saturated(done, cpu), "offsets_per_commit": partitions}

    full_and_half(run, row, servers, once, values)


TABLES = (
    Table(
        "Commits a second; offsets a second", lambda v: f"{v['rate']:,.0f}; {v['rate'] * v['offsets_per_commit']:,.0f}"
    ),
    Table("CPU of the server per commit, µs", lambda v: f"{v['cpu_us']:.1f}"),
    Table(
        "Median and 99th percentile of the answers' times at the highest rate, ms",
        lambda v: f"{v['p50_us'] / 1e3:.2f}, {v['p99_us'] / 1e3:.2f}",
    ),
    Table(
        "Half of the highest rate: commits a second; the same times, ms",
        lambda v: (
            f"{v['half_rate']:,.0f}; {v['half_p50_us'] / 1e3:.2f}, {v['half_p99_us'] / 1e3:.2f}"
            if "half_rate" in v
            else None
        ),
    ),
    LOAD_SHARE,
)
PANELS = (
    Panel("Offset commits, 1 partition", "1 partition a commit", "rate", "1000/s", 1e-3, floor=False),
    Panel("Offset commits, 100 partitions", "100 partitions a commit", "rate", "1000/s", 1e-3, floor=False),
)
SUBJECT = Subject("commits", measure, TABLES, PANELS, needs_load=True)
