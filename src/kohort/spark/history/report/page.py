"""The report: what a person reads in a minute, from the tables of a history.

First in words what is wrong, worst first; then the plots, each of the few groups that have something to show; then all
groups in a table. Whatever is left out for room is counted.
"""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.report import plots
from kohort.spark.history.report.findings import BAD, Finding, count, duration
from kohort.spark.history.store import Store
from kohort.spark.reports.page import Html, Number, Page

if TYPE_CHECKING:
    from kohort.spark.history.run import HistorySummary

SHOWN = 8
"""Groups in one plot."""
MOST_FINDINGS = 12
MOST_ROWS = 200
MOST_GANTTS = 3


def report(store: Store, summary: HistorySummary, source: str) -> str:
    """The page, as HTML."""
    groups = _table(store, "groups").sort_by(
        [("in_trouble", "descending"), ("lag", "descending"), ("group", "ascending")]
    )
    page = Page("Consumer groups: the history", _subtitle(summary, source))
    _overview(page, summary, groups)
    if summary.records:
        since, until = summary.since_ms, summary.until_ms
        _lag(page, store, summary, since, until)
        _rebalances(page, store, summary, since, until)
        _ownership(page, store, summary, since, until)
        _rates(page, store, since, until)
        _incidents(page, store)
    _groups(page, groups)
    _log(page, store, summary)
    return page.html()


def _table(store: Store, name: str, **how: Any) -> pa.Table:
    found = store.table(name, **how)
    assert found is not None, name
    return found


def _subtitle(summary: HistorySummary, source: str) -> str:
    if not summary.records:
        return source
    spanned = duration(summary.until_ms - summary.since_ms)
    return f"{source} · {_day(summary.since_ms)} to {_day(summary.until_ms)} UTC, {spanned}"


def _day(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M}"


def _overview(page: Page, summary: HistorySummary, groups: pa.Table) -> None:
    lag = pc.sum(groups.column("lag")).as_py()
    warned = {one.group for one in summary.findings if one.severity != BAD}
    troubled = {one.group for one in summary.findings if one.severity == BAD}
    page.numbers(
        [
            Number("groups", f"{summary.groups:,}"),
            Number("in trouble", f"{summary.in_trouble:,}", tone="bad" if summary.in_trouble else "good"),
            Number("to look at", f"{len(warned - troubled):,}", tone="warn" if warned - troubled else ""),
            Number("lag now", _short(lag) if lag is not None else "not known", "records, all groups"),
            Number("commits", _short(summary.rows["commits"])),
            Number("rebalances", _short(summary.rows["rebalances"])),
        ]
    )
    if not summary.records:
        page.text("<p>The log holds no records: no group has committed anything.</p>")
        return
    shown = summary.findings[:MOST_FINDINGS]
    lines = [(one.severity, one.headline, _details(one)) for one in shown]
    healthy = summary.groups - len(troubled | warned)
    if len(summary.findings) > len(shown):
        lines.append(("", f"and {count(len(summary.findings) - len(shown), 'finding')} more", "in the table below"))
    if healthy:
        lines.append(("good", f"{count(healthy, 'group')} without a finding", ""))
    page.findings(lines)


def _details(one: Finding) -> str:
    when = _clock(one.since, one.until) if one.since >= 0 else ""
    return html.escape(one.details) + (f" · {when}" if when else "")


def _clock(since: int, until: int) -> str:
    start = _day(since)
    if until < 0 or until == since:
        return start
    end = _day(until)
    return start if end == start else f"{start} to {end[11:] if end[:10] == start[:10] else end}"


def _short(number: int) -> str:
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**4, "k")):
        if number >= limit:
            scaled = number / (limit if unit != "k" else 1000)
            return f"{scaled:.1f} {unit}" if scaled < 100 else f"{scaled:.0f} {unit}"
    return f"{number:,}"


def _first(groups: list[str], most: int, *before: str) -> list[str]:
    """The groups of findings in front."""
    return list(dict.fromkeys([*(group for group in before if group in groups), *groups]))[:most]


def _lag(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    page.section(
        "Lag over time",
        "What was written to the topics and not yet committed, summed over a group's partitions. The end of a log at "
        "an instant is where its first record from then on stands.",
    )
    lag = _table(store, "lag", columns=["group", "at", "lag"])
    if not lag.num_rows:
        page.text(
            "<p>Not known: the log of the groups does not say where the topics end. A running cluster is asked; for a "
            "dump, give the ends in a file (<code>--ends</code>).</p>"
        )
        return
    totals = lag.group_by(["group", "at"]).aggregate([("lag", "sum")])
    peaks = totals.group_by("group").aggregate([("lag_sum", "max")]).sort_by([("lag_sum_max", "descending")])
    told = [one.group for one in summary.findings if one.kind in ("falling behind", "standstill", "deserted")]
    highest = peaks.column("lag_sum_max")[0].as_py()
    high = [row["group"] for row in peaks.to_pylist() if row["lag_sum_max"] * 50 >= highest]
    shown = _first([*high, *(group for group in told if group not in high)], SHOWN, *told)
    left = peaks.num_rows - len(shown)
    wide, narrow = (plots.lag(totals, shown, since, until, width) for width in plots.WIDTHS)
    more = f" {count(left, 'group')} with less lag not shown." if left else ""
    page.figure(wide, f"A group is drawn where its lag is known.{more}", narrow=narrow, alt="Lag of groups over time")


def _rebalances(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    page.section(
        "Rebalances",
        "Each mark is a rebalance; the larger, the more partitions went to another member. Storms are shaded.",
    )
    done = _table(
        store, "rebalances", columns=["group", "started", "settled", "moved", "length_ms", "pause_ms", "raises"]
    )
    if not done.num_rows:
        page.text("<p>None: no group has dealt out partitions.</p>")
        return
    counts = (
        done.group_by("group")
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending"), ("group", "ascending")])
    )
    stormy = [one.group for one in summary.findings if one.kind == "storm"]
    shown = _first(counts.column("group").to_pylist(), 15, *stormy)
    storms = _table(store, "storms")
    wide, narrow = (plots.rebalances(done, storms, shown, since, until, width) for width in plots.WIDTHS)
    left = counts.num_rows - len(shown)
    more = f" {count(left, 'group')} with fewer rebalances not shown." if left else ""
    page.figure(wide, f"The groups that rebalanced most.{more}", narrow=narrow, alt="Rebalances over time")
    if storms.num_rows:
        rows = storms.sort_by([("rebalances", "descending")]).to_pylist()[:20]
        page.table(
            ["group", "since", "lasted", "rebalances", "partitions moved", "longest pause", "joined"],
            [
                (
                    row["group"],
                    _stamp(row["since"]),
                    duration((row["until"] - row["since"]).total_seconds() * 1000),
                    row["rebalances"],
                    row["moved"],
                    duration(row["longest_pause_ms"]) if row["longest_pause_ms"] else None,
                    row["newcomers"],
                )
                for row in rows
            ],
            "Storms",
        )


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%m-%d %H:%M:%S}"


def _ownership(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    told = [one.group for one in summary.findings if one.kind in ("storm", "zombie", "sawtooth", "standstill")]
    owned = _table(store, "ownership", columns=["group"])
    counts = (
        owned.group_by("group")
        .aggregate([([], "count_all")])
        .sort_by([("count_all", "descending"), ("group", "ascending")])
    )
    shown = _first([str(group) for group in counts.column("group").to_pylist()], MOST_GANTTS, *told)
    if not shown:
        return
    page.section(
        "Who had which partition",
        "A row is a partition, a colour a member; a gap is a time without an owner. Marks are commits that went back.",
    )
    for group in shown:
        spans = _table(store, "ownership", filters=pc.field("group") == group)
        saws = _table(
            store,
            "commits",
            columns=["group", "topic", "partition", "at", "step"],
            filters=(pc.field("group") == group) & (pc.field("step") == "back"),
        )
        drawn = [plots.gantt(group, spans, saws, since, until, width) for width in plots.WIDTHS]
        caption = f"{html.escape(group)}: {drawn[0][1]}"
        page.figure(drawn[0][0], caption, narrow=drawn[1][0], alt=f"Owners of the partitions of {group}")


def _rates(page: Page, store: Store, since: int, until: int) -> None:
    page.section("Rates", "Records a second that each group has read, by its commits.")
    rates = _table(store, "rates", columns=["group", "since", "until", "records"])
    if not rates.num_rows:
        page.text("<p>Nothing was read.</p>")
        return
    totals = rates.group_by(["group", "since", "until"]).aggregate([("records", "sum")])
    sums = (
        rates.group_by("group")
        .aggregate([("records", "sum")])
        .sort_by([("records_sum", "descending"), ("group", "ascending")])
    )
    most = sums.column("records_sum")[0].as_py()
    shown = [row["group"] for row in sums.to_pylist() if row["records_sum"] * 50 >= most][:SHOWN]
    wide, narrow = (plots.rates(totals, shown, since, until, width) for width in plots.WIDTHS)
    left = sums.num_rows - len(shown)
    more = f"{count(left, 'group')} that read less not shown." if left else ""
    page.figure(wide, more, narrow=narrow, alt="Records a second by group")


def _incidents(page: Page, store: Store) -> None:
    page.section("Findings", "All of them. The tables beside this page have every single step.")
    rows = _table(store, "findings").to_pylist()
    if not rows:
        page.text("<p>None.</p>")
    else:
        page.table(
            ["", "group", "kind", "what", "since", "until"],
            [
                (
                    Html(
                        f'<span class="tag {row["severity"]}">{"trouble" if row["severity"] == BAD else "look"}</span>'
                    ),
                    row["group"],
                    row["kind"],
                    Html(f"{html.escape(row['headline'])}<br><span class=note>{html.escape(row['details'])}</span>"),
                    _stamp(row["since"]),
                    _stamp(row["until"]),
                )
                for row in rows[:MOST_ROWS]
            ],
            f"The first {MOST_ROWS} of {len(rows):,}." if len(rows) > MOST_ROWS else "",
        )
    jumped = _table(store, "rewinds").sort_by([("at", "ascending")])
    if jumped.num_rows:
        page.table(
            ["group", "topic", "partition", "at", "from", "to", "back", "cause"],
            [(*row.values(),) for row in _stamped(jumped.to_pylist()[:MOST_ROWS])],
            f"Rewinds and resets ({jumped.num_rows:,})",
            folded=True,
        )


def _stamped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: _stamp(v) if isinstance(v, datetime) else v for name, v in row.items()} for row in rows]


def _groups(page: Page, groups: pa.Table) -> None:
    page.section("All groups")
    rows = groups.slice(0, MOST_ROWS).to_pylist()
    page.table(
        ["group", "", "protocol", "members", "partitions", "lag", "commits", "rebalances", "last commit"],
        [
            (
                row["group"],
                Html(_tag(row)),
                row["protocol"],
                row["members"],
                row["partitions"],
                row["lag"],
                row["commits"],
                row["rebalances"],
                _stamp(row["last_commit"]),
            )
            for row in rows
        ],
        f"The first {MOST_ROWS} of {groups.num_rows:,}." if groups.num_rows > MOST_ROWS else "",
    )


def _tag(row: dict[str, Any]) -> str:
    if row["in_trouble"]:
        return '<span class="tag bad">trouble</span>'
    return '<span class="tag warn">look</span>' if row["findings"] else '<span class="tag good">fine</span>'


def _log(page: Page, store: Store, summary: HistorySummary) -> None:
    page.section(
        "The log", "What this was made of. A log is compacted: of old commits only the last of each place is left."
    )
    counted = _table(store, "records").group_by(["kind", "record", "version", "status"]).aggregate([("records", "sum")])
    rows = counted.sort_by([("kind", "ascending"), ("version", "ascending"), ("status", "ascending")]).to_pylist()
    page.table(
        ["type", "record", "version", "", "records"],
        [(row["kind"], row["record"], row["version"], row["status"], row["records_sum"]) for row in rows],
        f"{summary.left_out:,} more were left out: their transactions were aborted, or have no end."
        if summary.left_out
        else "",
    )
