"""The report of a simulation, one HTML file: the argument in words and figures first, then plots, then everything.

The argument is that of Kafka's consumer, 2014: one barrier at which everybody stops until all have joined, against
partitions that are handed over one by one. It is answered for the largest groups that were simulated, pattern by
pattern. A report of one group's size (`Advice`) begins with the recommendation instead.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kohort.simulator.sizing.advice import Advice
from kohort.simulator.sizing.plan import Fleet, Line, Load
from kohort.simulator.sizing.point import CONSUMER, COOPERATIVE, EAGER, PATTERNS, PROTOCOLS
from kohort.simulator.sizing.summary import Cost
from kohort.spark.reports.page import SERIES, Html, Number, Page, drawing, new_figure

COLOURS = {EAGER: SERIES[1], COOPERATIVE: SERIES[3], CONSUMER: SERIES[0]}
LEAST_S = 0.1
"""Logarithmic axes begin here; what is less is drawn here."""
ALIKE = 1.2
"""Times: what is closer than that is about the same."""
PANELS = 3
"""Side by side."""
MOST_LABELS = 12

FLEET_METHOD = """
Shards share nothing, so a fleet is its shards, added up. Single shards of a few sizes were run, with groups of this
size; what a member costs in them is taken for all. Between the sizes it is in proportion, beyond the largest as in the
largest; ± is how far the two neighbouring samples are apart. Cores are Python's on the machine that ran them, without
sockets and disk.
"""
METHOD = """
Real parts: the wire protocol, the coordinator, the broker and its storage. Simulated: time, the network, processes, and
the members, which behave as Java's or librdkafka's clients do (heartbeats, joins, commits, polls). A figure is the mean
over the seeds; the same grid and seeds give the same figures anywhere, but for processor time.
"""
MEANINGS = (
    ("paused", "partition-seconds in which nobody worked on a partition; ten partitions that stand still for one second"
     " are ten"),
    ("worst", "the longest time that one partition stood still, of all runs"),
    ("stable", "from something that happens to a group until nobody begins or ends work on a partition any more"),
    ("moves", "partitions that went on with another member; needed is the least that any protocol could do with"),
    ("repeated", "partition-seconds of work that was done a second time, since it was not committed"),
    ("requests, records", "what the coordinator was asked and wrote to __consumer_offsets, in virtual time"),
    ("processor time", "real time of the coordinator on the machine that simulated it, without sockets and disk"),
)  # fmt: skip


def page(costs: Sequence[Cost], advice: Advice | None = None, errors: Sequence[str] = ()) -> Page:
    """`costs`: of every point, in order. `errors`: why some runs have no figures."""
    found = Page("What a deployment costs a consumer group", _subtitle(costs))
    if errors:
        found.findings([("bad", "Some runs have no figures", html.escape("; ".join(errors)))])
    unsettled = [cost for cost in costs if not cost.settled]
    if unsettled:
        told = "; ".join(dict.fromkeys(f"{c.point.pattern}, {c.point.members} members, {c.label}" for c in unsettled))
        found.findings([("bad", "Some groups were not whole at the end", html.escape(told))])
    if advice is not None:
        _advice(found, advice)
    _argument(found, costs)
    with drawing():
        _plots(found, costs)
    _everything(found, costs)
    return found


def _subtitle(costs: Sequence[Cost]) -> str:
    runs = sum(cost.runs for cost in costs)
    hours = sum(cost.measured_s * cost.runs for cost in costs) / 3600
    sizes = _sizes(costs)
    return (
        f"{len(costs)} points, {runs} simulated runs, {hours:,.1f} hours of virtual time; groups of "
        f"{_listed(sizes)} members"
    )


def _whole(text: str) -> Html:
    """A cell that is not broken."""
    return Html(f'<span style="white-space:nowrap">{html.escape(text)}</span>')


def _listed(values: Iterable[object]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "no"


# -- one group


def _advice(found: Page, advice: Advice) -> None:
    ask = advice.ask
    found.section(
        "How to run this group",
        f"{ask.members} members, {ask.partitions} partitions, {ask.deploys_per_day:g} deployments and "
        f"{ask.crashes_per_day:g} crashes a day.",
    )
    best = advice.best
    first, *rest = advice.lines
    found.findings([("good", first, "")])
    found.numbers(
        [
            Number("a deployment", f"{best.paused_per_deploy_s:,.1f}", "partition-seconds paused", "good"),
            Number("worst partition", f"{best.deploy.longest_pause_s:.1f} s", "in a deployment"),
            Number("a day", f"{best.paused_per_day_s:,.1f}", f"partition-seconds, {best.unread_share:.4%} of the time"),
        ]
    )
    found.text("".join(f"<p>{html.escape(line)}</p>" for line in rest))
    rows = [
        (
            _whole(way.label),
            way.paused_per_deploy_s,
            way.deploy.longest_pause_s,
            way.crash.paused_s,
            way.paused_per_day_s,
            round(way.deploy.moves),
            way.deploy.requests_per_s,
        )
        for way in advice.ways
    ]
    found.table(
        (
            "run as",
            "a deployment",
            "worst, s",
            "a crash",
            "a day",
            "moves",
            "requests/s",
        ),
        rows,
        "Every way to run it, the least pause a day first: partition-seconds that a deployment, a crash and a day "
        "pause; the worst partition, moves and requests in a deployment",
    )


# -- a fleet


def fleet_page(fleet: Fleet, lines: Sequence[Line], costs: Sequence[Cost], errors: Sequence[str] = ()) -> Page:
    """What many groups ask of their coordinators, by the number of shards."""
    found = Page(
        f"{fleet.groups:,} groups, {fleet.all_members:,} members",
        f"{fleet.members} members and {fleet.partitions} partitions in each; {fleet.deploys_per_day:g} deployments and "
        f"{fleet.crashes_per_day:g} crashes a day and group: {fleet.restarts_per_s:,.1f} restarts a second",
    )
    if errors:
        found.findings([("bad", "Some runs have no figures", html.escape("; ".join(errors)))])
    found.section("What they ask of their coordinators", FLEET_METHOD.strip())
    with drawing():
        for title, value, unit in (
            ("Requests", lambda load: load.requests_per_s, "requests a second"),
            ("Processor time", lambda load: load.cores, "cores"),
        ):
            wide, narrow = (_by_shards(lines, value, unit, width) for width in (8, 4))
            found.figure(wide, f"{title}, by the number of shards. {_fleet_legend(lines)}", narrow=narrow, alt=title)
    columns = (
        "run as",
        "shards",
        "of members",
        "requests/s",
        "records/s",
        "MB/s",
        "cores",
        "± %",
        "shard %",
        "GB",
    )
    rows = [
        (
            _whole(line.label + (" *" if load.beyond else "")),
            load.shards,
            round(load.members_of_a_shard),
            round(load.requests_per_s),
            round(load.records_per_s),
            load.record_bytes_per_s / 1e6,
            load.cores,
            round(100 * load.spread),
            100 * load.shard_share,
            round(load.state_bytes / 1e9, 2),
        )
        for line in lines
        for load in line.loads
    ]
    told = (
        "The whole fleet, by the number of shards and how many members each has; records and bytes of "
        "__consumer_offsets; the share of a core that one shard takes; the memory of the state. "
        "* Shards larger than any that was run"
    )
    found.table(columns, rows, told)
    found.section("What was run", "Single shards, a quiet minute of each; and what one restart of a member adds.")
    samples = [
        (_whole(line.label), size, f"{rates.requests:.2f}", f"{rates.records:.2f}", 1e6 * rates.cpu_s)
        for line in lines
        for size, rates in line.samples
    ]
    found.table(("run as", "members", "requests/s a member", "records/s", "µs of a core a second"), samples)
    restarts = [
        (_whole(line.label), line.restart.requests, line.restart.records, 1000 * line.restart.cpu_s) for line in lines
    ]
    found.table(("run as", "requests, a restart", "records", "ms of a core"), restarts)
    return found


def _by_shards(lines: Sequence[Line], value: Callable[[Load], float], unit: str, width: float) -> Any:
    figure = new_figure(width, 3)
    panel = figure.subplots()
    for number, line in enumerate(lines):
        xs, ys = [load.shards for load in line.loads], [value(load) for load in line.loads]
        panel.plot(xs, ys, color=SERIES[number], marker="o", markersize=3.5)
    panel.set_xscale("log")
    panel.set_xticks(xs, [f"{x:,}" for x in xs])
    panel.minorticks_off()
    panel.set_xlabel("shards")
    panel.set_ylabel(unit)
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    return figure


def _fleet_legend(lines: Sequence[Line]) -> str:
    return " &ensp; ".join(
        f'<span style="color:{SERIES[number]}">━━</span> {html.escape(line.label)}' for number, line in enumerate(lines)
    )


# -- the argument

Ways = dict[tuple[str, bool], Cost]
"""Protocol, and whether it is pushed."""


def _argument(found: Page, costs: Sequence[Cost]) -> None:
    compared = {pattern: ways for pattern in PATTERNS if (ways := _ways(pattern, costs))}
    told = [_finding(pattern, ways) for pattern, ways in compared.items()]
    if not told:
        return
    found.section(
        "A barrier, or a hand-over of each partition",
        "The classic protocol (eager) stops everybody until all have joined again: a global barrier. Cooperative "
        "members keep what does not move, and move the rest in two rebalances. With the consumer protocol (KIP-848) "
        "the coordinator hands over partition by partition. Members learn of it with their next heartbeat (polled), "
        "or, with kohort, at once (pushed).",
    )
    found.findings([*told, *_pushed_barrier(compared)])
    _comparison(found, compared)


def _ways(pattern: str, costs: Sequence[Cost]) -> Ways:
    """The largest groups, without gradual hand-over, the first assignor and client; empty where there is no barrier or
    no hand-over to compare."""
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
        return "good", f"{pattern}: nothing pauses, whatever the protocol", html.escape(what)
    tone, headline = _headline(pattern, barrier, handover)
    details = (
        f"The barrier stopped {barrier.partitions_paused:,.0f} of them, the hand-over "
        f"{handover.partitions_paused:,.0f}; {handover.needed_moves:,.0f} had to move in the end. Nothing changed any "
        f"more after {barrier.stable_s:.2f} s and {handover.stable_s:.2f} s; the worst partition stood still for "
        f"{barrier.longest_pause_s:.1f} s and "
        f"{handover.longest_pause_s:.1f} s."
    )
    return tone, headline, f"{html.escape(what)} {details}"


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
    """Pushing can make a barrier worse."""
    worse = [
        pattern
        for pattern, ways in compared.items()
        if (EAGER, True) in ways
        and (EAGER, False) in ways
        and ways[EAGER, True].paused_s > ALIKE * ways[EAGER, False].paused_s
    ]
    if not worse:
        return []
    return [
        (
            "warn",
            f"Telling members at once does not help a barrier ({_listed(worse)})",
            "Who is told stops at once, and then waits for those who cannot be told yet: a commit has ended their held "
            "heartbeat, and the next one is due in up to an interval. Polled members that joined together heartbeat "
            "together, and so stop together.",
        )
    ]


def _comparison(found: Page, compared: dict[str, Ways]) -> None:
    columns = ["protocol"]
    for pattern in compared:
        columns += [f"{pattern}: paused, p·s", "stable, s"]
    rows = []
    for protocol in PROTOCOLS:
        for pushed in (False, True):
            row: list[object] = [_whole(f"{protocol}, {'pushed' if pushed else 'polled'}")]
            for ways in compared.values():
                cost = ways.get((protocol, pushed))
                row += [None, None] if cost is None else [cost.paused_s, round(cost.stable_s, 2)]
            if any(cell is not None for cell in row[1:]):
                rows.append(row)
    found.table(columns, rows, "The largest groups; partition-seconds that paused, and the time to stable")


# -- plots

Value = Callable[[Cost], float]


def _plots(found: Page, costs: Sequence[Cost]) -> None:
    patterns = [pattern for pattern in PATTERNS if any(cost.point.pattern == pattern for cost in costs)]
    for title, explanation, value, unit, is_log in (
        (
            "Paused",
            "Partition-seconds in which nobody worked on a partition. Both axes are logarithmic: a step is a factor.",
            lambda cost: cost.paused_s,
            "partition-seconds",
            True,
        ),
        (
            "Time to stable",
            "From a disturbance until nothing changes any more, the mean over all disturbances of a run.",
            lambda cost: cost.stable_s,
            "seconds",
            False,
        ),
        (
            "Moves",
            "Partitions that changed hands, for each one that had to. A rolling restart has to move none: there it is "
            "for each partition of the group.",
            _moves_ratio,
            "moves",
            False,
        ),
        (
            "What the coordinator does",
            "Real processor time, on the machine that simulated it, for a virtual second of the group's life.",
            lambda cost: 1000 * cost.cpu_share,
            "ms a second",
            True,
        ),
    ):
        found.section(title, explanation)
        wide, narrow = (_panels(costs, patterns, value, unit, is_log, across) for across in (PANELS, 1))
        found.figure(wide, _legend(costs), narrow=narrow, alt=f"{title} by protocol and group size")


def _moves_ratio(cost: Cost) -> float:
    return cost.moves / (cost.needed_moves or cost.point.partitions)


def _legend(costs: Sequence[Cost]) -> str:
    labels = _labels(costs)
    entries = [
        f'<span style="color:{colour};white-space:nowrap">{"━━" if is_solid else "┅┅"} </span>'
        f'<span style="white-space:nowrap">{html.escape(label)}</span>'
        for label, colour, is_solid, _ in labels
    ]
    return " &ensp; ".join(entries)


def _labels(costs: Sequence[Cost]) -> list[tuple[str, str, bool, list[Cost]]]:
    """What lines there are: a label, its colour, whether it is solid (pushed), and its points."""
    lines: dict[str, list[Cost]] = {}
    clients = len({cost.point.client for cost in costs}) > 1
    for cost in costs:
        label = cost.label if cost.point.pushed else f"{cost.label}, polled"
        lines.setdefault(f"{label}, {cost.point.client}" if clients else label, []).append(cost)
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
    axes = figure.subplots(down, across, squeeze=False, sharey=is_log and len(_sizes(costs)) > 1)
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
            _bars(panel, of, value, is_log)
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


def _bars(panel: Any, costs: Sequence[Cost], value: Value, is_log: bool) -> None:
    lines = _labels(costs)[::-1]
    values = [max(value(of[0]), LEAST_S) if is_log else value(of[0]) for *_, of in lines]
    for row, ((_, colour, is_solid, _of), width) in enumerate(zip(lines, values, strict=True)):
        panel.barh(row, width, color=colour, alpha=1.0 if is_solid else 0.45, height=0.7)
    panel.set_yticks(range(len(lines)), [label for label, *_ in lines])
    panel.grid(axis="y", visible=False)
    if is_log:
        panel.set_xscale("log")
        _decades(panel.xaxis)


def _decades(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 3.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 1_000 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


# -- all of it


def _everything(found: Page, costs: Sequence[Cost]) -> None:
    found.section("All figures")
    columns = (
        "pattern",
        "members",
        "partitions",
        "protocol",
        "client",
        "paused, p·s",
        "of the runs",
        "worst, s",
        "stable, s",
        "moves",
        "needed",
        "resumed",
        "rebalances",
        "repeated, p·s",
        "requests",
        "records",
        "processor, ms",
        "virtual, s",
    )
    rows = [
        (
            cost.point.pattern,
            cost.point.members,
            cost.point.partitions,
            cost.label if cost.point.pushed else f"{cost.label}, polled",
            cost.point.client,
            cost.paused_s,
            f"{cost.paused_low_s:,.1f}–{cost.paused_high_s:,.1f}",
            cost.longest_pause_s,
            round(cost.stable_s, 2),
            round(cost.moves),
            round(cost.needed_moves),
            round(cost.resumed),
            round(cost.rebalances),
            cost.repeated_s,
            round(cost.requests),
            round(cost.records),
            cost.cpu_ms,
            cost.measured_s,
        )
        for cost in costs
    ]
    found.table(columns, rows, f"{len(rows)} points", folded=True)
    found.section("What the words mean", METHOD.strip())
    found.table(("figure", "what it is"), MEANINGS)
    used = dict.fromkeys(cost.point.pattern for cost in costs)
    found.table(("pattern", "what happens"), [(pattern, PATTERNS[pattern]) for pattern in used])
