"""One group, in tabs: partitions with lag and owners, members, rebalances, ownership, what if, settings.

The stories of rebalances come from the journal of kohort's coordinator. Other clusters have none, and the tab says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.explain import OFTEN, WORTH_NAMING_MS
from kohort.cli.groups.last_owners import LOOKED_AT, MOST_LINES, LastOwner, last_owners
from kohort.cli.groups.standings import Offender, offenders
from kohort.cli.groups.timeline import REBALANCING, headline, status_lines, story_lines
from kohort.cli.groups.wording import Document, Names, as_document, partitions, people_of, plain, utc
from kohort.client.admin.configs import ConfigSource
from kohort.client.admin.end_times import EndTimes
from kohort.client.admin.groups import SHARE, GroupDescription, GroupMember
from kohort.console.lag_lines import wide
from kohort.console.live import Cell, Live
from kohort.console.pages import group_ownership, group_records, group_what_if
from kohort.console.paging import Order, Page, ordered, page_of, wanted_order, wanted_page, wanted_search
from kohort.console.reading.questions import STORIES, GroupNow, PartitionRow, group_now, group_settings, partition_rows
from kohort.console.reading.snapshot import GroupRow
from kohort.console.shared import Console, console_of, head_cells, key_of
from kohort.console.soon import FOLLOWS
from kohort.console.soon import outline as of_any_page
from kohort.console.words import Chip, age, count, outcome_chip, rate, state_chip

TABS = {
    "partitions": "Partitions",
    "members": "Members",
    "rebalances": "Rebalances",
    "ownership": "Ownership",
    "what_if": "What if",
    "settings": "Settings",
}
OF_SHARES = {
    "partitions": "Partitions",
    "records": "Records",
    "members": "Members",
    "rebalances": "History",
    "settings": "Settings",
}
"""Of a share group: it has no rebalances, and its members own nothing."""
OF_JOURNAL = ("rebalances", "what_if")
"""Tabs that show stories. Ownership asks for them itself."""
IN_STREAM = {"rebalances": 1, "what_if": STORIES}
"""Stories that a stream asks for."""
LONGEST_PARTITIONS = 200
"""Characters of a member's partitions in the list."""
WORST = 5

PARTITION_COLUMNS: dict[str, Callable[[PartitionRow], Any]] = {
    "partition": lambda row: (row.topic, row.partition),
    "committed": lambda row: row.committed,
    "end": lambda row: row.end,
    "lag": lambda row: row.lag,
    "owner": lambda row: row.owner.client_id if row.owner else None,
}
MEMBER_COLUMNS: dict[str, Callable[[GroupMember], Any]] = {
    "member": lambda member: member.client_id,
    "host": lambda member: member.host,
    "instance": lambda member: member.group_instance_id,
    "partitions": lambda member: sum(map(len, member.assigned.values())),
}
PARTITION_ORDER, MEMBER_ORDER = Order("lag", True), Order("member", False)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A row of the list of rebalances."""

    number: int
    started_ms: int
    headline: str
    outcome: Chip
    took_ms: int | None
    details: tuple[str, ...]
    is_rebalance: bool
    undo_from: str
    """The moment that `Restore offsets` takes to undo it; empty if it changed no committed offsets."""


async def group(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    group_id, tab = query.get("id", ""), wanted_tab(query)
    now = await state_of(console, group_id, STORIES if tab in OF_JOURNAL else 0)
    if tab not in tabs_of(now.group.type):
        tab = "partitions"
    listed = console.refresher.look().groups.get(group_id)
    if not now.exists and listed is None:
        past = now if tab in OF_JOURNAL else await state_of(console, group_id, STORIES)
        if not past.stories:
            raise HTTPException(404, f"group {group_id} does not exist")
    values = await VIEWS[tab](console, now, listed, query)
    return _page(request, now, tab, live="/live/group", **values)


def outline(request: Request) -> Response:
    """What the list of groups knows, until the group is described."""
    console, query = console_of(request), request.query_params
    row = console.refresher.look().groups.get(query.get("id", ""))
    if row is None:
        return of_any_page(request)
    known = row.group_id, row.state, row.protocol_type, row.protocol, (), row.coordinator, row.type
    now, tab = GroupNow(GroupDescription(*known), int(time.time() * 1000)), wanted_tab(query)
    return _page(
        request,
        now,
        tab if tab in tabs_of(row.type) else "partitions",
        is_outline=True,
        reading=f"The group is being read. {FOLLOWS}",
        facts={**facts(console, now, row, row.lag), "members": count(row.members)},
    )


def _page(request: Request, now: GroupNow, tab: str, **values: Any) -> Response:
    group = now.group
    return console_of(request).page(
        request,
        "group.html",
        title=group.group_id,
        group_id=group.group_id,
        now=now,
        tab=tab,
        tabs=tabs_of(group.type),
        is_shared=group.type == SHARE,
        **awaited(now),
        **values,
    )


async def live(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    group_id, tab = query.get("id", ""), wanted_tab(query)

    async def read() -> Live:
        now = await state_of(console, group_id, IN_STREAM.get(tab, 0))
        snapshot = console.refresher.look()
        view = facts_only if tab == "ownership" else VIEWS[tab]  # its picture stands still
        values = await view(console, now, snapshot.groups.get(group_id), query)
        region = console.render("awaited.html", **awaited(now))
        regions = {"awaited": region, **values.get("regions", {})}
        return Live({"": {**head_cells(snapshot), **values["facts"]}, **values.get("cells", {})}, regions)

    return await console.streams.response(request, read)


async def state_of(console: Console, group_id: str, stories: int) -> GroupNow:
    return await console.answers.get(
        ("group", group_id, stories), partial(group_now, group_id=group_id, stories=stories)
    )


def wanted_tab(query: QueryParams) -> str:
    tab = query.get("tab", "")
    return tab if tab in TABS or tab in OF_SHARES else "partitions"


def tabs_of(group_type: str) -> dict[str, str]:
    return OF_SHARES if group_type == SHARE else TABS


def facts(
    console: Console, now: GroupNow, listed: GroupRow | None, lag: int | None, time_lag: str | None = None
) -> dict[str, Cell]:
    """The cells in the head of the page. By default the lag in time is that of the list of groups."""
    if time_lag is None:
        time_lag = age(listed.age_ms, told=listed.age_told) if listed else age(None, told=False)
    group, rates = now.group, console.refresher.rates.of(now.group.group_id)
    return {
        "state": state_chip(group.state),
        "members": count(len(group.members)),
        "assignor": plain(group.protocol),
        "lag": count(lag),
        "time": time_lag,
        "written": rate(rates.written if rates else None),
        "committed-rate": rate(rates.committed if rates else None),
        "generation": count((now.status or {}).get("generation")),
    }


def awaited(now: GroupNow) -> dict[str, Any]:
    """Whom the group waits for, while it rebalances, and the number of the running story."""
    status, lines = now.status, []
    if status is not None and (status["phase"] in REBALANCING or status.get("held_partitions")):
        lines = [line.text for line in status_lines(status, Names(status.get("members", ())))]
    running = (now.rebalance or {}).get("number")
    return {"awaited": lines, "running": running, "running_in": now.group.group_id}


# -- tabs


async def partitions_tab(
    console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams
) -> dict[str, Any]:
    rows: Sequence[PartitionRow] = await console.answers.get(
        ("partitions", now.group.group_id), partial(partition_rows, group=now.group)
    )
    shared = now.group.type == SHARE
    lags = [row.lag for row in rows if row.lag is not None]
    order, search = wanted_order(query, PARTITION_COLUMNS, PARTITION_ORDER), wanted_search(query).lower()
    chosen = [row for row in rows if search in row.topic.lower()]
    page = page_of(
        ordered(chosen, PARTITION_COLUMNS[order.column], order.down, lambda row: f"{row.topic} {row.partition:09}"),
        wanted_page(query),
    )
    time_lag = age(worst_ms(rows), told=True) if any(row.told for row in rows) else None
    last = await last_owners_now(console, now, rows)
    line = wide(console.refresher.trends.of(now.group.group_id))
    course = console.render("course.html", course=line, is_shared=shared)
    return {
        "facts": facts(console, now, listed, sum(lags) if lags else None, time_lag),
        "regions": {"course": course, "unread": console.render("unread.html", unread=[one.words for one in last])},
        "page": page,
        "order": order,
        "cells": {partition_key(row): partition_cells(row, now.names, console.refresher.times) for row in page.rows},
        "partition_key": partition_key,
        "without_offset": 0 if shared else sum(row.committed is None and bool(row.end) for row in rows),
    }


async def last_owners_now(console: Console, now: GroupNow, rows: Sequence[PartitionRow]) -> list[LastOwner]:
    """Of partitions with lag that nobody has."""
    places = [(row.topic, row.partition) for row in rows if row.lag and row.owner is None and not row.reader]
    if not places or now.no_journal or now.group.type == SHARE:
        return []
    stories = (await state_of(console, now.group.group_id, LOOKED_AT)).stories
    return last_owners(stories, places, Names([*people_of(stories), *map(as_document, now.group.members)]))[:MOST_LINES]


def worst_ms(rows: Sequence[PartitionRow]) -> int | None:
    """None also if all that is known is that some partitions have no lag."""
    known = max((row.age_ms for row in rows if row.age_ms is not None), default=None)
    return None if not known and any(row.lag and row.age_ms is None for row in rows) else known


def partition_key(row: PartitionRow) -> str:
    return f"{key_of(row.topic)}/{row.partition}"


def partition_cells(row: PartitionRow, names: Names, times: EndTimes) -> dict[str, Cell]:
    owner = names.with_host(as_document(row.owner)) if row.owner else row.reader
    age_ms = row.age_ms
    if not row.told and row.unfinished is None and row.committed is not None and row.end is not None:
        age_ms = times.age_ms((row.topic, row.partition), row.committed, row.end, int(time.time() * 1000))
    return {
        "committed": count(row.committed),
        "end": count(row.end),
        "lag": count(row.lag),
        "time": age(age_ms, told=row.told),
        "owner": plain(owner),
    }


async def members_tab(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    order, search = wanted_order(query, MEMBER_COLUMNS, MEMBER_ORDER), wanted_search(query).lower()
    chosen = [
        member
        for member in now.group.members
        if search in f"{member.client_id}\n{member.host}\n{member.group_instance_id or ''}\n{member.member_id}".lower()
    ]
    page: Page[GroupMember] = page_of(
        ordered(chosen, MEMBER_COLUMNS[order.column], order.down, lambda member: member.member_id), wanted_page(query)
    )
    return {
        "facts": facts(console, now, listed, listed.lag if listed else None),
        "page": page,
        "order": order,
        "cells": {key_of(member.member_id): member_cells(member) for member in page.rows},
    }


def member_cells(member: GroupMember) -> dict[str, Cell]:
    shown = plain(partitions(member.assigned))
    if len(shown) > LONGEST_PARTITIONS:
        shown = f"{shown[: LONGEST_PARTITIONS - 2]} …"
    return {"partitions": count(sum(map(len, member.assigned.values()))), "assigned": shown}


async def rebalances_tab(
    console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams
) -> dict[str, Any]:
    names = Names([*people_of(now.stories), *map(as_document, now.group.members)])
    page = page_of(now.stories[::-1], wanted_page(query))
    newest = now.stories[-1]["number"] if now.stories else 0
    return {
        "facts": {**facts(console, now, listed, listed.lag if listed else None), "newest": str(newest)},
        "page": page,
        "rebalances": [rebalance_of(story, names) for story in page.rows],
        "offenders": worst(now.stories),
    }


def rebalance_of(story: Document, names: Names) -> Rebalance:
    outcome = story.get("outcome", "")
    lines = [line.text for line in story_lines(story, names)[1:] if line.depth == 4]
    return Rebalance(
        story["number"],
        story["started_ms"],
        headline(story, names),
        outcome_chip(outcome),
        story.get("took_ms"),
        tuple(lines),
        outcome != "noted",
        utc(story["started_ms"]) if story.get("changed") else "",
    )


def worst(stories: Sequence[Document]) -> list[Offender]:
    """The clients that cost the others most; empty if none is worth naming."""
    found = [
        who
        for who in offenders(stories)
        if who.waited_ms >= WORTH_NAMING_MS or who.expired or who.removed or who.caused >= OFTEN
    ]
    return found[:WORST]


async def records_tab(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    shown = await group_records.values(console, now.group, query)
    return {"facts": facts(console, now, listed, listed.lag if listed else None), **shown}


async def settings_tab(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    group_id = now.group.group_id
    settings = await console.answers.get(("settings", group_id), partial(group_settings, group_id=group_id))
    if settings is not None:
        of_others = "consumer." if now.group.type == SHARE else "share."
        settings = tuple([one for one in settings if one.set_on_group or not one.name.startswith(of_others)])
    return {
        "facts": facts(console, now, listed, listed.lag if listed else None),
        "settings": settings,
        "sources": SOURCES,
    }


async def facts_only(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    return {"facts": facts(console, now, listed, listed.lag if listed else None)}


async def ownership_tab(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    shown = await group_ownership.values(console, now.group.group_id, query)
    return {"facts": facts(console, now, listed, listed.lag if listed else None), **shown}


async def what_if_tab(console: Console, now: GroupNow, listed: GroupRow | None, query: QueryParams) -> dict[str, Any]:
    shown = await group_what_if.values(console, now, now.stories)
    return {"facts": facts(console, now, listed, listed.lag if listed else None), **shown}


SOURCES = {
    ConfigSource.GROUP_CONFIG: "this group",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}
VIEWS = {
    "partitions": partitions_tab,
    "records": records_tab,
    "members": members_tab,
    "rebalances": rebalances_tab,
    "ownership": ownership_tab,
    "what_if": what_if_tab,
    "settings": settings_tab,
}
ROUTES = {"/group": group, "/live/group": live}
