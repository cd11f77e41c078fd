"""The plots of a history: names with characters that mean something to matplotlib."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kohort.spark.history.report import plots
from kohort.spark.reports.page import Page

SINCE, UNTIL = 1_760_000_000_000, 1_760_000_001_000


@pytest.mark.parametrize("name", ["a$\\frac$b", "$x$", "_hidden", "plain"])
def test_names_are_drawn_literally(name: str) -> None:
    at = pa.array([SINCE * 1000, UNTIL * 1000], pa.timestamp("us", tz="UTC"))
    times = {"at": at, "since": at, "until": at, "settled": at, "started": at}
    who = {"group": [name] * 2, "member_id": [name] * 2, "client_id": [name] * 2, "topic": ["t"] * 2}
    table = pa.table({**times, **who, "partition": [0, 1], "lag_sum": [1, 2], "records_sum": [1, 2], "moved": [1, 2]})
    none = table.slice(0, 0)
    page = Page("p")
    for width in plots.WIDTHS:
        page.figure(plots.lag(table, [name], SINCE, UNTIL, width))
        page.figure(plots.rates(table, [name], SINCE, UNTIL, width))
        page.figure(plots.rebalances(table, none, [name], SINCE, UNTIL, width))
        page.figure(plots.gantt(table, none, SINCE, UNTIL, width)[0])
    assert page.html().count(f">{name}<") == 8
