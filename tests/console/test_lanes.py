"""Stories as lanes, and lanes as SVG."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from kohort.console.rebalances.drawing import LONGEST_NAME, svg, ticks
from kohort.console.rebalances.lanes import LEFT_LANES, MOST_LANES, Band, Bar, Lane, Mark, chart_of


def someone(client: str, **more: Any) -> dict[str, Any]:
    return {"member_id": f"{client}-id", "client_id": client, "host": "/10.0.0.1", **more}


CLASSIC: dict[str, Any] = {
    "number": 7,
    "started_ms": 1_000,
    "cause": someone("new", what="member joined"),
    "outcome": "Stable",
    "took_ms": 31_000,
    "phases": [
        {"phase": "PreparingRebalance", "took_ms": 30_000, "ended_by": "time was up"},
        {"phase": "CompletingRebalance", "took_ms": 1_000},
    ],
    "happenings": [
        someone("stuck", what="member removed", after_ms=30_000, waited_ms=30_000),
        {"what": "topics changed", "after_ms": 5_000, "cause": "orders grew"},
    ],
    "held_up_by": [someone("stuck", how="it did not rejoin in time", waited_ms=29_000)],
    "members": [
        someone("new", joined_after_ms=0, partitions=1, gained={"t": [4]}),
        someone("old", joined_after_ms=1_000, partitions=2, lost={"t": [4]}),
    ],
    "members_count": 2,
    "gone": [someone("stuck", lost={"t": [5]})],
}


def lanes(story: dict[str, Any], **more: Any) -> dict[str, Lane]:
    return {lane.name.split()[0]: lane for lane in chart_of({**story, **more}, None, 0).table}


def test_a_classic_group() -> None:
    chart = chart_of(CLASSIC, None, 0)
    assert chart.length_ms == 31_000
    assert chart.bands == (
        Band("PreparingRebalance", 0, 30_000, "time was up"),
        Band("CompletingRebalance", 30_000, 31_000),
    )
    assert [lane.name for lane in chart.lanes] == ["stuck", "old", "new"]
    stuck, old, new = chart.lanes
    assert stuck.bars == (Bar("gives-up", 0, 30_000),)
    assert (stuck.awaited_ms, stuck.awaited_how, stuck.gone) == (29_000, "it did not rejoin in time", True)
    assert old.bars == (Bar("gives-up", 0, 1_000), Bar("waits", 1_000, 31_000))
    assert (old.owned_before, old.owns_after, old.count, old.lost) == (True, True, 2, "t[4]")
    assert new.bars == (Bar("waits", 0, 31_000),)
    assert not new.owned_before
    assert new.marks == (Mark(0, "new on 10.0.0.1 joined"),)
    assert chart.marks == (Mark(5_000, "topics changed: orders grew"),)
    assert chart.rest is None


def test_a_member_that_was_awaited_and_is_nowhere_else() -> None:
    found = lanes(CLASSIC, gone=[])
    assert found["stuck"].gone
    assert found["stuck"].bars == (Bar("owns", 0, 30_000),), "until it was removed"


CONSUMER: dict[str, Any] = {
    "number": 3,
    "started_ms": 0,
    "cause": someone("c", what="member joined"),
    "group_type": "consumer",
    "outcome": "Stable",
    "took_ms": 3_000,
    "phases": [{"phase": "Assigning", "took_ms": 100}, {"phase": "Reconciling", "took_ms": 2_900}],
    "members": [
        someone(
            "slow",
            partitions=2,
            lost={"t": [5]},
            steps={"revoked": 1, "told_after_ms": 100, "revoked_after_ms": 3_000, "gave_up_in_ms": 2_900},
        ),
        someone(
            "c",
            partitions=1,
            gained={"t": [5]},
            steps={"waited_after_ms": 100, "waited_ms": 2_900, "got": 1, "got_after_ms": 3_000},
        ),
        someone("calm", partitions=2),
        someone("idle", partitions=0),
        someone("both", partitions=2, gained={"t": [7]}, lost={"t": [8]}, steps={
            "told_after_ms": 100, "revoked_after_ms": 500, "waited_after_ms": 500, "waited_ms": 1_500,
            "got_after_ms": 2_000,
        }),
    ],
    "members_count": 5,
}  # fmt: skip


def test_a_consumer_group() -> None:
    found = lanes(CONSUMER)
    assert found["slow"].bars == (Bar("owns", 0, 100), Bar("gives-up", 100, 3_000))
    assert found["c"].bars == (Bar("waits", 100, 3_000),)
    assert found["calm"].bars == (Bar("owns", 0, 3_000),)
    assert found["idle"].bars == ()
    assert found["both"].bars == (
        Bar("owns", 0, 100),
        Bar("gives-up", 100, 500),
        Bar("waits", 500, 2_000),
        Bar("owns", 500, 3_000),
    )
    moved = {"told_after_ms": 10, "revoked_after_ms": 20, "got_after_ms": 50}
    all_new = someone("x", partitions=1, gained={"t": [1]}, lost={"t": [2]}, steps=moved)
    assert lanes(CONSUMER, members=[all_new], cause={})["x"].bars == (
        Bar("owns", 0, 10),
        Bar("gives-up", 10, 20),
        Bar("waits", 20, 50),
        Bar("owns", 50, 3_000),
    )


def test_a_rebalance_that_runs_has_the_present_states() -> None:
    story = {"number": 1, "started_ms": 1_000, "cause": {"what": "rebalance started"}, "phases": [{"phase": "P"}]}
    status = {
        "members": [
            someone("late", state="awaited to join", waited_ms=4_000),
            someone("here", state="joined"),
        ]
    }
    chart = chart_of(story, status, 6_000)
    assert (chart.running, chart.length_ms, chart.bands) == (True, 5_000, (Band("P", 0, 5_000),))
    late, here = chart.lanes
    assert (late.bars, late.awaited_ms, late.state) == ((Bar("gives-up", 1_000, 5_000),), 4_000, "awaited to join")
    assert (here.bars, here.state) == ((), "joined")


def test_many_members_have_few_lanes() -> None:
    members = [
        someone(f"m{number:03}", joined_after_ms=number, partitions=1, lost={"t": [number]}) for number in range(60)
    ]
    held_up = [someone("m007", how="joined last", waited_ms=500)]
    chart = chart_of(
        {**CLASSIC, "members": members, "members_count": 1_000, "gone": [], "happenings": [], "held_up_by": held_up},
        None,
        0,
    )
    assert len(chart.lanes) == LEFT_LANES
    assert [lane.name.split()[0] for lane in chart.lanes[:3]] == ["m007", "m059", "m058"]
    assert chart.rest is not None
    assert chart.rest.name == "980 other members, from the first to the last"
    assert chart.rest.bars == (Bar("gives-up", 0, 40), Bar("waits", 0, 31_000))
    assert len(chart.table) == 60
    few = chart_of({**CLASSIC, "members": members[:MOST_LANES], "members_count": 50, "gone": []}, None, 0)
    assert len(few.lanes) == LEFT_LANES, "with the member that was awaited there are 51"


@pytest.mark.parametrize(
    "story", [{"number": 1, "started_ms": 5}, {"number": 1, "started_ms": 5, "outcome": "interrupted"}]
)
def test_a_story_may_lack_everything(story: dict[str, Any]) -> None:
    chart = chart_of(story, None, 5)
    assert (chart.length_ms, chart.lanes, chart.bands) == (1, (), ())
    assert "<svg" in svg(chart, "nothing")


# -- drawing


def drawn(story: dict[str, Any]) -> ElementTree.Element:
    """The SVG, which is XML too: nothing in it is left unescaped."""
    return ElementTree.fromstring(str(svg(chart_of(story, None, 0), "a label")))


def test_a_picture() -> None:
    found = drawn(CLASSIC)
    classes = [element.get("class") for element in found.iter() if element.get("class")]
    assert classes.count("lane") == 3
    assert classes.count("gives-up") == 2
    assert classes.count("waits") == 2
    assert classes.count("owns") == 4, "two had partitions before, two have some now"
    assert classes.count("mark") == 3
    assert classes.count("awaited") == 1
    assert [note.text for note in found.iter("text") if note.get("class") == "note"] == ["awaited 29.0 s, gone"]
    texts = [element.text for element in found.iter("text")]
    assert texts[:6] == ["PreparingRebalance", "0", "10.0 s", "20.0 s", "30.0 s", "stuck"]
    for rect in found.iter("rect"):
        for side in ("x", "width"):
            assert 0 <= float((rect.get(side) or "0").rstrip("%")) <= 100
    assert any(title.text == "waits for others: 30.0 s, from 1.0 s" for title in found.iter("title"))


def test_names_in_a_picture_are_escaped_and_cut() -> None:
    story = {**CLASSIC, "members": [someone('<b>"&', joined_after_ms=1), someone("n" * 200, joined_after_ms=2)]}
    names = [element.text or "" for element in drawn(story).iter("text") if element.get("class") == "lane"]
    assert '<b>"&' in names
    assert max(map(len, names)) <= LONGEST_NAME


@pytest.mark.parametrize(
    ("length", "found"),
    [(1, [0, 1]), (4, [0, 1, 2, 3, 4]), (10, [0, 5, 10]), (31_000, [0, 10_000, 20_000, 30_000])],
)
def test_ticks(length: int, found: list[int]) -> None:
    assert ticks(length) == found
