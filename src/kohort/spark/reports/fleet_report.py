"""The report of a simulated fleet: the cost of many groups for their coordinators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kohort.simulator.sizing.plan import Fleet, Line, Load
from kohort.simulator.sizing.summary import Cost
from kohort.spark.reports.figures import SERIES, drawing, new_figure
from kohort.spark.reports.page import LegendEntry, Page, Unbroken

METHOD = (
    "Shards share nothing, so the load of a fleet is the sum of its shards. Single shards of a few sizes were "
    "simulated, with groups of this size; the cost of a member in them is taken for all. Between these sizes it is "
    "interpolated, beyond the largest it is that of the largest; ± is the difference of the two neighbouring samples. "
    "Cores are those of Python on the machine that ran the simulation, without sockets and disk."
)


def fleet_page(fleet: Fleet, lines: Sequence[Line], costs: Sequence[Cost], errors: Sequence[str] = ()) -> Page:
    """The load of many groups on their coordinators, by the number of shards."""
    report = Page(
        f"{fleet.groups:,} groups, {fleet.all_members:,} members",
        f"{fleet.members} members and {fleet.partitions} partitions in each; {fleet.deploys_per_day:g} deployments and "
        f"{fleet.crashes_per_day:g} crashes a day and group: {fleet.restarts_per_s:,.1f} restarts a second",
    )
    if errors:
        report.findings([("bad", "Some runs have no figures", "; ".join(errors))])
    report.section("Load on the coordinators", METHOD)
    legend = [LegendEntry(line.label, SERIES[number]) for number, line in enumerate(lines)]
    with drawing():
        for title, value, unit in (
            ("Requests", lambda load: load.requests_per_s, "requests a second"),
            ("Processor time", lambda load: load.cores, "cores"),
        ):
            wide, narrow = (_by_shards(lines, value, unit, width) for width in (8, 4))
            report.figure(wide, f"{title}, by the number of shards.", narrow=narrow, legend=legend, alt=title)
    report.table_of(
        [(line, load) for line in lines for load in line.loads],
        {
            "run as": lambda row: Unbroken(row[0].label + (" *" if row[1].beyond else "")),
            "shards": lambda row: row[1].shards,
            "of members": lambda row: round(row[1].members_of_a_shard),
            "requests/s": lambda row: round(row[1].requests_per_s),
            "records/s": lambda row: round(row[1].records_per_s),
            "MB/s": lambda row: row[1].record_bytes_per_s / 1e6,
            "cores": lambda row: row[1].cores,
            "± %": lambda row: round(100 * row[1].spread),
            "shard %": lambda row: 100 * row[1].shard_share,
            "GB": lambda row: round(row[1].state_bytes / 1e9, 2),
        },
        "The whole fleet, by the number of shards and the members of each; records and bytes of __consumer_offsets; "
        "the share of a core that one shard takes; the memory of the state. * Shards larger than all simulated ones",
    )
    report.section("Simulated shards", "Single shards in a quiet minute; and the load of one restart of a member.")
    samples = [
        (Unbroken(line.label), size, f"{rates.requests:.2f}", f"{rates.records:.2f}", 1e6 * rates.cpu_s)
        for line in lines
        for size, rates in line.samples
    ]
    report.table(("run as", "members", "requests/s a member", "records/s", "µs of a core a second"), samples)
    restarts = [
        (Unbroken(line.label), line.restart.requests, line.restart.records, 1000 * line.restart.cpu_s) for line in lines
    ]
    report.table(("run as", "requests, a restart", "records", "ms of a core"), restarts)
    return report


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
