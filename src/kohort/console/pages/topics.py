"""The list of topics, the worst lag of a group first; one topic with the groups that have committed offsets for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kohort.console.live import Cell, Live
from kohort.console.paging import Order, Page, ordered, page_of, wanted_order, wanted_page, wanted_search
from kohort.console.reading.snapshot import GroupRow, Snapshot, TopicRow
from kohort.console.shared import console_of, head_cells, key_of
from kohort.console.words import count, state_chip

COLUMNS: dict[str, Callable[[TopicRow], Any]] = {
    "topic": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "groups": lambda row: len(row.groups),
    "lag": lambda row: row.lag,
}
DEFAULT = Order("lag", True)

Reader = tuple[GroupRow, int | None]
READER_COLUMNS: dict[str, Callable[[Reader], Any]] = {
    "group": lambda reader: reader[0].group_id,
    "state": lambda reader: state_chip(reader[0].state).label,
    "members": lambda reader: reader[0].members,
    "lag": lambda reader: reader[1],
}


async def topics(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    snapshot = await console.look()
    shown = found(snapshot, query)
    return console.page(
        request,
        "topics.html",
        title="Topics",
        page=shown,
        cells={row.name: cells(row) for row in shown.rows},
        order=wanted_order(query, COLUMNS, DEFAULT),
        search=wanted_search(query),
        internal=sum(row.internal for row in snapshot.topics.values()),
        with_internal="internal" in query,
        live="/live/topics",
    )


async def live_topics(request: Request) -> Response:
    console = console_of(request)
    shown = [row.name for row in found(console.refresher.look(), request.query_params).rows]

    async def read() -> Live:
        snapshot = console.refresher.look()
        rows = {key_of(name): cells(snapshot.topics[name]) for name in shown if name in snapshot.topics}
        return Live({"": head_cells(snapshot), **rows})

    return await console.streams.response(request, read)


def found(snapshot: Snapshot, query: QueryParams) -> Page[TopicRow]:
    search, internal = wanted_search(query).lower(), "internal" in query
    order = wanted_order(query, COLUMNS, DEFAULT)
    rows = [row for row in snapshot.topics.values() if search in row.name.lower() and (internal or not row.internal)]
    return page_of(ordered(rows, COLUMNS[order.column], order.down, lambda row: row.name), wanted_page(query))


def cells(row: TopicRow) -> dict[str, Cell]:
    return {"partitions": count(row.partitions), "groups": count(len(row.groups)), "lag": count(row.lag)}


async def topic(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    snapshot = await console.look()
    row = snapshot.topics.get(query.get("name", ""))
    if row is None:
        raise HTTPException(404, f"topic {query.get('name', '')} does not exist, or is newer than what was read last")
    shown = readers(snapshot, row, query)
    return console.page(
        request,
        "topic.html",
        title=row.name,
        topic=row,
        page=shown,
        cells={group.group_id: reader_cells(group, lag) for group, lag in shown.rows},
        order=wanted_order(query, READER_COLUMNS, DEFAULT),
        live="/live/topic",
    )


async def live_topic(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    name = query.get("name", "")
    row = console.refresher.look().topics.get(name)
    shown = [] if row is None else [group.group_id for group, _ in readers(console.refresher.look(), row, query).rows]

    async def read() -> Live:
        snapshot = console.refresher.look()
        lags = dict(snapshot.topics[name].groups) if name in snapshot.topics else {}
        rows = {
            key_of(group_id): reader_cells(snapshot.groups[group_id], lags.get(group_id))
            for group_id in shown
            if group_id in snapshot.groups
        }
        return Live({"": head_cells(snapshot), **rows})

    return await console.streams.response(request, read)


def readers(snapshot: Snapshot, row: TopicRow, query: QueryParams) -> Page[Reader]:
    order = wanted_order(query, READER_COLUMNS, DEFAULT)
    rows = [(snapshot.groups[group_id], lag) for group_id, lag in row.groups if group_id in snapshot.groups]
    chosen = ordered(rows, READER_COLUMNS[order.column], order.down, lambda reader: reader[0].group_id)
    return page_of(chosen, wanted_page(query))


def reader_cells(group: GroupRow, lag: int | None) -> dict[str, Cell]:
    return {"state": state_chip(group.state), "members": count(group.members), "lag": count(lag)}


ROUTES = {"/topics": topics, "/live/topics": live_topics, "/topic": topic, "/live/topic": live_topic}
