"""The report: one HTML page with the findings of a history in words, the plots, and a table of all groups.

Each plot shows the few groups that matter most; its caption counts the others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.report import plots
from kohort.spark.history.report.findings import BAD, count, duration
from kohort.spark.history.store import HistorySummary, Store
from kohort.spark.reports.page import Annotated, Number, Page, Tag

SHOWN = 8
"""Groups in one plot."""
MOST_FINDINGS = 12
MOST_ROWS = 200
MOST_GANTTS = 3


def report_page(store: Store, summary: HistorySummary, source: str) -> str:
    """The page, as HTML. `source` names what the history was made from."""
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
        _findings(page, store)
    _groups(page, groups)
    _records(page, store, summary)
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
        page.text("The log holds no records: no group has committed anything.")
        return
    shown = summary.findings[:MOST_FINDINGS]
    lines = [(one.severity, one.headline, f"{one.details}{_clock(one.since, one.until)}") for one in shown]
    healthy = summary.groups - len(troubled | warned)
    if len(summary.findings) > len(shown):
        lines.append(("", f"and {count(len(summary.findings) - len(shown), 'finding')} more", "in the table below"))
    if healthy:
        lines.append(("good", f"{count(healthy, 'group')} without a finding", ""))
    page.findings(lines)


def _clock(since: int, until: int) -> str:
    """The period, shown after a finding's details; empty if not known."""
    if since < 0:
        return ""
    start, end = _day(since), _day(max(since, until))
    return f" · {start}" if end == start else f" · {start} to {end[11:] if end[:10] == start[:10] else end}"


def _short(number: int) -> str:
    for limit, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**4, "k")):
        if number >= limit:
            scaled = number / (limit if unit != "k" else 1000)
            return f"{scaled:.1f} {unit}" if scaled < 100 else f"{scaled:.0f} {unit}"
    return f"{number:,}"


def _first(groups: list[str], most: int, with_findings: list[str]) -> list[str]:
    """The first groups, those with findings in front."""
    return list(dict.fromkeys([*(group for group in with_findings if group in groups), *groups]))[:most]


def _with_findings(summary: HistorySummary, *kinds: str) -> list[str]:
    return [one.group for one in summary.findings if one.kind in kinds]


def _not_shown(left: int, which: str) -> str:
    return f"{count(left, 'group')} {which} not shown." if left else ""


def _ranked(rows: pa.Table, by: tuple[Any, str], column: str) -> pa.Table:
    """Each group with an aggregate of its rows, the largest first."""
    summed = rows.group_by("group").aggregate([by])
    return summed.sort_by([(column, "descending"), ("group", "ascending")])


def _lag(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    page.section(
        "Lag over time",
        "Records that were written to the topics and not yet committed, summed over a group's partitions. The end of a "
        "log at an instant is the offset of the first record written from then on.",
    )
    lag = _table(store, "lag", columns=["group", "at", "lag"])
    if not lag.num_rows:
        page.text(
            "Not known: __consumer_offsets does not contain the end offsets of the topics. A running cluster provides "
            "them; for a dump, give them in a file (--ends)."
        )
        return
    totals = lag.group_by(["group", "at"]).aggregate([("lag", "sum")])
    peaks = _ranked(totals, ("lag_sum", "max"), "lag_sum_max")
    behind = _with_findings(summary, "falling behind", "standstill", "deserted")
    highest = peaks.column("lag_sum_max")[0].as_py()
    high = [row["group"] for row in peaks.to_pylist() if row["lag_sum_max"] * 50 >= highest]
    shown = _first([*high, *(group for group in behind if group not in high)], SHOWN, behind)
    wide, narrow = (plots.lag(totals, shown, since, until, width) for width in plots.WIDTHS)
    caption = f"A group is drawn where its lag is known. {_not_shown(peaks.num_rows - len(shown), 'with less lag')}"
    page.figure(wide, caption, narrow=narrow, alt="Lag of groups over time")


def _rebalances(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    page.section(
        "Rebalances",
        "Each mark is a rebalance; the larger it is, the more partitions moved to another member. Storms are shaded.",
    )
    done = _table(
        store, "rebalances", columns=["group", "started", "settled", "moved", "length_ms", "pause_ms", "raises"]
    )
    if not done.num_rows:
        page.text("None: no group has assigned partitions.")
        return
    groups = _ranked(done, ([], "count_all"), "count_all").column("group").to_pylist()
    shown = _first(groups, 15, _with_findings(summary, "storm"))
    storms = _table(store, "storms")
    wide, narrow = (plots.rebalances(done, storms, shown, since, until, width) for width in plots.WIDTHS)
    caption = f"The groups that rebalanced most. {_not_shown(len(groups) - len(shown), 'with fewer rebalances')}"
    page.figure(wide, caption, narrow=narrow, alt="Rebalances over time")
    if storms.num_rows:
        page.table_of(
            storms.sort_by([("rebalances", "descending")]).slice(0, 20).to_pylist(),
            {
                "group": itemgetter("group"),
                "since": lambda storm: _stamp(storm["since"]),
                "lasted": lambda storm: duration((storm["until"] - storm["since"]).total_seconds() * 1000),
                "rebalances": itemgetter("rebalances"),
                "partitions moved": itemgetter("moved"),
                "longest pause": lambda storm: (
                    duration(storm["longest_pause_ms"]) if storm["longest_pause_ms"] else None
                ),
                "joined": itemgetter("newcomers"),
            },
            "Storms",
        )


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%m-%d %H:%M:%S}"


def _ownership(page: Page, store: Store, summary: HistorySummary, since: int, until: int) -> None:
    owned = _table(store, "ownership", columns=["group"])
    groups = [str(group) for group in _ranked(owned, ([], "count_all"), "count_all").column("group").to_pylist()]
    shown = _first(groups, MOST_GANTTS, _with_findings(summary, "storm", "zombie", "sawtooth", "standstill"))
    if not shown:
        return
    page.section(
        "Owners of partitions",
        "A row is a partition, a colour a member; a gap is a time without an owner. Marks are commits that went back.",
    )
    for group in shown:
        spans = _table(store, "ownership", filters=pc.field("group") == group)
        back = _table(
            store,
            "commits",
            columns=["group", "topic", "partition", "at", "step"],
            filters=(pc.field("group") == group) & (pc.field("step") == "back"),
        )
        (wide, words), (narrow, _) = (plots.gantt(spans, back, since, until, width) for width in plots.WIDTHS)
        page.figure(wide, f"{group}: {words}", narrow=narrow, alt=f"Owners of the partitions of {group}")


def _rates(page: Page, store: Store, since: int, until: int) -> None:
    page.section("Rates", "Records per second that each group has consumed, by its commits.")
    rates = _table(store, "rates", columns=["group", "since", "until", "records"])
    if not rates.num_rows:
        page.text("No records were consumed.")
        return
    totals = rates.group_by(["group", "since", "until"]).aggregate([("records", "sum")])
    sums = _ranked(rates, ("records", "sum"), "records_sum")
    most = sums.column("records_sum")[0].as_py()
    shown = [row["group"] for row in sums.to_pylist() if row["records_sum"] * 50 >= most][:SHOWN]
    wide, narrow = (plots.rates(totals, shown, since, until, width) for width in plots.WIDTHS)
    caption = _not_shown(sums.num_rows - len(shown), "that consumed less")
    page.figure(wide, caption, narrow=narrow, alt="Records per second by group")


def _findings(page: Page, store: Store) -> None:
    page.section("Findings", "All of them. The tables beside this page contain every step.")
    rows = _table(store, "findings").to_pylist()
    if not rows:
        page.text("None.")
    else:
        page.table_of(
            rows[:MOST_ROWS],
            {
                "": lambda row: Tag("trouble" if row["severity"] == BAD else "look", row["severity"]),
                "group": itemgetter("group"),
                "kind": itemgetter("kind"),
                "what": lambda row: Annotated(row["headline"], row["details"]),
                "since": lambda row: _stamp(row["since"]),
                "until": lambda row: _stamp(row["until"]),
            },
            _truncated(len(rows)),
        )
    rewinds = _table(store, "rewinds").sort_by([("at", "ascending")])
    if rewinds.num_rows:
        page.table(
            ["group", "topic", "partition", "at", "from", "to", "back", "cause"],
            [
                [_stamp(cell) if isinstance(cell, datetime) else cell for cell in row.values()]
                for row in rewinds.slice(0, MOST_ROWS).to_pylist()
            ],
            f"Rewinds and resets ({rewinds.num_rows:,})",
            folded=True,
        )


def _truncated(rows: int) -> str:
    return f"The first {MOST_ROWS} of {rows:,}." if rows > MOST_ROWS else ""


def _groups(page: Page, groups: pa.Table) -> None:
    page.section("All groups")
    columns = ("group", "", "protocol", "members", "partitions", "lag", "commits", "rebalances")
    page.table_of(
        groups.slice(0, MOST_ROWS).to_pylist(),
        {
            **{name: itemgetter(name) if name else _tag for name in columns},
            "last commit": lambda group: _stamp(group["last_commit"]),
        },
        _truncated(groups.num_rows),
    )


def _tag(group: dict[str, Any]) -> Tag:
    if group["in_trouble"]:
        return Tag("trouble", "bad")
    return Tag("look", "warn") if group["findings"] else Tag("fine", "good")


def _records(page: Page, store: Store, summary: HistorySummary) -> None:
    page.section(
        "The log", "The records of __consumer_offsets. The log is compacted: of old commits only the last one is left."
    )
    counted = _table(store, "records").group_by(["kind", "record", "version", "status"]).aggregate([("records", "sum")])
    rows = counted.sort_by([("kind", "ascending"), ("version", "ascending"), ("status", "ascending")]).to_pylist()
    page.table(
        ["type", "record", "version", "", "records"],
        [(row["kind"], row["record"], row["version"], row["status"], row["records_sum"]) for row in rows],
        f"{summary.left_out:,} more were left out: their transactions were aborted or have no end."
        if summary.left_out
        else "",
    )
