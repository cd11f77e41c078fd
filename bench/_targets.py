"""The project's targets and the measured values; arithmetic decides whether a target is met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench._run import Figures, Values

Kept = Mapping[str, Figures]
PROTOCOLS = ("classic", "consumer")
CONNECTIONS = ("50", "1,000")
KOHORT = ("compiled", "pure")
"""The server that stands for kohort: compiled, if that was measured."""


@dataclass(frozen=True, slots=True)
class Part:
    """One figure of a target."""

    of: str
    shown: str
    met: bool


@dataclass(frozen=True, slots=True)
class Target:
    text: str
    parts: Callable[[Kept], Iterator[Part]]


def table(kept: Kept) -> list[str]:
    made = ["| target | measured | |", "| --- | --- | --- |"]
    for target in TARGETS:
        parts = list(target.parts(kept))
        made.append(f"| {target.text} | {'<br>'.join(f'{p.of}: {p.shown}' for p in parts)} | {_verdict(parts)} |")
    return made


def _verdict(parts: Sequence[Part]) -> str:
    met = sum(part.met for part in parts)
    if not parts:
        return "not measured"
    if met == len(parts):
        return "met"
    return f"{met} of {len(parts)} met" if met else "not met"


# -- lookups


def _best(kept: Kept, subject: str, row: str, server: str) -> Values:
    figures = kept.get(subject)
    return (figures and figures.best(row, server)) or {}


def _kohort(kept: Kept, subject: str, row: str) -> Values:
    return next((found for name in KOHORT if (found := _best(kept, subject, row, name))), {})


def _heartbeats(kept: Kept, depth: int, peer: str) -> Iterator[tuple[str, Values, Values]]:
    for protocol in PROTOCOLS:
        for connections in CONNECTIONS:
            row = f"{protocol}, {connections} connections, depth {depth}"
            ours, theirs = _kohort(kept, "heartbeats", row), _best(kept, "heartbeats", row, peer)
            if "cpu_us" in ours and ("cpu_us" in theirs or not peer):
                yield f"{protocol}, {connections}", ours, theirs


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.0f} ×"


# -- the targets


def _above_floor(kept: Kept) -> Iterator[Part]:
    for of, ours, floor in _heartbeats(kept, 1, "floor"):
        ratio = ours["cpu_us"] / floor["cpu_us"]
        yield Part(of, _times(ratio), ratio <= 1.4)


def _half_of_kafka(kept: Kept) -> Iterator[Part]:
    for of, ours, kafka in _heartbeats(kept, 1, "kafka"):
        ratio = ours["cpu_us"] / kafka["cpu_us"]
        yield Part(of, _times(ratio), ratio <= 0.5)


def _pipelined(kept: Kept) -> Iterator[Part]:
    for of, ours, _ in _heartbeats(kept, 16, ""):
        a_second = 1e6 / ours["cpu_us"]
        yield Part(of, f"{a_second:,.0f}", a_second >= 1_000_000)
    for protocol in PROTOCOLS:
        best = _kohort(kept, "heartbeats", f"{protocol}, 50 connections, depth 16, 16 members each")
        if best:
            a_second = 1e6 / best["cpu_us"]
            yield Part(f"{protocol}, 50, members in turn", f"{a_second:,.0f}", a_second >= 1_000_000)


def _pure(kept: Kept) -> Iterator[Part]:
    for depth in (1, 16):
        for protocol in PROTOCOLS:
            best = _best(kept, "heartbeats", f"{protocol}, 50 connections, depth {depth}", "pure")
            if "cpu_us" in best:
                a_second = 1e6 / best["cpu_us"]
                yield Part(f"{protocol}, depth {depth}", f"{a_second:,.0f}", a_second >= 75_000)


def _commits(kept: Kept) -> Iterator[Part]:
    best = _kohort(kept, "commits", "1 partition a commit")
    if best:
        yield Part("1 partition each", f"{best['rate']:,.0f}", best["rate"] >= 25_000)
    for row in ("1 partition a commit", "10 partitions a commit", "100 partitions a commit"):
        ours, kafka = _kohort(kept, "commits", row), _best(kept, "commits", row, "kafka")
        if ours and kafka:
            ratio = ours["rate"] / kafka["rate"]
            yield Part(f"{row.removesuffix(' a commit')}, beside Kafka's", _times(ratio), ratio > 1)


def _rebalances(kept: Kept) -> Iterator[Part]:
    """Compares medians."""
    figures = kept.get("rebalance")
    for row in figures.rows() if figures else ():
        ours, kafka = (figures.typical(row, name) for name in ("pushed", "kafka"))  # type: ignore[union-attr]
        if ours and kafka:
            ratio = kafka["settled_ms"] / ours["settled_ms"]
            yield Part(row, _times(ratio), ratio >= 10)


def _startup(kept: Kept) -> Iterator[Part]:
    best = _kohort(kept, "startup", "empty")
    if best:
        yield Part("ready", f"{best['ready_ms']:.0f} ms", best["ready_ms"] <= 300)
        yield Part("memory", f"{best['idle_mb']:.0f} MB", best["idle_mb"] <= 60)


def _many(kept: Kept) -> Iterator[Part]:
    for row in kept["many"].rows() if "many" in kept else ():
        best = _kohort(kept, "many", row)
        if best:
            yield Part("a core's share", f"{best['core_share']:.2f}", best["core_share"] <= 0.55)


def _records(kept: Kept) -> Iterator[Part]:
    for row in kept["records"].rows() if "records" in kept else ():
        ours, kafka = _kohort(kept, "records", row), _best(kept, "records", row, "kafka")
        if ours and kafka:
            ratio = ours["cpu_ms_mb"] / kafka["cpu_ms_mb"]
            yield Part(row, _times(ratio), ratio <= 2)


def _spark(kept: Kept) -> Iterator[Part]:
    for sink, aim in (("noop", 2_000_000), ("Parquet", 650_000)):
        found = kept["spark"].typical(f"100 bytes, {sink}", "kohort") if "spark" in kept else None
        if found:
            yield Part(f"100 bytes, {sink}", f"{found['rows_s_core']:,.0f}", found["rows_s_core"] >= aim)


TARGETS = (
    Target("CPU per heartbeat at most 1.4 × the C floor's, one under way on each connection", _above_floor),
    Target("CPU per heartbeat at most half of Apache Kafka's", _half_of_kafka),
    Target("1,000,000 heartbeats a second pipelined, on one core", _pipelined),
    Target("pure Python: 75,000 heartbeats a second on one core", _pure),
    Target("25,000 synced offset commits a second from 50 clients, and more than Apache Kafka's unsynced", _commits),
    Target("rebalances ten times as fast as with Apache Kafka's defaults (real clients)", _rebalances),
    Target("ready in 300 ms and 60 MB", _startup),
    Target("100,000 members at a 3 s interval in about half a core (at most 0.55)", _many),
    Target("produce and fetch within 2 × of Apache Kafka's CPU for each MB", _records),
    Target("into Spark 2,000,000 rows a second and core to noop, 650,000 to Parquet", _spark),
)
