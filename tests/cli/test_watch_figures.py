"""`kohort groups watch`: figures from surveys, changes between surveys, and the picture at fixed widths."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console
from surveyed_groups import member, story, survey, surveyed, told

from kohort.cli.groups.watch.changes import Change, Changes, difference
from kohort.cli.groups.watch.picture import Picture
from kohort.cli.groups.watch.screen import View, age, count, figures_document, pictured, rate, span, spark, stuck_text
from kohort.cli.groups.watch.trends import Figures, GroupRow, Stuck, Trends
from kohort.client.admin.commit_metadata import GroupReader
from kohort.client.admin.groups import Committed

# -- figures


def test_lag_and_rates_over_two_surveys() -> None:
    trends = Trends()
    worker = member("w", 0, 1)
    [first] = trends.rows(survey(0, {0: 100, 1: 50}, surveyed("g", {0: 90, 1: 50}, worker)))
    assert first.figures == Figures(10, (10,)), "the age of the lag is not known yet"
    [row] = trends.rows(survey(2, {0: 120, 1: 50}, surveyed("g", {0: 96, 1: 50}, worker)))
    assert row.figures == Figures(24, (10, 24), rate_in=10.0, rate_out=3.0, catch_up_s=math.inf, lag_ms=2_400)
    assert (row.members, row.partitions, row.without_offset) == (1, 2, 0)
    [row] = trends.rows(survey(4, {0: 120, 1: 50}, surveyed("g", {0: 118, 1: 50}, worker)))
    assert (row.figures.rate_in, row.figures.rate_out, row.figures.catch_up_s) == (5.0, 7.0, 1.0)
    [row] = trends.rows(survey(6, {0: 120, 1: 50}, surveyed("g", {0: 120, 1: 50}, worker)))
    assert row.figures.catch_up_s == 0


def test_the_lag_in_time_is_told_or_estimated() -> None:
    trends, ends = Trends(), {0: 100, 1: 50}
    group = surveyed("g", {0: 90, 1: 50})
    [row] = trends.rows(survey(0, {}, told(group, ends, {0: 65_000, 1: 0})))
    assert (row.figures.lag, age(row.figures)) == (10, "1m05s")
    assert figures_document(row.figures)["lag_ms_is_estimated"] is False
    [row] = trends.rows(survey(2, {}, told(group, ends, {1: 0})))
    assert (row.figures.lag_ms, age(row.figures)) == (None, "-"), "the age of the only lag is not known"
    assert [age(part.figures) for part in row.parts] == ["-", "0"]
    trends = Trends()
    for second in (0, 10):
        [row] = trends.rows(survey(second, {0: 100 + second, 1: 50}, group))
    assert (row.figures.lag_ms, age(row.figures)) == (20_000, "≈20.0s"), "at one record a second"
    assert [age(part.figures) for part in row.parts] == ["≈20.0s", "0"]
    assert figures_document(row.figures)["lag_ms_is_estimated"] is True


def test_rates_are_means_over_the_last_half_minute() -> None:
    trends = Trends()
    for second in range(0, 62, 2):
        # a commit of 50 records each ten seconds, the last ones while nothing is written any more
        end = min(second, 30) * 5
        [row] = trends.rows(survey(second, {0: end + 100}, surveyed("g", {0: second // 10 * 50})))
    assert row.figures.rate_in == 0
    assert row.figures.rate_out == pytest.approx(5.0)


def test_nothing_is_known_of_partitions_without_offsets_and_of_offsets_without_ends() -> None:
    [row] = Trends().rows(survey(0, {0: 7}, surveyed("g", {}, member("w", 0))))
    assert (row.figures.lag, row.without_offset, row.partitions) == (None, 1, 1)
    [row] = Trends().rows(survey(0, {}, surveyed("g", {0: 5})))
    assert (row.figures.lag, row.figures.rate_in) == (None, None)


def test_an_offset_that_goes_back_is_no_rate() -> None:
    trends = Trends()
    trends.rows(survey(0, {0: 100}, surveyed("g", {0: 90})))
    [row] = trends.rows(survey(2, {0: 100}, surveyed("g", {0: 10})))
    assert (row.figures.lag, row.figures.rate_out) == (90, 0.0)


def test_the_worst_lag_comes_first_and_unknown_lag_last() -> None:
    groups = [surveyed("a", {0: 5}), surveyed("b"), surveyed("c", {0: 1}), surveyed("d", {0: 5})]
    assert [row.group for row in Trends().rows(survey(0, {0: 10}, *groups))] == ["c", "a", "d", "b"]


def test_a_partition_is_stuck_when_its_offset_stands_still_with_lag() -> None:
    trends = Trends()
    workers = member("w1", 0, 1), member("w2", 2)

    def at(second: int, offsets: dict[int, int]) -> GroupRow:
        [row] = trends.rows(survey(second, {0: 10, 1: 10, 2: 10}, surveyed("g", offsets, *workers)))
        return row

    assert not at(0, {0: 5, 1: 10, 2: 8}).stuck
    assert not at(8, {0: 5, 1: 10, 2: 9}).stuck
    row = at(10, {0: 5, 1: 10, 2: 9})
    assert row.stuck == (Stuck("w1 on 10.0.0.1", (("orders", 0),), 10.0, 5),)
    assert stuck_text(row, row.stuck[0]) == "g: w1 on 10.0.0.1 has not moved orders[0] for 10 s, lag 5"
    [part, *_] = row.parts
    assert (part.topic, part.partition, part.owner, part.unmoved_s) == ("orders", 0, "w1 on 10.0.0.1", 10.0)
    assert not at(12, {0: 6, 1: 10, 2: 10}).stuck


def test_an_idle_topic_is_not_stuck_when_its_first_record_comes() -> None:
    trends = Trends()
    trends.rows(survey(0, {0: 5}, surveyed("g", {0: 5}, member("w", 0))))
    [row] = trends.rows(survey(3600, {0: 6}, surveyed("g", {0: 5}, member("w", 0))))
    assert row.figures.lag == 1
    assert not row.stuck


def test_who_is_stuck_without_members() -> None:
    query = Committed(1, -1, GroupReader(name="loads", host="h").metadata())
    for offset, text in (
        (1, "nobody reads orders[0] for 10 s, lag 4"),
        (query, "Spark query loads on h has not moved"),
    ):
        trends = Trends()
        for second in (0, 10):
            [row] = trends.rows(survey(second, {0: 5}, surveyed("g", {0: offset})))
        assert stuck_text(row, row.stuck[0]).startswith(f"g: {text}")


# -- changes


def texts(found: list[Change]) -> list[str]:
    return [f"{one.group}: {one.text}" for one in found]


def test_a_story_is_told_when_it_begins_and_when_it_ends() -> None:
    changes = Changes()
    old = story(1, 1_000, "member joined", "a")
    assert changes.between([surveyed("g", {}, stories=[old])], 0) == []
    running = {**story(2, 2_000, "member left", "b"), "outcome": ""}
    found = changes.between([surveyed("g", {}, stories=[old, running])], 0)
    assert texts(found) == ["g: b on 10.0.0.1 left; rebalancing"]
    assert changes.between([surveyed("g", {}, stories=[old, running])], 0) == []
    ended = {**running, "outcome": "Stable", "happenings": [{"what": "member joined"}]}
    second = changes.between([surveyed("g", {}, stories=[old, ended])], 0)
    assert texts(second) == ["g: b on 10.0.0.1 left, and 1 more; stable after 100 ms"]
    assert second[0].key == found[0].key == (2_000, 2)
    assert changes.between([surveyed("g", {}, stories=[ended])], 0) == []


def test_a_rebalance_that_runs_at_the_start_is_told_and_a_new_group_too() -> None:
    running = {**story(2, 2_000, "member left", "b"), "outcome": ""}
    changes = Changes()
    assert len(changes.between([surveyed("g", {}, stories=[story(1, 1, "member joined", "a"), running])], 0)) == 1
    stories = [story(1, 1, "member left", "old"), story(2, 99_000, "member joined", "c")]
    gone = changes.between([surveyed("h", {}, stories=stories, now_ms=99_500)], 5)
    assert texts(gone) == ["g: the group is gone", "h: c on 10.0.0.1 joined; stable after 100 ms"]


def test_without_a_journal_the_differences_are_told() -> None:
    changes = Changes()
    one, two = member("a", 0), member("b", 1)
    assert changes.between([surveyed("g", {0: 9}, one, two)], 0) == []
    [change] = changes.between([surveyed("g", {0: 9}, one, state="PreparingRebalance")], 7)
    assert (change.at_ms, change.text) == (7, "Stable → PreparingRebalance; b on 10.0.0.1 left")
    found = changes.between([surveyed("g", {0: 4}, member("a", 0, 1)), surveyed("n")], 8)
    assert texts(found) == [
        "g: PreparingRebalance → Stable",
        "g: offsets of 1 partition went back, by 5 records at most",
        "n: new: Empty, 0 members",
    ]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((member("a", 0), member("b", 1)), (member("a", 1), member("b", 0)), "2 partitions moved"),
        (
            (member("a", 0),),
            (member("a", 0), *(member(f"n{n}") for n in range(5))),
            "n0 on 10.0.0.1, n1 on 10.0.0.1, n2 on 10.0.0.1 and 2 more joined",
        ),
        ((member("a", 0),), (member("a", 0),), ""),
    ],
)
def test_differences_of_members(before: Any, after: Any, text: str) -> None:
    assert difference(surveyed("g", {}, *before).group, surveyed("g", {}, *after).group) == text


def test_an_epoch_that_rises() -> None:
    one = surveyed("g", {}, member("a"), epoch=4, type="consumer").group
    assert difference(one, surveyed("g", {}, member("a"), epoch=6, type="consumer").group) == "group epoch 4 → 6"


# -- cells


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (99_960, "100k"), (999_600, "1.0M"), (10**12, "1.0T")],
)
def test_numbers_are_short(value: int | None, text: str) -> None:
    assert count(value) == text


def test_rates_and_spans() -> None:
    assert [rate(value) for value in (None, 0.0, 0.25, 9.94, 12.4, 12_345.6)] == ["-", "0", "0.2", "9.9", "12", "12.3k"]
    times = (None, 0.0, 45.4, 120.0, 7200.0, 200_000.0, math.inf)
    assert [span(value) for value in times] == ["-", "0 s", "45 s", "2 min", "2 h", "2 days", "never"]


def test_a_sparkline_has_its_highest_bar_at_the_largest_value() -> None:
    assert spark([0, 1, 50, 100], 4) == "▁▂▅█"
    assert spark([None, 0, 0], 5) == "   ▁▁"
    assert spark([1, 2, 3, 9], 2) == "▃█"


# -- the picture


def drawn(width: int, height: int, view: View) -> str:
    console = Console(record=True, width=width, height=height, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Picture(lambda: view), end="")
    return console.export_text(styles=False)


def row(name: str, lag: int | None, **fields: Any) -> GroupRow:
    figures = Figures(lag, (0, lag or 0), 120.0, 100.0, math.inf, lag * 100, True) if lag is not None else Figures()
    given: dict[str, Any] = {
        "group": name,
        "state": "Stable",
        "type": "classic",
        "assignor": "range",
        "members": 3,
        "partitions": 12,
        "without_offset": 0,
        "figures": figures,
    }
    return GroupRow(**{**given, **fields})


STUCK = Stuck("worker-2 on 10.0.0.2", (("orders", 1), ("orders", 4)), 45.0, 1_234)
VIEW = View(
    1_700_000_000_000,
    [
        row("payments-with-a-name-that-is-longer-than-the-column", 1_234_567, state="PreparingRebalance"),
        row("billing", 1_234, stuck=(STUCK,)),
        row("reports", 0),
        row("nightly", None, error="GROUP_AUTHORIZATION_FAILED"),
    ],
    (Change(1_700_000_000_000, "payments", "worker-3 on 10.0.0.3 joined; stable after 3.0 s"),),
)


def test_a_picture_at_80_columns() -> None:
    lines = drawn(80, 24, VIEW).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split("  ", 1)[1] == "4 groups  lag 1.2M  1 stuck  1 rebalancing"
    assert lines[1].split() == ["GROUP", "LAG", "LAG-TIME", "IN/S", "OUT/S", "STATE"]
    first = lines[2].split()
    assert first[0].startswith("payment")
    assert "…" in first[0]
    assert first[0].endswith("column")
    assert first[1:] == ["1.2M", "1d10h", "120", "100", "Joining"]
    assert [line.split()[0] for line in lines[3:6]] == ["billing", "reports", "nightly"]
    assert lines[6:] == [
        "Stuck",
        "  billing: worker-2 on 10.0.0.2 has not moved orders[1,4] for 45 s, lag 1,234",
        "Changes",
        f"  {lines[0].split()[0]}  payments: worker-3 on 10.0.0.3 joined; stable after 3.0 s",
    ]


def test_a_usual_picture_at_80_columns_has_members_and_the_time_to_catch_up() -> None:
    view = View(0, [row("billing-of-the-north", 1_234), row("reports", 0)])
    heading = drawn(80, 24, view).splitlines()[1].split()
    assert heading == ["GROUP", "LAG", "LAG-TIME", "TREND", "IN/S", "OUT/S", "CATCHUP", "STATE", "MEMBERS"]


def test_a_wide_picture_shows_more() -> None:
    lines = drawn(140, 24, VIEW).splitlines()
    assert max(map(len, lines)) <= 140
    assert lines[1].split()[-4:] == ["STATE", "MEMBERS", "STUCK", "PARTITIONS"]
    assert "PreparingRebalance" in lines[2]
    assert "CATCHUP" in lines[1]
    assert "never" in lines[2]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert all(len(line.text) <= width for line in pictured(VIEW, width))
    assert max(map(len, drawn(width, 24, VIEW).splitlines())) <= width


def test_a_picture_is_as_high_as_the_terminal_at_most() -> None:
    many = View(0, [row(f"g{n:04}", 2_000 - n, stuck=(STUCK,)) for n in range(2_000)], VIEW.changes * 50)
    lines = drawn(80, 24, many).splitlines()
    assert len(lines) == 23  # rich leaves a line for the prompt
    assert lines[2].split()[0] == "g0000"
    assert "and 1993 groups more, with less lag" in lines
    assert "  and 1996 more" in lines
    assert len(pictured(many)) > 2_000


def test_old_figures_say_so() -> None:
    lines = drawn(80, 24, View(0, VIEW.rows, trouble="no answer for 12 s: 127.0.0.1:9092: connection refused"))
    assert lines.splitlines()[1] == "no answer for 12 s: 127.0.0.1:9092: connection refused"


def test_the_partitions_of_one_group() -> None:
    trends = Trends()
    workers = member("worker-1", 0, 1), member("worker-2", 2, host="/10.0.0.2")
    for second in (0, 12):
        ends = {0: 100, 1: 100, 2: 5_000}
        rows = trends.rows(survey(second, ends, surveyed("billing", {0: 100, 1: 90 + second // 2, 2: 7}, *workers)))
    view = View(0, rows)
    lines = drawn(80, 24, view).splitlines()
    assert "billing  Stable  2 members  lag 4,997" in lines[0]
    assert lines[1].split() == ["PARTITION", "LAG", "LAG-TIME", "TREND", "IN/S", "OUT/S", "UNMOVED", "OWNER"]
    assert [line.split()[0] for line in lines[2:]] == ["orders-2", "orders-1", "orders-0"]
    assert lines[2].endswith("12 s  worker-2 on 10.0.0.2")
    wide = drawn(140, 24, view).splitlines()
    assert wide[1].split()[:3] == ["PARTITION", "COMMITTED", "END"]
    assert wide[2].split()[1:3] == ["7", "5000"]


def test_names_are_hostile_input() -> None:
    evil = row("[red]g[/red]\x1b[2J\u202e\x9b31m", 7, state="Sta\x1bble", assignor="\x1b]0;title\x07")
    stuck = Stuck("\x1b[31mw[bold]", (("t\x1b", 0),), 10.0, 7)
    changes = (Change(0, "g\x1b[2J", "\x07[blink]joined"),)
    for rows in ([evil, row("h", 1, stuck=(stuck,))], [evil]):
        shown = drawn(200, 24, View(0, rows, changes))
        assert not any(letter in shown for letter in "\x1b\x07\x9b\u202e")
        assert "[red]g[/red]�[2J" in shown
        assert "g�[2J: �[blink]joined" in shown
