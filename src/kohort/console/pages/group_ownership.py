"""A group's tab Ownership: who owned which partition over time, as a picture and as a table."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.datastructures import QueryParams

from kohort.client.cluster import Cluster
from kohort.console.ownership.drawing import svg
from kohort.console.ownership.periods import Past, past_of
from kohort.console.ownership.window import Window, window_of
from kohort.console.paging import page_of, wanted_page, wanted_search
from kohort.console.reading.questions import STORIES, group_now
from kohort.console.shared import Console

MOST_MEMBERS = 24
"""Members that the page offers to point out."""


async def values(console: Console, group_id: str, query: QueryParams) -> dict[str, Any]:
    """What the template needs besides the facts."""
    past: Past = await console.answers.get(("past", group_id), partial(ask, group_id=group_id))
    search = wanted_search(query).lower()
    places = [place for place in past.periods if search in f"{place[0]} {place[1]}".lower()]
    page = page_of(places, wanted_page(query))
    window = window_of(past, page.rows, wanted_until(query))
    chosen = query.get("member", "")
    label = f"Owners of {len(window.rows)} partitions over time; the table below has the same in words"
    return {
        "page": page,
        "window": window,
        "members": window.members[:MOST_MEMBERS],
        "chosen": chosen,
        "picture": svg(window, chosen, label) if window.rows else "",
        "lacks": _lacks(past, window),
    }


def ask(cluster: Cluster, group_id: str) -> Past:
    """In the thread of the question, because the stories of a large group take a while."""
    now = group_now(cluster, group_id, STORIES)
    return past_of(now.stories, now.group.members, now.now_ms)


def wanted_until(query: QueryParams) -> int | None:
    text = query.get("until", "")
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _lacks(past: Past, window: Window) -> bool:
    """Whether a shown partition has a time without a known owner that is longer than all rebalances in it."""
    known = sum(period.end_ms - period.start_ms for row in window.rows for period in row.periods)
    paused = sum(span.end_ms - span.start_ms for span in window.rebalances)
    length = window.end_ms - window.begin_ms
    return known < len(window.rows) * max(length - paused, 0) * 0.98
