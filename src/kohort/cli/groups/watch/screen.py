"""The figures as lines: a headline, a table, partitions that are stuck, changes. Pure; nothing prints here.

With a width, lines fit into it: columns that matter less are left out, then names are shortened in the middle. With a
height, the groups with the worst lag are shown and the others are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

from kohort.cli.groups.watch.changes import Change
from kohort.cli.groups.watch.trends import Figures, GroupRow, PartitionRow, Stuck
from kohort.cli.groups.wording import LAG_TIME, brief, partitions, plain
from kohort.cli.output import GAP, NOTHING, Column, format_table, plural, shorten
from kohort.client.admin.groups import SHARE
from kohort.wire.embedded import by_topic

BARS = "▁▂▃▄▅▆▇█"
SHORTEST_NAME = 16
"""Columns are left out before a name is shortened further."""
SHOWN_STUCK = 4
SHOWN_CHANGES = 6
LEAST_ROWS = 3

HEADING, WARN, BAD, QUIET = "bold", "yellow", "red", "dim"
"""Styles of lines, as rich names them."""


Row = TypeVar("Row")


class Styled(NamedTuple):
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """What one picture shows. `changes`: the newest last. `trouble`: why there are no newer figures."""

    at_ms: int
    rows: Sequence[GroupRow]
    changes: Sequence[Change] = ()
    trouble: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Shown(Generic[Row]):
    """A column of a table. Those with the highest rank are left out first; rank 0 stays."""

    column: Column
    cell: Callable[[Row], str]
    rank: int = 0


def pictured(view: View, width: int | None = None, height: int | None = None) -> list[Styled]:
    """All lines. `width` and `height` None: no limit."""
    top = [Styled(_headline(view, width), HEADING)]
    if view.trouble:
        top.append(Styled(view.trouble, BAD))
    stuck = [] if len(view.rows) == 1 else _stuck_lines(view.rows, None if height is None else SHOWN_STUCK)
    changes = _change_lines(view.changes, None if height is None else SHOWN_CHANGES)
    rest = len(top) + 1 + len(stuck) + len(changes)
    most = None if height is None else max(height - rest, LEAST_ROWS + 1)
    if len(view.rows) == 1:
        table = _partition_table(view.rows[0], width, most)
    else:
        table = _group_table(view.rows, width, most)
    lines = [*top, *table, *stuck, *changes]
    lines = [line._replace(text=plain(line.text)) for line in lines]  # clients choose names
    if width is not None:
        lines = [line._replace(text=_ended(line.text, width)) for line in lines]
    return lines if height is None else lines[:height]


def _ended(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _headline(view: View, width: int | None) -> str:
    """As many parts as there is room for, the most important ones first."""
    at = clock(view.at_ms)
    if len(view.rows) == 1:
        [row] = view.rows
        known = row.figures
        parts = [row.group, row.error or row.state, plural(row.members, "member")]
        parts += [f"lag {count(known.lag)}"]
        parts += [f"lag time {age(known)}"] if known.lag else []
        parts += [f"in {rate(known.rate_in)}/s", f"out {rate(known.rate_out)}/s"]
        parts += [f"catch up {span(known.catch_up_s)}"] if known.lag else []
        parts += [f"{row.without_offset} without an offset"] if row.without_offset else []
    else:
        lags = [row.figures.lag for row in view.rows if row.figures.lag is not None]
        parts = [plural(len(view.rows), "group"), f"lag {count(sum(lags)) if lags else NOTHING}"]
        stuck = sum(bool(row.stuck) for row in view.rows)
        parts += [f"{stuck} stuck"] if stuck else []
        rebalancing = sum(row.is_rebalancing for row in view.rows)
        parts += [f"{rebalancing} rebalancing"] if rebalancing else []
    headline = at
    for part in (*parts, view.hint):
        fits = width is None or len(headline) + len(GAP) + len(part) <= width
        if part and (fits or headline == at):
            headline += GAP + part
    return headline


# -- groups


def _group_table(rows: Sequence[GroupRow], width: int | None, most: int | None) -> list[Styled]:
    if not rows:
        return [Styled("no groups", QUIET)]
    shown, more = _first(rows, most)
    trend = trend_width(width)
    columns: list[_Shown[GroupRow]] = [
        _Shown(Column("LAG", right=True), lambda row: count(row.figures.lag)),
        _Shown(Column(LAG_TIME, right=True), lambda row: age(row.figures), 3),
        _Shown(Column("TREND"), lambda row: spark(row.figures.lags, trend), 4),
        _Shown(Column("IN/S", right=True), lambda row: rate(row.figures.rate_in), 2),
        _Shown(Column("OUT/S", right=True), lambda row: rate(row.figures.rate_out), 1),
        _Shown(Column("CATCHUP", right=True), lambda row: span(row.figures.catch_up_s), 5),
        _Shown(Column("STATE"), lambda row: row.error or state(row.state, short=width is not None and width < 100)),
        _Shown(Column("MEMBERS", right=True), lambda row: str(row.members), 6),
        _Shown(Column("STUCK", right=True), lambda row: str(sum(len(one.places) for one in row.stuck)), 7),
        _Shown(Column("PARTITIONS", right=True), lambda row: str(row.partitions), 8),
        _Shown(Column("TYPE"), lambda row: row.type, 9),
        _Shown(Column("ASSIGNOR"), lambda row: shorten(row.assignor, 20), 10),
    ]
    table = _fitted("GROUP", shown, lambda row: row.group, columns, width)
    return _as_lines(table, [_style_of(row) for row in shown], plural(more, "group") if more else "")


def _style_of(row: GroupRow) -> str:
    if row.error or row.stuck:
        return BAD
    return WARN if row.is_rebalancing else ""


def _fitted(
    heading: str, rows: Sequence[Row], name: Callable[[Row], str], columns: Sequence[_Shown[Row]], width: int | None
) -> list[tuple[bool, str]]:
    """The table of a name and as many columns as there is room for."""
    names = [name(row) for row in rows]
    longest = max(len(heading), *map(len, names))
    while True:
        cells = [[one.cell(row) or NOTHING for row in rows] for one in columns]
        used = sum(
            max(len(one.column.name), *map(len, texts)) + len(GAP) for one, texts in zip(columns, cells, strict=True)
        )
        least = max(one.rank for one in columns)
        if width is None or used + min(longest, SHORTEST_NAME) <= width or not least:
            break
        columns = [one for one in columns if one.rank != least]
    room = longest if width is None else max(min(longest, width - used), 1)
    texts = [[shorten(given, room), *(column[index] for column in cells)] for index, given in enumerate(names)]
    return format_table([Column(heading), *(one.column for one in columns)], texts, None)


def _first(rows: Sequence[Row], most: int | None) -> tuple[Sequence[Row], int]:
    """The rows that are shown, and the number of the others, which take a line."""
    if most is None or len(rows) <= most:
        return rows, 0
    return rows[: most - 1], len(rows) - most + 1


def _as_lines(table: list[tuple[bool, str]], styles: Sequence[str], more: str) -> list[Styled]:
    rest = iter(styles)
    lines = [Styled(text, HEADING if is_heading else next(rest)) for is_heading, text in table]
    return lines + ([Styled(f"and {more} more, with less lag", QUIET)] if more else [])


# -- the partitions of one group


def _partition_table(group: GroupRow, width: int | None, most: int | None) -> list[Styled]:
    if not group.parts:
        return [Styled("no committed offsets, and no partitions that are assigned", QUIET)]
    shown, more = _first(group.parts, most)
    trend = trend_width(width)
    owner_width = 22 if width is not None and width < 100 else 40
    columns: list[_Shown[PartitionRow]] = [
        _Shown(Column("COMMITTED", right=True), lambda row: _or_nothing(row.committed), 6),
        _Shown(Column("END", right=True), lambda row: _or_nothing(row.end), 7),
        _Shown(Column("LAG", right=True), lambda row: count(row.figures.lag)),
        _Shown(Column(LAG_TIME, right=True), lambda row: age(row.figures), 3),
        _Shown(Column("TREND"), lambda row: spark(row.figures.lags, trend), 4),
        _Shown(Column("IN/S", right=True), lambda row: rate(row.figures.rate_in), 2),
        _Shown(Column("OUT/S", right=True), lambda row: rate(row.figures.rate_out), 1),
        _Shown(Column("CATCHUP", right=True), lambda row: span(row.figures.catch_up_s), 8),
        _Shown(Column("UNMOVED", right=True), lambda row: span(row.unmoved_s), 5),
        _Shown(Column("OWNER"), lambda row: shorten(row.owner, owner_width)),
    ]
    table = _fitted("PARTITION", shown, lambda row: f"{row.topic}-{row.partition}", columns, width)
    stuck = {place for one in group.stuck for place in one.places}
    styles = [BAD if (row.topic, row.partition) in stuck else "" for row in shown]
    return _as_lines(table, styles, plural(more, "partition") if more else "")


def _or_nothing(value: int | None) -> str:
    return NOTHING if value is None else str(value)


# -- below the table


def _stuck_lines(rows: Sequence[GroupRow], most: int | None) -> list[Styled]:
    found = [(row, stuck) for row in rows for stuck in row.stuck]
    found.sort(key=lambda pair: -pair[1].lag)
    lines = [Styled(f"  {stuck_text(row, stuck)}", BAD) for row, stuck in found[:most]]
    if most is not None and len(found) > most:
        lines.append(Styled(f"  and {len(found) - most} more", BAD))
    return [Styled("Stuck", HEADING), *lines] if lines else []


def stuck_text(row: GroupRow, stuck: Stuck) -> str:
    """`billing: worker-2 on 10.0.0.2 has not moved orders[1,4] for 45 s, lag 1,234`."""
    where = partitions(dict(by_topic(stuck.places)))
    tail = f"for {span(stuck.for_s)}, lag {count(stuck.lag)}"
    if row.type == SHARE:
        held = stuck.owner or ("nothing is in flight" if row.members else "it has no members")
        return f"{row.group}: nothing of {where} was finished {tail}; {held}"
    if not stuck.owner:
        who = "nobody reads" if not row.members else "no owner is known of"
        return f"{row.group}: {who} {where} {tail}{'; ' if stuck.last else ''}{stuck.last}"
    return f"{row.group}: {stuck.owner} has not moved {where} {tail}"


def _change_lines(changes: Sequence[Change], most: int | None) -> list[Styled]:
    shown = changes if most is None else changes[-most:]
    return [Styled("Changes", HEADING), *(Styled(f"  {change_text(change)}") for change in shown)] if shown else []


def change_text(change: Change) -> str:
    return f"{clock(change.at_ms)}  {change.group}: {change.text}"


# -- cells


def clock(milliseconds: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(milliseconds / 1000))


def trend_width(width: int | None) -> int:
    return 6 if width is not None and width < 100 else 8 if width is None else 16 if width < 140 else 24


def spark(values: Sequence[int | None], width: int) -> str:
    """The course of a lag; its largest value is the highest bar, and only 0 is the lowest."""
    shown = values[-width:]
    largest = max((value for value in shown if value is not None), default=0)
    bars = []
    for value in shown:
        if value is None:
            bars.append(" ")
        elif not value:
            bars.append(BARS[0])
        else:
            bars.append(BARS[max(1, round(value / largest * (len(BARS) - 1)))])
    return "".join(bars).rjust(width)


def count(value: int | None) -> str:
    """`1,234`, `12.3k`, `4.5M`."""
    if value is None:
        return NOTHING
    if value < 10_000:
        return f"{value:,}"
    number = float(value)
    for unit in "kMGT":
        number /= 1000
        if number < 999.5:
            return f"{number:.0f}{unit}" if number >= 99.95 else f"{number:.1f}{unit}"
    return f"{number / 1000:.0f}P"


def rate(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f}" if 0 < value < 9.95 else count(round(value))


def span(seconds: float | None) -> str:
    """`45 s`, `4 min`, `3 h`, `2 days`, `never`."""
    if seconds is None:
        return NOTHING
    if seconds == inf:
        return "never"
    for limit, size, unit in ((99.5, 1, "s"), (5970, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days" if seconds < 86_400 * 999 else "years"


def age(known: Figures) -> str:
    """`3m20s`; an estimate is `≈3m20s`. 0 is no estimate: there is no lag."""
    text = brief(known.lag_ms)
    if text is None:
        return NOTHING
    return text if known.is_told or not known.lag_ms else f"≈{text}"


SHORT_STATES = {"PreparingRebalance": "Joining", "CompletingRebalance": "Assigning"}
"""Of classic groups, for narrow terminals: the phases in the words of `kohort groups explain`."""


def state(name: str, *, short: bool) -> str:
    return SHORT_STATES.get(name, name) if short else name


def figures_document(known: Figures) -> dict[str, float | int | bool | None]:
    """For programs. `catches_up` is false if the lag does not shrink; then there is no `catch_up_s`."""
    never = known.catch_up_s == inf
    return {
        "lag": known.lag,
        "lag_ms": known.lag_ms,
        "lag_ms_is_estimated": None if known.lag_ms is None else not known.is_told,
        "rate_in": None if known.rate_in is None else round(known.rate_in, 3),
        "rate_out": None if known.rate_out is None else round(known.rate_out, 3),
        "catches_up": None if known.catch_up_s is None else not never,
        "catch_up_s": None if known.catch_up_s is None or never else round(known.catch_up_s, 1),
    }
