"""Large clusters, with a snapshot that the test makes: how large pages are, and how long they take.

The limits of time are processor time, and several times what a page takes, so a busy machine does not break them.
"""

from __future__ import annotations

from typing import Any

from console_pages import Pages
from time_taken import takes_less

from kohort.client.admin.groups import GroupMember
from kohort.console.ownership.drawing import svg
from kohort.console.ownership.periods import past_of
from kohort.console.ownership.window import window_of
from kohort.console.paging import SIZE
from kohort.console.reading.snapshot import GroupRow, Snapshot, Totals
from kohort.console.what_if.history import history_of
from kohort.testing import KohortServer

GROUPS, MEMBERS, STORIES = 15_000, 10_000, 200


def test_fifteen_thousand_groups(server: KohortServer) -> None:
    """Snapshot, courses of lag, list."""
    pages = Pages(server.bootstrap_servers)
    rows = {
        f"team-{number % 50}.{'x' * 60}-{number}": GroupRow(
            f"team-{number % 50}.{'x' * 60}-{number}", "Stable", "classic", "consumer", 1, "range", 3, 12, number, 5_000
        )
        for number in range(GROUPS)
    }
    pages.refresher.snapshot = Snapshot("id", rows, {}, (), Totals({"Stable": GROUPS}), 1, 1_700_000_000_000)
    for second in range(70):
        pages.refresher.trends.note(second * 2_000, rows)
    with takes_less(0.25):
        pages.refresher.trends.note(140_000, rows)
    with pages:
        pages.get("/")
        with takes_less(0.5):
            page = pages.get("/")
        assert len(page.body()) == SIZE
        assert sum(found.get("class") == "course" for found in page.attributes("svg")) == SIZE
        assert len(page.html.encode()) <= 150_000
        with takes_less(0.5):
            live = pages.live("groups")
        assert len(live["regions"]) == SIZE


def stories_of(members: int) -> list[dict[str, Any]]:
    """Each names 200 members: all of them lose a partition to the next one."""
    found = []
    for number in range(STORIES):
        named = [
            {
                "member_id": f"worker-{one}-{'i' * 36}",
                "client_id": f"worker-{one}",
                "host": f"/10.0.{one // 250}.{one % 250}",
                "joined_after_ms": one,
                "gained": {"orders": [(one + number) % 200]},
                "lost": {"orders": [(one + number - 1) % 200]},
            }
            for one in range(200)
        ]
        what = "member joined" if number % 2 else "member left"
        person = {name: named[number][name] for name in ("member_id", "client_id", "host")}
        story = {"number": number + 1, "started_ms": number * 60_000, "took_ms": 3_000, "outcome": "Stable"}
        found.append(
            {
                **story,
                "cause": {"what": what, **person},
                "members": named,
                "members_count": members,
                "partitions_count": members,
            }
        )
    return found


def test_ten_thousand_members() -> None:
    """The owners over time, and what is played of them."""
    stories = stories_of(MEMBERS)
    members = [
        GroupMember(
            f"worker-{one}-{'i' * 36}",
            None,
            f"worker-{one}",
            f"/10.0.{one // 250}.{one % 250}",
            b"",
            b"",
            (),
            {"orders": (one,)},
        )
        for one in range(MEMBERS)
    ]
    with takes_less(3.0):  # in a thread
        past = past_of(stories, members, STORIES * 60_000)
    assert len(past.periods) == MEMBERS
    with takes_less(0.25):
        window = window_of(past, list(past.periods)[:SIZE])
        picture = svg(window, "", "owners")
    assert len(picture.encode()) < 90_000
    table = sum(
        len(f"{one.name} 2026-11-20 10:00:00, for 3 min 20 s") + 60 for row in window.rows for one in row.periods
    )
    assert table < 40_000
    with takes_less(3.0):
        history = history_of(stories, members)
    assert history.scaled
