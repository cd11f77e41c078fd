"""Who owned which partition over time: stories as periods, the part that a page shows, the picture."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from console_pages import Pages
from group_member import GroupMember as Joined

from kohort.client.admin.groups import GroupMember
from kohort.console.ownership.drawing import svg
from kohort.console.ownership.periods import Past, Period, past_of
from kohort.console.ownership.window import MOST_PERIODS, window_of


def someone(client: str, **more: Any) -> dict[str, Any]:
    return {"member_id": f"{client}-id", "client_id": client, "host": "/10.0.0.1", **more}


def now(client: str, **assigned: tuple[int, ...]) -> GroupMember:
    return GroupMember(f"{client}-id", None, client, "/10.0.0.1", b"", b"", (), assigned)


def story(number: int, started_ms: int, members: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "number": number, "started_ms": started_ms, "took_ms": 1_000, "outcome": "Stable", "members": members,
        "cause": someone("new", what="member joined"), **more,
    }  # fmt: skip


def owners(past: Past, partition: int) -> list[tuple[str, int, int]]:
    return [(one.name, one.start_ms, one.end_ms) for one in past.periods["t", partition]]


CLASSIC = [
    story(
        4,
        10_000,
        [
            someone("new", gained={"t": [1]}, assignment={"t": [1]}, joined_after_ms=0),
            someone("old", lost={"t": [1]}, assignment={"t": [0]}, joined_after_ms=300),
        ],
    ),
    {"number": 5, "started_ms": 15_000, "outcome": "noted", "cause": {"what": "offsets changed"}},
    story(
        6,
        20_000,
        [someone("new", gained={"t": [0]}, assignment={"t": [0, 1]}, joined_after_ms=0)],
        gone=[someone("old", lost={"t": [0]})],
    ),
]


def test_a_classic_group() -> None:
    past = past_of(CLASSIC, [now("new", t=(0, 1))], 30_000)
    assert (past.begin_ms, past.end_ms) == (10_000, 30_000)
    assert owners(past, 0) == [("old", 10_000, 20_000), ("new", 21_000, 30_000)]
    assert owners(past, 1) == [("old", 10_000, 10_300), ("new", 11_000, 30_000)]
    assert [(span.number, span.start_ms, span.end_ms) for span in past.rebalances] == [
        (4, 10_000, 11_000),
        (6, 20_000, 21_000),
    ]


def test_a_consumer_group_has_steps() -> None:
    steps = {"told_after_ms": 100, "revoked_after_ms": 700}
    stories = [
        story(
            1,
            0,
            [
                someone("new", gained={"t": [1]}, steps={"got_after_ms": 800}),
                someone("old", lost={"t": [1]}, assignment={"t": [0]}, steps=steps),
            ],
            group_type="consumer",
        )
    ]
    past = past_of(stories, [now("old", t=(0,)), now("new", t=(1,))], 5_000)
    assert owners(past, 0) == [("old", 0, 5_000)]
    assert owners(past, 1) == [("old", 0, 700), ("new", 800, 5_000)]


def test_what_the_journal_lacks_is_a_gap() -> None:
    other = past_of(CLASSIC, [now("other", t=(0, 2))], 30_000)
    assert owners(other, 0) == [("old", 10_000, 20_000)], "new lost it, at the latest rebalance at the earliest"
    assert owners(other, 1)[-1] == ("new", 11_000, 30_000), "nobody else has it"
    assert owners(other, 2) == [("other", 10_000, 30_000)]
    interrupted = past_of([story(1, 0, [someone("a", gained={"t": [0]})], outcome="interrupted")], [], 9_000)
    assert interrupted.periods == {}
    assert owners(past_of([], [now("a", t=(0,))], 9_000), 0) == [("a", 9_000, 9_000)], "no time is known"


def past_with(count: int, partitions: int = 1) -> Past:
    periods = tuple(
        Period(f"m{number % 3}", f"member-{number % 3}", number * 10, number * 10 + 10) for number in range(count)
    )
    return Past(0, count * 10, {("t", partition): periods for partition in range(partitions)}, ())


def test_a_window_has_the_newest_periods_and_those_before_it() -> None:
    past = past_with(300, 2)
    places = list(past.periods)
    window = window_of(past, places)
    assert sum(len(row.periods) for row in window.rows) == MOST_PERIODS
    assert (window.begin_ms, window.end_ms, window.earlier_ms) == (1_800, 3_000, 1_800)
    assert window.members == (("m0", "member-0"), ("m1", "member-1"), ("m2", "member-2"))
    before = window_of(past, places, window.earlier_ms)
    assert (before.begin_ms, before.end_ms, before.earlier_ms) == (600, 1_800, 600)
    first = window_of(past, places, before.earlier_ms)
    assert (first.begin_ms, first.end_ms, first.earlier_ms) == (0, 600, None)
    assert window_of(past, places, 10**15).end_ms == 3_000
    assert window_of(past, places, 0).end_ms == 1
    cut = window_of(past, places, 1_795)
    assert cut.rows[0].periods[-1].end_ms == 1_795


def test_the_picture() -> None:
    past = past_of(CLASSIC, [now("new", t=(0, 1))], 30_000)
    drawn = svg(window_of(past, list(past.periods)), "new-id", "owners")
    root = ElementTree.fromstring(drawn)
    assert root.get("aria-label") == "owners"
    bars = [bar for bar in root.iter("svg") if bar is not root]
    assert [bar.findtext("text") for bar in bars] == ["old", "new", "new"]
    assert [bar.find("rect").get("class") for bar in bars] == ["tone-1", "chosen", "chosen"]  # type: ignore[union-attr]
    assert (bars[0].get("x"), bars[0].get("width")) == ("0.00%", "50.00%")
    thin = [rect for rect in root.findall("rect") if rect.findtext("title") == "old"]
    assert [rect.get("width") for rect in thin] == ["1.50%"], "0.3 of 20 seconds: too narrow for a name"
    assert [rect.findtext("title") for rect in root.findall("rect") if rect.get("class") == "pause"] == [
        "rebalance 4: 1.0 s",
        "rebalance 6: 1.0 s",
    ]


def test_names_in_the_picture_are_escaped() -> None:
    hostile = "<script>alert(1)</script>‮"
    past = Past(0, 10, {(hostile, 0): (Period("m", hostile, 0, 10),)}, ())
    drawn = svg(window_of(past, list(past.periods)), "", "x")
    assert "<script>" not in drawn
    assert "‮" not in drawn
    ElementTree.fromstring(drawn)


def test_the_tab(pages: Pages, unique: str) -> None:
    pages.cluster.create_topic(unique, 3)
    first = Joined(pages.bootstrap, unique, {unique: (0, 1)}, "first")
    first.leave()
    second = Joined(pages.bootstrap, unique, {unique: (0,)}, "second")
    pages.read()
    page = pages.get("/group", id=unique, tab="ownership")
    rows = {row[0]: row[1] for row in page.body()}
    assert rows.keys() == {f"{unique} 0", f"{unique} 1"}
    assert rows[f"{unique} 0"].startswith("second 20"), "the newest first"
    assert "first 20" in rows[f"{unique} 0"]
    assert rows[f"{unique} 1"].startswith("first 20")
    assert page.count("svg") > 3
    chosen = next(link for link in page.links if "member=second" in link or f"member={second.member_id}" in link)
    assert 'class="chosen"' in pages.get(chosen).html
    assert [row[0] for row in pages.get("/group", id=unique, tab="ownership", q=f"{unique} 1").body()] == [
        f"{unique} 1"
    ]
    assert "No partitions" in pages.get("/group", id=unique, tab="ownership", q="nothing").text
    assert pages.live("group", id=unique, tab="ownership")["rows"][""]["members"] == "1"
    second.leave()
