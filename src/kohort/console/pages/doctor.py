"""What is wrong with groups, and what to do: the findings of `kohort groups doctor`.

The page comes at once, and its stream brings the findings."""

from __future__ import annotations

from collections import Counter
from typing import Any

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.doctor.case import ORDER, Severity
from kohort.console.live import Live
from kohort.console.paging import wanted_search
from kohort.console.reading.examining import MOST_GROUPS
from kohort.console.reading.snapshot import Snapshot
from kohort.console.shared import Console, console_of, head_cells
from kohort.console.words import Chip

SHOWN = 100
"""Findings of a page."""
CHIPS = {
    Severity.CRITICAL: Chip("Critical", "gone"),
    Severity.WARNING: Chip("Warning", "busy"),
    Severity.INFO: Chip("Info", "idle"),
}
LEVELS = {"critical": "Critical", "warning": "Warnings and worse", "info": "All"}


async def doctor(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    snapshot = await console.look()
    return console.page(
        request,
        "doctor.html",
        title="Doctor",
        search=wanted_search(query),
        level=wanted_level(query).value,
        levels=LEVELS,
        findings=findings(console, snapshot, query),
        live="/live/doctor",
    )


async def live(request: Request) -> Response:
    console, query = console_of(request), request.query_params

    async def read() -> Live:
        snapshot = console.refresher.look()
        return Live({"": dict(head_cells(snapshot))}, {"findings": findings(console, snapshot, query)})

    return await console.streams.response(request, read)


def wanted_level(query: QueryParams) -> Severity:
    level = query.get("level", "")
    return Severity(level) if level in LEVELS else Severity.WARNING


def findings(console: Console, snapshot: Snapshot, query: QueryParams) -> Markup:
    search = wanted_search(query).lower()
    rows = [row for row in snapshot.groups.values() if search in row.group_id.lower()]
    examined = console.examinations.look(search, rows) if snapshot.number else None
    shown: dict[str, Any] = {"findings": [], "counts": []}
    if examined is not None:
        counts = Counter(one.severity for one in examined.findings)
        wanted = ORDER[: ORDER.index(wanted_level(query)) + 1]
        shown = {
            "findings": [one for one in examined.findings if one.severity in wanted],
            "counts": [(CHIPS[severity].label.lower(), counts[severity]) for severity in ORDER if counts[severity]],
        }
    return console.render(
        "findings.html", examined=examined, of=len(rows), chips=CHIPS, most=SHOWN, limit=MOST_GROUPS, **shown
    )


ROUTES = {"/doctor": doctor, "/live/doctor": live}
