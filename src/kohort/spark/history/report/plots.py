"""The plots of the report, each for a wide screen and for a phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kohort.spark.history.decoding.columns import Numbers
from kohort.spark.history.report.findings import count
from kohort.spark.history.report.names import Named, Palette, Style, named
from kohort.spark.history.tables.columns import dense, milliseconds
from kohort.spark.reports.figures import BAD, INK, MUTED, SERIES, drawing, new_figure

WIDTHS = (9.0, 4.2)
MOST_PARTITIONS = 40
LONGEST_NAME = 22
LONGEST_LABEL = 36
"""Of a client, with its host."""

Place = tuple[str, int]
"""Topic and partition."""


def _days(at: Numbers) -> Any:
    return np.asarray(at, np.int64).astype("datetime64[ms]")


def _frame(axes: Any, since: int, until: int) -> None:
    import matplotlib.dates

    dates: Any = matplotlib.dates
    locator = dates.AutoDateLocator(minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    margin = max(until - since, 1000) // 100
    axes.set_xlim(_days(np.array([since - margin]))[0], _days(np.array([until + margin]))[0])


def _plain(value: float, _: object = None) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def _cut(name: str, most: int = LONGEST_NAME) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - most // 2 + 1 :]}"


def _legend(axes: Any, labelled: list[tuple[Any, str]], width: float, *, wide: bool = False) -> None:
    """A legend of the drawn objects with their names; `wide` names take more room."""
    shown = axes.figure.legend(
        [drawn for drawn, _ in labelled],
        [str(number) for number in range(len(labelled))],  # matplotlib leaves out names that begin with _
        loc="outside upper left",
        ncols=(3 if wide else 4) if width > 6 else (1 if wide else 2),
        handlelength=1.2,
        columnspacing=1.4,
        fontsize=9 if width > 6 else 8,
    )
    for text, (_, name) in zip(shown.get_texts(), labelled, strict=True):
        text.set_text(name)


def lag(totals: pa.Table, shown: list[str], palette: Palette, since: int, until: int, width: float) -> Any:
    """A line for each group."""

    def line(rows: pa.Table) -> tuple[Numbers, Numbers]:
        rows = rows.sort_by([("at", "ascending")])
        return milliseconds(rows.column("at")), dense(rows.column("lag_sum"))

    return _lines(totals, palette.of(shown), line, "records", since, until, width)


def rates(totals: pa.Table, shown: list[str], palette: Palette, since: int, until: int, width: float) -> Any:
    """A line for each group."""

    def line(rows: pa.Table) -> tuple[Numbers, Numbers]:
        rows = rows.sort_by([("since", "ascending")])
        begin, end = milliseconds(rows.column("since")), milliseconds(rows.column("until"))
        return _with_gaps(begin, end, dense(rows.column("records_sum")) / np.maximum(end - begin, 1) * 1000)

    return _lines(totals, palette.of(shown), line, "records/s", since, until, width)


def _lines(
    totals: pa.Table,
    shown: Mapping[Any, Style],
    line: Callable[[pa.Table], tuple[Numbers, Numbers]],
    unit: str,
    since: int,
    until: int,
    width: float,
) -> Any:
    with drawing():
        figure = new_figure(width, 3.2)
        axes = figure.subplots()
        labelled = []
        for group, style in shown.items():
            at, value = line(totals.filter(pc.equal(totals.column("group"), group)))
            dashes = (0, (3, 1.5)) if style.dashed else "-"
            [drawn] = axes.plot(_days(at), value, color=style.colour, linewidth=1.6, linestyle=dashes)
            labelled.append((drawn, _cut(group)))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_plain)
        axes.set_ylabel(unit)
        _frame(axes, since, until)
        _legend(axes, labelled, width)
    return figure


def _with_gaps(begin: Numbers, end: Numbers, rate: Numbers) -> tuple[Numbers, Numbers]:
    """Points in the middle of the intervals, and zeros for missing intervals, which have no commits."""
    at, value = [], []
    for number in range(len(begin)):
        if number and begin[number] > end[number - 1]:
            at += [int(end[number - 1]), int(begin[number])]
            value += [0.0, 0.0]
        at.append(int(begin[number] + end[number]) // 2)
        value.append(float(rate[number]))
    return np.array(at, np.int64), np.array(value)


def rebalances(
    done: pa.Table, storms: pa.Table, shown: list[str], palette: Palette, since: int, until: int, width: float
) -> Any:
    """A row for each group, a mark for each rebalance."""
    styles = palette.of(shown)
    with drawing():
        figure = new_figure(width, 0.8 + 0.3 * len(shown))
        axes = figure.subplots()
        rows = {group: len(shown) - 1 - number for number, group in enumerate(shown)}
        for storm in storms.to_pylist():
            if storm["group"] in rows:
                row = rows[storm["group"]]
                begin, end = (_days(np.array([storm[name].timestamp() * 1000]))[0] for name in ("since", "until"))
                axes.fill_between([begin, end], row - 0.5, row + 0.5, color=BAD, alpha=0.25, linewidth=0)
        for group, row in rows.items():
            mine = done.filter(pc.equal(done.column("group"), group))
            settled, started = milliseconds(mine.column("settled")), milliseconds(mine.column("started"))
            at = np.where(settled >= 0, settled, started)
            moved = dense(mine.column("moved"), 0)
            axes.scatter(
                _days(at), np.full(len(at), row), s=22 + 40 * np.sqrt(moved / max(moved.max(initial=0), 1)),
                color=styles[group].colour, alpha=0.9, linewidth=0,
            )  # fmt: skip
        axes.set_yticks(list(rows.values()), [_cut(group, LONGEST_NAME if width > 6 else 14) for group in rows])
        axes.set_ylim(-0.7, len(shown) - 0.3)
        axes.spines["left"].set_visible(False)
        _frame(axes, since, until)
    return figure


def gantt(
    spans: pa.Table,
    back: pa.Table,
    names: Mapping[str, Named],
    palette: Palette,
    since: int,
    until: int,
    width: float,
) -> tuple[Any, str]:
    """A row for each partition, a bar for each span of ownership, a mark for each commit in `back`; and the caption.

    `names` has the group's members by id.
    """
    places = sorted(set(_places(spans)))
    shown = places[:MOST_PARTITIONS]
    rows = {place: len(shown) - 1 - number for number, place in enumerate(shown)}
    several = len({topic for topic, _ in shown}) > 1
    begin, end = milliseconds(spans.column("since")), milliseconds(spans.column("until"))
    end = np.where(end >= 0, end, until)
    members = [str(member) for member in spans.column("member_id").to_pylist()]
    clients = [named(names, member) for member in members]
    owned: dict[Named, int] = {}
    for client, length in zip(clients, (end - begin).tolist(), strict=True):
        owned[client] = owned.get(client, 0) + length
    longest = sorted(owned, key=lambda client: -owned[client])
    styles = palette.of([client.key for client in longest[: len(SERIES)]])
    colours = {client: styles[client.key].colour if client.key in styles else MUTED for client in longest}
    with drawing():
        figure = new_figure(width, 1.0 + min(0.26 * len(shown), 7.0))
        axes = figure.subplots()
        bars = _bars(axes, begin, end, _places(spans), clients, rows, colours)
        labelled = [
            (bars[client], _cut(client.label, LONGEST_LABEL))
            for client in longest
            if client in bars and colours[client] != MUTED
        ]
        _marks(axes, back, rows)
        texts = [f"{topic}-{partition}" if several else str(partition) for topic, partition in rows]
        step = max(len(shown) // 20, 1)
        axes.set_yticks(
            list(rows.values())[::step], [_cut(text, LONGEST_NAME if width > 6 else 12) for text in texts[::step]]
        )
        axes.grid(visible=False, axis="y")
        axes.set_ylim(-0.7, len(shown) - 0.3)
        axes.spines["left"].set_visible(False)
        _frame(axes, since, until)
        _legend(axes, labelled, width, wide=True)
    words = [count(len(owned), "client")]
    if len(set(members)) > len(owned):
        words.append(f"which were {len(set(members)):,} members, one after another")
    if len(places) > len(shown):
        words.append(f"the first {len(shown)} of {len(places):,} partitions")
    elif not several and shown:
        words.append(f"partitions of {shown[0][0]}")
    if len(owned) > len(styles):
        words.append(f"the {len(SERIES)} that owned most in colours, the others grey")
    return figure, ", ".join(words)


def _places(table: pa.Table) -> list[Place]:
    return list(zip(table.column("topic").to_pylist(), table.column("partition").to_pylist(), strict=True))


def _bars(
    axes: Any,
    begin: Numbers,
    end: Numbers,
    places: list[Place],
    clients: list[Named],
    rows: dict[Place, int],
    colours: Mapping[Named, str],
) -> dict[Named, Any]:
    """Draw the spans; returns what was drawn, by client."""
    import matplotlib.dates
    from matplotlib.collections import PolyCollection

    numbers: Any = matplotlib.dates.date2num
    axes.xaxis_date()
    corners: dict[Named, list[Any]] = {}
    for left, right, place, client in zip(numbers(_days(begin)), numbers(_days(end)), places, clients, strict=True):
        if place in rows:
            low, high = rows[place] - 0.36, rows[place] + 0.36
            corners.setdefault(client, []).append([(left, low), (right, low), (right, high), (left, high)])
    drawn = {
        client: PolyCollection(shapes, facecolor=colours[client], linewidth=0) for client, shapes in corners.items()
    }
    for shapes in drawn.values():
        axes.add_collection(shapes, autolim=False)
    return drawn


def _marks(axes: Any, back: pa.Table, rows: dict[Place, int]) -> None:
    times = zip(milliseconds(back.column("at")).tolist(), _places(back), strict=True)
    marks = [(at, rows[place]) for at, place in times if place in rows]
    if marks:
        at = _days(np.array([at for at, _ in marks]))
        axes.scatter(at, [row for _, row in marks], marker="v", s=16, color=INK, zorder=3, linewidth=0)
