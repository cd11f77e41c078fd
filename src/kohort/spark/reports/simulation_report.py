"""The report of a simulation: the comparison of the protocols in words and figures, then plots, then all figures.

The comparison is between one barrier, at which all members stop until all have joined (the classic protocol), and
partitions that are handed over one by one. It is made for the largest simulated groups, for each pattern. The report
begins with what to do: for a group of a given size (`Advice`), or for each pattern the way that pauses least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kohort.simulator.sizing.advice import Advice
from kohort.simulator.sizing.point import CONSUMER, COOPERATIVE, EAGER, PATTERNS, PROTOCOLS
from kohort.simulator.sizing.summary import Cost
from kohort.spark.reports.figures import INK, SERIES, drawing, new_figure
from kohort.spark.reports.page import Fact, LegendEntry, Number, Page, Unbroken

COLOURS = {EAGER: SERIES[1], COOPERATIVE: SERIES[3], CONSUMER: SERIES[0]}
LEAST_S = 0.1
"""Logarithmic axes begin here; smaller values are drawn here."""
ALIKE = 1.2
"""Two figures whose ratio is smaller are about the same."""
PANELS = 3
"""Side by side."""
MOST_LABELS = 12

METHOD = (
    "The wire protocol, the coordinator, the broker and its storage are the real ones. Time, the network, processes "
    "and members are simulated; the members behave as the clients of Java or librdkafka do (heartbeats, joins, "
    "commits, polls). A figure is the mean over the seeds. The same grid and seeds give the same figures on any "
    "machine, except for processor time."
)
MEANINGS = (
    ("paused", "partition-seconds without a member that works on the partition: ten partitions that pause for "
     "one second are ten"),
    ("worst", "the longest pause of one partition, over all runs"),
    ("stable", "from a disturbance until no member begins or ends work on a partition any more"),
    ("moves", "partitions that moved to another member; needed is the smallest number that any protocol can reach"),
    ("repeated", "partition-seconds of work that was repeated, because it was not committed"),
    ("requests, records", "requests to the coordinator and records in __consumer_offsets, in virtual time"),
    ("processor time", "real time of the coordinator on the machine that simulated it, without sockets and disk"),
)  # fmt: skip


def page(costs: Sequence[Cost], advice: Advice | None = None, errors: Sequence[str] = ()) -> Page:
    """`costs` are those of every point, in order. `errors` say why some runs have no figures."""
    report = Page("The cost of a deployment for a consumer group", _subtitle(costs))
    if advice is not None:
        _advice(report, advice)
    else:
        _recommendation(report, costs)
    if errors:
        report.findings([("bad", "Some runs have no figures", "; ".join(errors))])
    unsettled = [cost for cost in costs if not cost.settled]
    if unsettled:
        which = "; ".join(dict.fromkeys(f"{c.point.pattern}, {c.point.members} members, {c.label}" for c in unsettled))
        report.findings([("bad", "Some groups were not whole at the end", which)])
    _comparison_of_protocols(report, costs)
    with drawing():
        _plots(report, costs)
    _everything(report, costs)
    return report


def _subtitle(costs: Sequence[Cost]) -> str:
    runs = sum(cost.runs for cost in costs)
    hours = sum(cost.measured_s * cost.runs for cost in costs) / 3600
    groups = f"groups of {_listed(_sizes(costs))} members"
    return f"{len(costs)} points, {runs} simulated runs, {hours:,.1f} hours of virtual time; {groups}"


def _listed(values: Iterable[object]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "no"


# -- one group


def _advice(report: Page, advice: Advice) -> None:
    ask = advice.ask
    report.section(
        "How to run this group",
        f"{ask.members} members, {ask.partitions} partitions, {ask.deploys_per_day:g} deployments and "
        f"{ask.crashes_per_day:g} crashes a day.",
    )
    best = advice.best
    first, *rest = advice.lines
    report.findings([("good", first, "")])
    report.numbers(
        [
            Number("a deployment", f"{best.paused_per_deploy_s:,.1f}", "partition-seconds paused", "good"),
            Number("worst partition", f"{best.deploy.longest_pause_s:.1f} s", "in a deployment"),
            Number("a day", f"{best.paused_per_day_s:,.1f}", f"partition-seconds, {best.unread_share:.4%} of the time"),
        ]
    )
    report.text(*rest)
    report.table_of(
        advice.ways,
        {
            "run as": lambda way: Unbroken(way.label),
            "a deployment": lambda way: way.paused_per_deploy_s,
            "worst, s": lambda way: way.deploy.longest_pause_s,
            "a crash": lambda way: way.crash.paused_s,
            "a day": lambda way: way.paused_per_day_s,
            "moves": lambda way: round(way.deploy.moves),
            "requests/s": lambda way: way.deploy.requests_per_s,
        },
        "Every way to run it, the least pause a day first: partition-seconds that a deployment, a crash and a day "
        "pause; the worst partition, moves and requests in a deployment",
    )


def _recommendation(report: Page, costs: Sequence[Cost]) -> None:
    """The way that pauses least, all in all and for each pattern, of the largest groups."""
    found = {pattern: _largest(pattern, costs) for pattern in PATTERNS}
    compared = {name: ways for name, ways in found.items() if len(ways) > 1 and max(way.paused_s for way in ways) > 0}
    if not compared:
        return
    totals: dict[str, list[float]] = {}
    for ways in compared.values():
        for cost in ways:
            totals.setdefault(_way(cost), []).append(cost.paused_s)
    everywhere = {way: sum(each) for way, each in totals.items() if len(each) == len(compared)}
    least = min(everywhere, key=lambda way: everywhere[way], default="")
    facts = []
    for pattern, ways in compared.items():
        ways = sorted(ways, key=lambda cost: (cost.paused_s, cost.requests))
        alike = [cost for cost in ways if cost.paused_s <= ALIKE * ways[0].paused_s]
        best, last = next((cost for cost in alike if _way(cost) == least), ways[0]), ways[-1]
        details = f"{best.paused_s:,.1f} partition-seconds of pause, the worst partition {best.longest_pause_s:.1f} s"
        details += f"; as {_way(last)} it is {last.paused_s:,.1f}"
        facts.append(Fact("good", f"{pattern}: run it as {_way(best)}", details, "Paused"))
    report.section("What to do", "The way to run the group that pauses least, for the largest simulated groups.")
    if len(compared) > 1 and least:
        details = (
            f"{everywhere[least]:,.1f} partition-seconds of pause in {_listed(compared)} together, the least of all"
        )
        facts.insert(0, Fact("good", f"All in all, run it as {least}", details))
    report.findings(facts)


def _largest(pattern: str, costs: Sequence[Cost]) -> list[Cost]:
    of = [cost for cost in costs if cost.point.pattern == pattern]
    largest = max((cost.point.members for cost in of), default=0)
    return [cost for cost in of if cost.point.members == largest]


def _way(cost: Cost) -> str:
    return cost.label if cost.point.pushed else f"{cost.label}, polled"


# -- the comparison

Ways = dict[tuple[str, bool], Cost]
"""Protocol, and whether it is pushed."""


def _comparison_of_protocols(report: Page, costs: Sequence[Cost]) -> None:
    compared = {pattern: ways for pattern in PATTERNS if (ways := _ways(pattern, costs))}
    findings = [_finding(pattern, ways) for pattern, ways in compared.items()]
    if not findings:
        return
    report.section(
        "A barrier, or a hand-over of each partition",
        "The classic protocol (eager) stops all members until all have joined again: a global barrier. "
        "Cooperative members keep the partitions that do not move, and move the others in two rebalances. With the "
        "consumer protocol (KIP-848) the coordinator hands over each partition by itself. Members learn of a change "
        "from their next heartbeat (polled), or, with kohort, at once (pushed).",
    )
    report.findings([*findings, *_pushed_barrier(compared)])
    _comparison(report, compared)


def _ways(pattern: str, costs: Sequence[Cost]) -> Ways:
    """The costs of the largest groups without gradual hand-over, with the first assignor and client; empty unless there
    are both a barrier and a hand-over."""
    of = [cost for cost in costs if cost.point.pattern == pattern and not cost.point.handover]
    largest = max((cost.point.members for cost in of), default=0)
    ways: Ways = {}
    for cost in of:
        if cost.point.members == largest:
            ways.setdefault((cost.point.protocol, cost.point.pushed), cost)
    return ways if {EAGER, CONSUMER} <= {protocol for protocol, _ in ways} else {}


def _finding(pattern: str, ways: Ways) -> tuple[str, str, str]:
    barrier = ways.get((EAGER, False)) or ways[EAGER, True]
    handover = ways.get((CONSUMER, True)) or ways[CONSUMER, False]
    point = barrier.point
    what = f"{PATTERNS[pattern].capitalize()}; {point.members} members, {point.partitions:,} partitions."
    if barrier.paused_s == handover.paused_s == 0:
        return "good", f"{pattern}: nothing pauses, whatever the protocol", what
    tone, headline = _headline(pattern, barrier, handover)
    details = (
        f"The barrier stopped {barrier.partitions_paused:,.0f} of them, the hand-over "
        f"{handover.partitions_paused:,.0f}; {handover.needed_moves:,.0f} had to move. The group was stable after "
        f"{barrier.stable_s:.2f} s and {handover.stable_s:.2f} s; the longest pause of a partition was "
        f"{barrier.longest_pause_s:.1f} s and {handover.longest_pause_s:.1f} s."
    )
    return tone, headline, f"{what} {details}"


def _headline(pattern: str, barrier: Cost, handover: Cost) -> tuple[str, str]:
    paused = f"{barrier.paused_s:,.0f} partition-seconds against {handover.paused_s:,.0f}"
    if handover.paused_s == 0:
        return "good", f"{pattern}: the barrier pauses {barrier.paused_s:,.0f} partition-seconds, the hand-over none"
    times = barrier.paused_s / handover.paused_s
    if times >= ALIKE:
        return "good", f"{pattern}: the barrier costs {_times(times)} times the pause of the hand-over, {paused}"
    if times > 1 / ALIKE:
        return "", f"{pattern}: both pause about the same, {paused}"
    return "warn", f"{pattern}: here the barrier costs less, {paused}"


def _times(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _pushed_barrier(compared: dict[str, Ways]) -> list[tuple[str, str, str]]:
    """A finding if pushing makes a barrier worse."""
    both = {pattern: ways for pattern, ways in compared.items() if ways.keys() >= {(EAGER, True), (EAGER, False)}}
    worse = [name for name, ways in both.items() if ways[EAGER, True].paused_s > ALIKE * ways[EAGER, False].paused_s]
    if not worse:
        return []
    details = (
        "A member that is told stops at once, and waits for the members that cannot be told yet: a commit has ended "
        "their held heartbeat, and the next one is due in up to an interval. Polled members that joined together "
        "heartbeat together, so they stop together."
    )
    return [("warn", f"Telling members at once does not help a barrier ({_listed(worse)})", details)]


def _comparison(report: Page, compared: dict[str, Ways]) -> None:
    columns = ["protocol"]
    for pattern in compared:
        columns += [f"{pattern}: paused, p·s", "stable, s"]
    rows = []
    for protocol in PROTOCOLS:
        for pushed in (False, True):
            row: list[object] = [Unbroken(f"{protocol}, {'pushed' if pushed else 'polled'}")]
            for ways in compared.values():
                cost = ways.get((protocol, pushed))
                row += [None, None] if cost is None else [cost.paused_s, round(cost.stable_s, 2)]
            if any(cell is not None for cell in row[1:]):
                rows.append(row)
    report.table(columns, rows, "The largest groups; partition-seconds that paused, and the time to stable")


# -- plots

Value = Callable[[Cost], float]


def _plots(report: Page, costs: Sequence[Cost]) -> None:
    patterns = [pattern for pattern in PATTERNS if any(cost.point.pattern == pattern for cost in costs)]
    over_sizes = len(_sizes(costs)) > 1  # lines; else bars, whose lengths must be in proportion
    for title, explanation, value, unit, is_log in (
        (
            "Paused",
            "Partition-seconds without work on a partition."
            + (" Both axes are logarithmic: a step is a factor." if over_sizes else ""),
            lambda cost: cost.paused_s,
            "partition-seconds",
            True,
        ),
        (
            "Time to stable",
            "From a disturbance until the assignment no longer changes, the mean over all disturbances of a run.",
            lambda cost: cost.stable_s,
            "seconds",
            False,
        ),
        (
            "Moves",
            "Partitions that moved, for each one that had to. A rolling restart does not have to move any: there the "
            "figure is for each partition of the group.",
            lambda cost: cost.moves / (cost.needed_moves or cost.point.partitions),
            "moves",
            False,
        ),
        (
            "Work of the coordinator",
            "Real processor time, on the machine that simulated it, for a virtual second of the group's life.",
            lambda cost: 1000 * cost.cpu_share,
            "ms a second",
            True,
        ),
    ):
        report.section(title, explanation)
        wide, narrow = (_panels(costs, patterns, value, unit, is_log and over_sizes, across) for across in (PANELS, 1))
        legend = [LegendEntry(label, colour, is_solid) for label, colour, is_solid, _ in _labels(costs)]
        report.figure(wide, narrow=narrow, legend=legend, alt=f"{title} by protocol and group size")


def _labels(costs: Sequence[Cost]) -> list[tuple[str, str, bool, list[Cost]]]:
    """The lines of the plots: label, colour, whether the line is solid (pushed), and its points."""
    lines: dict[str, list[Cost]] = {}
    clients = len({cost.point.client for cost in costs}) > 1
    for cost in costs:
        lines.setdefault(f"{_way(cost)}, {cost.point.client}" if clients else _way(cost), []).append(cost)
    plain = len({(of[0].point.protocol, of[0].point.pushed) for of in lines.values()}) == len(lines)
    found = []
    for number, (label, of) in enumerate(list(lines.items())[:MOST_LABELS]):
        point = of[0].point
        colour = COLOURS[point.protocol] if plain else SERIES[number % len(SERIES)]
        found.append((label, colour, point.pushed, of))
    return found


def _panels(costs: Sequence[Cost], patterns: Sequence[str], value: Value, unit: str, is_log: bool, across: int) -> Any:
    across = min(across, len(patterns))
    down = -(-len(patterns) // across)
    figure = new_figure(8 if across > 1 else 4, 2.6 * down + 0.2)
    axes = figure.subplots(down, across, squeeze=False, sharey=is_log)
    sizes = _sizes(costs)
    for number, panel in enumerate(axes.flat):
        if number >= len(patterns):
            panel.set_visible(False)
            continue
        pattern = patterns[number]
        of = [cost for cost in costs if cost.point.pattern == pattern]
        if len(sizes) > 1:
            _lines(panel, of, sizes, value, is_log)
        else:
            _bars(panel, of, value)
        panel.set_title(pattern)
        if number % across == 0 and len(sizes) > 1:
            panel.set_ylabel(unit)
        elif len(sizes) == 1:
            panel.set_xlabel(unit)
    return figure


def _sizes(costs: Sequence[Cost]) -> list[int]:
    return sorted({cost.point.members for cost in costs})


def _lines(panel: Any, costs: Sequence[Cost], sizes: Sequence[int], value: Value, is_log: bool) -> None:
    for _, colour, is_solid, of in _labels(costs):
        by_size: dict[int, list[float]] = {}
        for cost in of:
            by_size.setdefault(cost.point.members, []).append(max(value(cost), LEAST_S) if is_log else value(cost))
        xs = sorted(by_size)
        ys = [sum(by_size[x]) / len(by_size[x]) for x in xs]
        panel.plot(xs, ys, linestyle="-" if is_solid else (0, (2, 1.5)), color=colour, marker="o", markersize=3.5)
    panel.set_xscale("log")
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel("members")
    if is_log:
        panel.set_yscale("log")
        _decades(panel.yaxis)
    else:
        panel.set_ylim(bottom=0)


def _bars(panel: Any, costs: Sequence[Cost], value: Value) -> None:
    """Bars from zero, with their values."""
    lines = _labels(costs)[::-1]
    values = [value(of[0]) for *_, of in lines]
    longest = max(values, default=0.0) or 1.0
    for row, ((_, colour, is_solid, _of), width) in enumerate(zip(lines, values, strict=True)):
        panel.barh(row, width, color=colour, alpha=1.0 if is_solid else 0.45, height=0.7)
        panel.text(width + longest / 50, row, f"{width:,.4g}", va="center", fontsize=8, color=INK)
    panel.set_yticks(range(len(lines)), [label for label, *_ in lines])
    panel.set_xlim(0, longest * 1.3)
    panel.locator_params(axis="x", nbins=4)
    panel.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    panel.grid(axis="y", visible=False)


def _decades(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1_000 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


# -- all of it


FIGURES: dict[str, Callable[[Cost], object]] = {
    "pattern": lambda cost: cost.point.pattern,
    "members": lambda cost: cost.point.members,
    "partitions": lambda cost: cost.point.partitions,
    "protocol": lambda cost: _way(cost),
    "client": lambda cost: cost.point.client,
    "paused, p·s": lambda cost: cost.paused_s,
    "of the runs": lambda cost: f"{cost.paused_low_s:,.1f}–{cost.paused_high_s:,.1f}",
    "worst, s": lambda cost: cost.longest_pause_s,
    "stable, s": lambda cost: round(cost.stable_s, 2),
    "moves": lambda cost: round(cost.moves),
    "needed": lambda cost: round(cost.needed_moves),
    "resumed": lambda cost: round(cost.resumed),
    "rebalances": lambda cost: round(cost.rebalances),
    "repeated, p·s": lambda cost: cost.repeated_s,
    "requests": lambda cost: round(cost.requests),
    "records": lambda cost: round(cost.records),
    "processor, ms": lambda cost: cost.cpu_ms,
    "virtual, s": lambda cost: cost.measured_s,
}


def _everything(report: Page, costs: Sequence[Cost]) -> None:
    report.section("All figures")
    report.table_of(costs, FIGURES, f"{len(costs)} points", folded=True)
    report.section("What the words mean", METHOD)
    report.table(("figure", "meaning"), MEANINGS)
    used = dict.fromkeys(cost.point.pattern for cost in costs)
    report.table(("pattern", "what happens"), [(pattern, PATTERNS[pattern]) for pattern in used])
