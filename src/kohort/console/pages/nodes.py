"""The brokers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from kohort.console.live import Cell, Live
from kohort.console.reading.snapshot import NodeRow, Snapshot
from kohort.console.shared import console_of, head_cells
from kohort.console.words import count


async def nodes(request: Request) -> Response:
    console = console_of(request)
    snapshot = await console.look()
    return console.page(
        request,
        "nodes.html",
        title="Nodes",
        cells={row.node.node_id: cells(row) for row in snapshot.nodes},
        health=health(snapshot),
        live="/live/nodes",
    )


async def live(request: Request) -> Response:
    console = console_of(request)

    async def read() -> Live:
        snapshot = console.refresher.look()
        rows = {str(row.node.node_id): cells(row) for row in snapshot.nodes}
        return Live({"": {**head_cells(snapshot), **health(snapshot)}, **rows})

    return await console.streams.response(request, read)


def cells(row: NodeRow) -> dict[str, Cell]:
    return {
        "controller": "controller" if row.is_controller else "",
        "leads": count(row.leads),
        "coordinates": count(row.coordinates),
    }


def health(snapshot: Snapshot) -> dict[str, Cell]:
    totals = snapshot.totals
    return {
        "leaderless": count(totals.leaderless),
        "behind": count(totals.behind),
        "partitions": count(totals.partitions),
    }


ROUTES = {"/nodes": nodes, "/live/nodes": live}
