"""The list of groups: searched, filtered by state, the worst lag first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.wording import plain
from kohort.console.lag_lines import small
from kohort.console.live import Cell, Live
from kohort.console.paging import Order, ordered, page_of, wanted_order, wanted_page, wanted_search
from kohort.console.reading.snapshot import GroupRow, Snapshot
from kohort.console.reading.trends import Trends
from kohort.console.shared import console_of, head_cells, key_of
from kohort.console.words import STATES, age, count, state_chip

COLUMNS: dict[str, Callable[[GroupRow], Any]] = {
    "group": lambda row: row.group_id,
    "state": lambda row: state_chip(row.state).label,
    "members": lambda row: row.members,
    "protocol": lambda row: (row.type, row.protocol),
    "partitions": lambda row: row.partitions,
    "lag": lambda row: row.lag,
    "time": lambda row: row.age_ms,
}
DEFAULT = Order("lag", True)


async def groups(request: Request) -> Response:
    console = console_of(request)
    snapshot = await console.look()
    query = request.query_params
    shown = page_of(found(snapshot, query), wanted_page(query))
    states = snapshot.totals.states
    return console.page(
        request,
        "groups.html",
        title="Groups",
        page=shown,
        cells={row.group_id: cells(row) for row in shown.rows},
        courses=courses(console.refresher.trends, (row.group_id for row in shown.rows)),
        head=summary(snapshot),
        order=wanted_order(query, COLUMNS, DEFAULT),
        search=wanted_search(query),
        state=query.get("state", ""),
        states=[(state, state_chip(state).label, states[state]) for state in sorted(states, key=_place)],
        course_of=course_of,
        live="/live/groups",
    )


async def live(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    shown = [row.group_id for row in page_of(found(console.refresher.look(), query), wanted_page(query)).rows]

    drawn = -1
    regions: dict[str, str] = {}

    async def read() -> Live:
        nonlocal drawn, regions
        snapshot, trends = console.refresher.look(), console.refresher.trends
        rows = {key_of(name): cells(snapshot.groups[name]) for name in shown if name in snapshot.groups}
        if drawn != trends.number:
            drawn, regions = trends.number, courses(trends, shown)
        return Live({"": {**head_cells(snapshot), **summary(snapshot)}, **rows}, regions)

    return await console.streams.response(request, read)


def found(snapshot: Snapshot, query: QueryParams) -> list[GroupRow]:
    """The groups that the query asks for, in its order."""
    search, state = wanted_search(query).lower(), query.get("state", "")
    order = wanted_order(query, COLUMNS, DEFAULT)
    rows = [
        row for row in snapshot.groups.values() if search in row.group_id.lower() and (not state or row.state == state)
    ]
    return ordered(rows, COLUMNS[order.column], order.down, lambda row: row.group_id)


def cells(row: GroupRow) -> dict[str, Cell]:
    return {
        "state": state_chip(row.state),
        "members": count(row.members),
        "protocol": plain(" · ".join(part for part in (row.type, row.protocol) if part) or row.protocol_type),
        "partitions": count(row.partitions),
        "lag": count(row.lag),
        "time": age(row.age_ms, told=row.age_told),
    }


def courses(trends: Trends, shown: Iterable[str]) -> dict[str, str]:
    """The course of each group's lag, by the name of its region."""
    return {course_of(group_id): small(trends.of(group_id)) for group_id in shown}


def course_of(group_id: str) -> str:
    return f"course/{key_of(group_id)}"


def summary(snapshot: Snapshot) -> dict[str, Cell]:
    states = snapshot.totals.states
    return {
        "groups": count(len(snapshot.groups)),
        "busy": count(sum(states[state] for state in states if state_chip(state).kind == "busy")),
        "total-lag": count(snapshot.totals.lag),
    }


def _place(state: str) -> int:
    return list(STATES).index(state) if state in STATES else len(STATES)


ROUTES = {"/": groups, "/live/groups": live}
