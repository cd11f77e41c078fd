"""The project's targets and the measured values; arithmetic decides whether a target is met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench._run import Figures, Values

KOHORT = ("compiled", "pure")
"""The server that stands for kohort: compiled, if that was measured."""


@dataclass(frozen=True, slots=True)
class Check:
    """The bound that a target sets for some rows of a subject."""

    subject: str
    rows: Mapping[str, str]
    """Rows by the name that is shown; all rows of the subject if this is empty."""
    figure: Callable[[Values, Values], float]
    """The figure, from the values of kohort and of the peer."""
    met: Callable[[float], bool]
    peer: str = ""
    form: str = "{:,.0f}"
    """The format of a figure without a peer; a ratio to a peer has its own."""
    ours: Sequence[str] = KOHORT
    shown: Callable[[Figures, str, str], Values | None] = Figures.best

    def results(self, kept: Mapping[str, Figures]) -> Iterator[tuple[str, bool]]:
        """For each measured row the figure, and whether it meets the target."""
        figures = kept.get(self.subject) or Figures(self.subject)
        for name, row in (self.rows or {row: row for row in figures.rows()}).items():
            ours = next((found for server in self.ours if (found := self.shown(figures, row, server))), {})
            try:
                figure = self.figure(ours, self.shown(figures, row, self.peer) or {})
            except KeyError:  # it was not measured
                continue
            form = ("{:.2f} ×" if figure < 10 else "{:.0f} ×") if self.peer else self.form
            yield f"{name}: {form.format(figure)}", self.met(figure)


def table(kept: Mapping[str, Figures]) -> list[str]:
    made = ["| target | measured | |", "| --- | --- | --- |"]
    for target, checks in TARGETS.items():
        results = [result for check in checks for result in check.results(kept)]
        made.append(f"| {target} | {'<br>'.join(shown for shown, _ in results)} | {_verdict(results)} |")
    return made


def _verdict(results: Sequence[tuple[str, bool]]) -> str:
    met = sum(met for _, met in results)
    if not results:
        return "not measured"
    if met == len(results):
        return "met"
    return f"{met} of {len(results)} met" if met else "not met"


def _value(name: str) -> Callable[[Values, Values], float]:
    return lambda ours, _: ours[name]


def _ratio(name: str) -> Callable[[Values, Values], float]:
    return lambda ours, peer: ours[name] / peer[name]


def _a_second(ours: Values, _: Values) -> float:
    return 1e6 / ours["cpu_us"]


def _beside_synced(rows: Mapping[str, str], name: str, met: Callable[[float], bool]) -> Check:
    return Check("transactions", rows, _ratio(name), met, "synced", shown=Figures.typical)


PROTOCOLS = ("classic", "consumer")
HEARTBEATS, PIPELINED = (
    {
        f"{protocol}, {n}": f"{protocol}, {n} connections, depth {depth}"
        for protocol in PROTOCOLS
        for n in ("50", "1,000")
    }
    for depth in (1, 16)
)
IN_TURN = {f"{p}, 50, members in turn": f"{p}, 50 connections, depth 16, 16 members each" for p in PROTOCOLS}
ON_50 = {f"{p}, depth {depth}": f"{p}, 50 connections, depth {depth}" for depth in (1, 16) for p in PROTOCOLS}
SIZES = ("1 partition", "10 partitions", "100 partitions")
COMMITS = {f"{size}, beside Kafka's": f"{size} a commit" for size in SIZES}
TRANSACTIONS = {
    f"{shape}{offsets}, {producers}": f"{shape}{offsets}, {producers}"
    for producers in ("50 producers", "1 producer")
    for offsets in ("", ", offsets")
    for shape in ("1 record, 1 partition", "20 records, 1 partition", "20 records, 10 partitions")
}
ALONE = {name: row for name, row in TRANSACTIONS.items() if row.endswith("1 producer")}
"""With fifty, EndTxn waits for the other producers' requests: the more a server commits, the longer."""
LIBRDKAFKA = {"commit_transaction() of librdkafka": "librdkafka, 1 record, 50 a second"}
SHARE = {"a core's share": "100,000 members, 33,333 heartbeats a second"}
ALL: Mapping[str, str] = {}

TARGETS = {
    "CPU per heartbeat at most 1.4 × the C floor's, one under way on each connection": [
        Check("heartbeats", HEARTBEATS, _ratio("cpu_us"), lambda ratio: ratio <= 1.4, "floor")
    ],
    "CPU per heartbeat at most half of Apache Kafka's": [
        Check("heartbeats", HEARTBEATS, _ratio("cpu_us"), lambda ratio: ratio <= 0.5, "kafka")
    ],
    "1,000,000 heartbeats a second pipelined, on one core": [
        Check("heartbeats", {**PIPELINED, **IN_TURN}, _a_second, lambda rate: rate >= 1_000_000)
    ],
    "pure Python: 75,000 heartbeats a second on one core": [
        Check("heartbeats", ON_50, _a_second, lambda rate: rate >= 75_000, ours=("pure",))
    ],
    "25,000 synced offset commits a second from 50 clients, and more than Apache Kafka's unsynced": [
        Check("commits", {"1 partition each": "1 partition a commit"}, _value("rate"), lambda rate: rate >= 25_000),
        Check("commits", COMMITS, _ratio("rate"), lambda ratio: ratio > 1, "kafka"),
    ],
    "CPU per transaction at most half of Apache Kafka's, both synced": [
        _beside_synced(TRANSACTIONS, "cpu_us", lambda ratio: ratio <= 0.5)
    ],
    "more transactions a second than Apache Kafka, both synced": [
        _beside_synced(TRANSACTIONS, "rate", lambda ratio: ratio > 1)
    ],
    "commits faster than Apache Kafka's (medians), both synced": [
        _beside_synced(ALONE, "last_p50_us", lambda ratio: ratio < 1),
        _beside_synced(LIBRDKAFKA, "commit_p50_us", lambda ratio: ratio < 1),
    ],
    "rebalances ten times as fast as with Apache Kafka's defaults (real clients)": [
        Check(
            "rebalance",
            ALL,
            lambda ours, kafka: kafka["settled_ms"] / ours["settled_ms"],
            lambda ratio: ratio >= 10,
            "kafka",
            ours=("pushed",),
            shown=Figures.typical,
        )
    ],
    "ready in 300 ms and 60 MB": [
        Check("startup", {"ready": "empty"}, _value("ready_ms"), lambda ms: ms <= 300, form="{:.0f} ms"),
        Check("startup", {"memory": "empty"}, _value("idle_mb"), lambda mb: mb <= 60, form="{:.0f} MB"),
    ],
    "100,000 members at a 3 s interval in about half a core (at most 0.55)": [
        Check("many", SHARE, _value("core_share"), lambda share: share <= 0.55, form="{:.2f}")
    ],
    "produce and fetch within 2 × of Apache Kafka's CPU for each MB": [
        Check("records", ALL, _ratio("cpu_ms_mb"), lambda ratio: ratio <= 2, "kafka")
    ],
    "into Spark 2,000,000 rows a second and core to noop, 650,000 to Parquet": [
        Check(
            "spark",
            {name: name},
            _value("rows_s_core"),
            lambda rate, least=least: rate >= least,  # type: ignore[misc]
            ours=("kohort",),
            shown=Figures.typical,
        )
        for name, least in (("100 bytes, noop", 2_000_000), ("100 bytes, Parquet", 650_000))
    ],
}
