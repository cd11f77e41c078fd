"""The report: one HTML page with the findings of a history in words, the plots, and a table of all groups.

Each plot shows the few groups that matter most; its caption counts the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.coverage import Coverage
from kohort.spark.history.report import plots
from kohort.spark.history.report.findings import BAD, count, duration
from kohort.spark.history.report.journal_findings import UNREST
from kohort.spark.history.report.names import Palette, member_names
from kohort.spark.history.store import HistorySummary, Store
from kohort.spark.history.tables.lag import of_groups
from kohort.spark.reports.page import Annotated, Fact, Number, Page, Tag, Unbroken

SHOWN = 8
"""Groups in one plot."""
MOST_FINDINGS = 12
MOST_ROWS = 200
MOST_GANTTS = 3
MOST_STORIES = 100


def report_page(store: Store, summary: HistorySummary, source: str) -> str:
    """The page, as HTML. `source` names what the history was made from."""
    groups = _table(store, "groups").sort_by(
        [("in_trouble", "descending"), ("lag", "descending"), ("group", "ascending")]
    )
    page = Page("Consumer groups: the history", _subtitle(summary, source))
    _overview(page, summary, groups)
    if summary.records:
        _Body(page, store, summary).fill()
    _groups(page, groups, summary)
    if summary.rows.get("stories"):
        _stories(page, store)
    _records(page, store, summary)
    return page.html()


LAG, REBALANCES, OWNERS = "Lag over time", "Rebalances", "Owners of partitions"
REWINDS, JOURNAL, GROUPS, LOG = "Rewinds and resets", "The journal", "All groups", "The log"
SECTIONS = {
    **dict.fromkeys(("falling behind", "stuck", "deserted"), LAG),
    **dict.fromkeys(("storm", "loop", "rolling deployment"), REBALANCES),
    **dict.fromkeys(("zombie", "sawtooth", "standstill"), OWNERS),
    **dict.fromkeys(("reset", "rewind"), REWINDS),
    "offsets deleted": JOURNAL,
    "expiring": GROUPS,
}
"""The section that shows a finding, by its kind."""


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
            _in_trouble(summary),
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
    lines = [
        Fact(one.severity, one.headline, f"{one.details}{_clock(one.since, one.until)}", _section_of(one.kind, summary))
        for one in shown
    ]
    if len(summary.findings) > len(shown):
        more = f"and {count(len(summary.findings) - len(shown), 'finding')} more"
        lines.append(Fact("", more, "in the table below", "Findings"))
    healthy = summary.groups - len(troubled | warned)
    if healthy > 0:
        lines.append(_without_finding(healthy, summary.coverage))
    page.findings(lines)
    if summary.coverage is not None:
        page.notice("What this report could see", summary.coverage.lines)


def _section_of(kind: str, summary: HistorySummary) -> str:
    """The journal knows of resets that compaction has hidden from the log."""
    section = SECTIONS.get(kind, "")
    return JOURNAL if section == REWINDS and not summary.rows["rewinds"] else section


def _in_trouble(summary: HistorySummary) -> Number:
    """Zero is good news only if everything was seen."""
    if summary.in_trouble:
        return Number("in trouble", f"{summary.in_trouble:,}", tone="bad")
    partial = summary.coverage is not None and summary.coverage.partial
    return Number("in trouble", "0", "in what could be seen", "") if partial else Number("in trouble", "0", tone="good")


def _without_finding(groups: int, coverage: Coverage | None) -> Fact:
    which = f"{count(groups, 'group')} without a finding"
    if coverage is None or not coverage.partial:
        return Fact("good", which)
    return Fact("", f"{which} in what could be seen", "This is no all-clear: see below what is missing.", LOG)


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
    known = set(groups)
    return list(dict.fromkeys([*(group for group in with_findings if group in known), *groups]))[:most]


def _with_findings(summary: HistorySummary, *kinds: str) -> list[str]:
    return [one.group for one in summary.findings if one.kind in kinds]


def _not_shown(left: int, which: str) -> str:
    return f"{count(left, 'group')} {which} not shown." if left else ""


def _summed(column: str, *by: str) -> Callable[[pa.Table], pa.Table]:
    """Sums a column over the partitions of each group, which is a dictionary: the table may have many millions of
    rows."""

    def summed(part: pa.Table) -> pa.Table:
        sums = part.unify_dictionaries().group_by(["group", *by]).aggregate([(column, "sum")])
        return sums.set_column(sums.column_names.index("group"), "group", sums.column("group").cast(pa.string()))

    return summed


def _ranked(rows: pa.Table, by: tuple[Any, str], column: str) -> pa.Table:
    """Each group with an aggregate of its rows, the largest first."""
    summed = rows.group_by("group").aggregate([by])
    return summed.sort_by([(column, "descending"), ("group", "ascending")])


@dataclass(frozen=True, slots=True)
class _Body:
    """The sections with plots, and the findings. Groups and clients have the same colours in all of them."""

    page: Page
    store: Store
    summary: HistorySummary
    palette: Palette = field(default_factory=Palette)

    def fill(self) -> None:
        self.lag()
        self.rebalances()
        self.ownership()
        self.rates()
        self.findings()

    def _times(self) -> tuple[int, int]:
        return self.summary.since_ms, self.summary.until_ms

    def lag(self) -> None:
        self.page.section(
            LAG,
            "Records that were written to the topics and not yet committed, summed over a group's partitions. The end "
            "of a log at an instant is the offset of the first record written from then on.",
        )
        totals = _table(self.store, "lag", each=of_groups)
        if not totals.num_rows:
            self.page.text(
                "Not known: __consumer_offsets does not contain the end offsets of the topics. A running cluster "
                "provides them; for a dump, give them in a file (--ends)."
            )
            return
        peaks = _ranked(totals, ("lag_sum", "max"), "lag_sum_max")
        behind = _with_findings(self.summary, "falling behind", "stuck", "standstill", "deserted")
        highest = peaks.column("lag_sum_max")[0].as_py()
        high = [row["group"] for row in peaks.to_pylist() if row["lag_sum_max"] * 50 >= highest]
        shown = _first([*high, *behind], SHOWN, behind)
        wide, narrow = (plots.lag(totals, shown, self.palette, *self._times(), width) for width in plots.WIDTHS)
        caption = f"A group is drawn where its lag is known. {_not_shown(peaks.num_rows - len(shown), 'with less lag')}"
        self.page.figure(wide, caption, narrow=narrow, alt="Lag of groups over time")

    def rebalances(self) -> None:
        self.page.section(
            REBALANCES,
            "Each mark is a rebalance; the larger it is, the more partitions moved to another member. Storms are "
            "shaded.",
        )
        done = _table(
            self.store,
            "rebalances",
            columns=["group", "started", "settled", "moved", "length_ms", "pause_ms", "raises"],
        )
        if not done.num_rows:
            self.page.text("None: no group has assigned partitions.")
            return
        groups = _ranked(done, ([], "count_all"), "count_all").column("group").to_pylist()
        shown = _first(groups, 15, _with_findings(self.summary, *UNREST))
        storms = _table(self.store, "storms")
        wide, narrow = (
            plots.rebalances(done, storms, shown, self.palette, *self._times(), width) for width in plots.WIDTHS
        )
        caption = f"The groups that rebalanced most. {_not_shown(len(groups) - len(shown), 'with fewer rebalances')}"
        self.page.figure(wide, caption, narrow=narrow, alt="Rebalances over time")
        if storms.num_rows:
            self.page.table_of(
                storms.sort_by([("rebalances", "descending")]).slice(0, 20).to_pylist(),
                {
                    "group": itemgetter("group"),
                    "since": lambda storm: _stamp(storm["since"]),
                    "lasted": lambda storm: duration((storm["until"] - storm["since"]).total_seconds() * 1000),
                    "rebalances": itemgetter("rebalances"),
                    "moved": itemgetter("moved"),
                    "longest pause": lambda storm: (
                        duration(storm["longest_pause_ms"]) if storm["longest_pause_ms"] else None
                    ),
                    "joined": itemgetter("newcomers"),
                    "clients": itemgetter("clients"),
                    "came back": lambda storm: (
                        Annotated(storm["looping"], f"{storm['loops']} times") if storm["looping"] else None
                    ),
                },
                "Storms",
            )

    def ownership(self) -> None:
        owned = _table(self.store, "ownership", columns=["group"])
        groups = [str(group) for group in _ranked(owned, ([], "count_all"), "count_all").column("group").to_pylist()]
        shown = _first(groups, MOST_GANTTS, _with_findings(self.summary, *UNREST, "zombie", "sawtooth", "standstill"))
        if not shown:
            return
        self.page.section(
            OWNERS,
            "A row is a partition, a colour a client, by its name and host, which stay when it restarts; letters of "
            "the member id tell clients apart that share both. A gap is a time without an owner. Marks are commits "
            "that went back.",
        )
        for group in shown:
            spans = _table(self.store, "ownership", filters=pc.field("group") == group)
            back = _table(
                self.store,
                "commits",
                columns=["group", "topic", "partition", "at", "step"],
                filters=(pc.field("group") == group) & (pc.field("step") == "back"),
            )
            names = member_names(_table(self.store, "members", filters=pc.field("group") == group))
            (wide, words), (narrow, _) = (
                plots.gantt(spans, back, names, self.palette, *self._times(), width) for width in plots.WIDTHS
            )
            self.page.figure(wide, f"{group}: {words}", narrow=narrow, alt=f"Owners of the partitions of {group}")

    def rates(self) -> None:
        self.page.section("Rates", "Records per second that each group has consumed, by its commits.")
        columns = ["group", "since", "until", "records"]
        summed = _summed("records", "since", "until")
        totals = _table(self.store, "rates", columns=columns, dictionaries=["group"], each=summed)
        if not totals.num_rows:
            self.page.text("No records were consumed.")
            return
        sums = _ranked(totals, ("records_sum", "sum"), "records_sum_sum")
        most = sums.column("records_sum_sum")[0].as_py()
        shown = [row["group"] for row in sums.to_pylist() if row["records_sum_sum"] * 50 >= most][:SHOWN]
        wide, narrow = (plots.rates(totals, shown, self.palette, *self._times(), width) for width in plots.WIDTHS)
        caption = _not_shown(sums.num_rows - len(shown), "that consumed less")
        self.page.figure(wide, caption, narrow=narrow, alt="Records per second by group")

    def findings(self) -> None:
        self.page.section("Findings", "All of them. The tables beside this page contain every step.")
        rows = _table(self.store, "findings").to_pylist()
        if not rows:
            self.page.text("None.")
        else:
            self.page.table_of(
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
        self._rewinds()

    def _rewinds(self) -> None:
        rewinds = _table(self.store, "rewinds").sort_by([("at", "ascending")])
        if not rewinds.num_rows:
            return
        self.page.section(REWINDS, "Changes of committed offsets that were not caused by reading.")
        self.page.table(
            ["group", "topic", "partition", "at", "from", "to", "back", "cause"],
            [
                [_stamp(cell) if isinstance(cell, datetime) else cell for cell in row.values()]
                for row in rewinds.slice(0, MOST_ROWS).to_pylist()
            ],
            _truncated(rewinds.num_rows),
        )


def _stamp(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%m-%d %H:%M:%S}"


def _truncated(rows: int) -> str:
    return f"The first {MOST_ROWS} of {rows:,}." if rows > MOST_ROWS else ""


def _groups(page: Page, groups: pa.Table, summary: HistorySummary) -> None:
    partial = summary.coverage is not None and summary.coverage.partial
    page.section(GROUPS)
    columns = ("group", "", "protocol", "members", "partitions", "lag", "commits", "rebalances")
    page.table_of(
        groups.slice(0, MOST_ROWS).to_pylist(),
        {
            **{name: itemgetter(name) if name else (lambda group: _tag(group, partial)) for name in columns},
            "last commit": lambda group: _stamp(group["last_commit"]),
        },
        _truncated(groups.num_rows),
    )


def _tag(group: dict[str, Any], partial: bool) -> Tag:
    if group["in_trouble"]:
        return Tag("trouble", "bad")
    if group["findings"]:
        return Tag("look", "warn")
    return Tag("nothing seen", "") if partial else Tag("fine", "good")


def _stories(page: Page, store: Store) -> None:
    page.section(JOURNAL, "What kohort's journal tells of the groups, the newest first: why, and by which client.")
    stories = _table(store, "stories").sort_by([("started", "descending"), ("number", "descending")])
    page.table_of(
        stories.slice(0, MOST_STORIES).to_pylist(),
        {
            "group": itemgetter("group"),
            "at": lambda story: _stamp(story["started"]),
            "what": lambda story: Annotated(story["what"] or "?", story["cause"] or ""),
            "client": lambda story: Annotated(story["client"] or "–", story["host"] or ""),
            "took": lambda story: duration(story["took_ms"]) if story["took_ms"] is not None else None,
            "partitions moved": itemgetter("moved"),
        },
        f"The last {MOST_STORIES} of {stories.num_rows:,} stories" if stories.num_rows > MOST_STORIES else "Stories",
        folded=True,
    )


def _records(page: Page, store: Store, summary: HistorySummary) -> None:
    page.section(
        LOG, "The records of __consumer_offsets. The log is compacted: of old commits only the last one is left."
    )
    covered = _table(store, "coverage").sort_by("log_partition").to_pylist()
    page.table_of(
        covered[:MOST_ROWS],
        {
            "log partition": itemgetter("log_partition"),
            "offsets": lambda row: Unbroken(f"{row['first']:,} to {row['last']:,}"),
            "records": itemgetter("records"),
            "not there any more": itemgetter("missing"),
            "from": lambda row: _stamp(row["since"]),
            "none missing since": lambda row: _stamp(row["whole_since"]),
        },
        _truncated(len(covered)) or "Partitions of the log",
        folded=True,
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
