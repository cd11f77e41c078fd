"""What all pages share: the snapshot, the answers, the templates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from kohort.cli.groups.wording import duration, instant, plain
from kohort.console.changes.plan import Plans
from kohort.console.live import Cell, Streams
from kohort.console.reading.answers import Answers
from kohort.console.reading.examining import Examinations
from kohort.console.reading.refresher import Refresher
from kohort.console.reading.snapshot import Snapshot
from kohort.console.what_if.answers import WhatIfs
from kohort.console.words import breakable, count, utc

HERE = Path(__file__).parent
THEMES = ("light", "dark")
THEME_COOKIE = "kohort-theme"
FIRST_S = 3.0
"""How long a page waits for the first snapshot, just after the start or a login."""


@dataclass(slots=True)
class Console:
    """What all pages share."""

    bootstrap: str
    refresher: Refresher
    answers: Answers
    streams: Streams
    templates: Environment
    versions: Mapping[str, str]
    """By static file: a part of its hash, which is in its address."""
    what_ifs: WhatIfs
    user: str = ""
    """Who has logged in; empty without a login."""
    token: str = field(default="", repr=False)
    """That the forms of this user have."""
    examinations: Examinations = field(init=False)
    plans: Plans | None = None
    """Changes that were previewed; None if the console only reads."""
    making: dict[Hashable, asyncio.Task[Response]] = field(default_factory=dict)
    """Pages that wait for the cluster, and those that nobody has fetched yet (`kohort.console.soon`)."""

    def __post_init__(self) -> None:
        self.examinations = Examinations(self.answers)

    def close(self) -> None:
        self.refresher.stop()
        self.answers.close()

    async def look(self) -> Snapshot:
        """The snapshot, for a page. One of a large cluster takes longer than FIRST_S; the head of the page says so."""
        until = time.monotonic() + FIRST_S
        while self.refresher.is_first_due and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return self.refresher.look()

    def render(self, template: str, **values: Any) -> Markup:
        """A part of a page, as HTML."""
        return Markup(self.templates.get_template(template).render(**values))

    def page(self, request: Request, template: str, status: int = 200, /, **values: Any) -> Response:
        snapshot = self.refresher.look()
        theme = request.cookies.get(THEME_COOKIE, "")
        html = self.templates.get_template(template).render(
            snapshot=snapshot,
            base=head_cells(snapshot),
            bootstrap=self.bootstrap,
            theme=theme if theme in THEMES else "",
            versions=self.versions,
            query=dict(request.query_params),
            path=request.url.path,
            user=self.user,
            token=self.token,
            may_change=self.plans is not None,
            **{"live": "", "is_outline": False, **values},
        )
        return HTMLResponse(html, status)


def console_of(request: Request) -> Console:
    """That of the request's session; without a login there is one for all."""
    session = getattr(request.state, "session", None)
    return cast(Console, request.app.state.console if session is None else session.console)


def head_cells(snapshot: Snapshot) -> dict[str, Cell]:
    """When the snapshot was read, in the head of every page, and what is wrong."""
    if snapshot.failure:
        when = "yet" if snapshot.taken_ms is None else f"since {instant(snapshot.taken_ms)}"
        failure = f"The cluster could not be read {when}: {plain(snapshot.failure)}"
        return {"read": "not connected", "failure": failure}
    if snapshot.taken_ms is None:
        total = len(snapshot.groups)
        return {"read": f"reading: {snapshot.described:,} of {total:,} groups" if total else "reading", "failure": ""}
    return {"read": f"read {instant(snapshot.taken_ms)[11:]}", "failure": ""}


def environment() -> Environment:
    """Escapes all that templates print, and replaces control characters, which could turn text around."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.filters.update(count=count, duration=duration, instant=instant, utc=utc, key=key_of, name=breakable)
    made.globals["address"] = address
    made.globals["parts"] = made.get_template("parts.html").module
    made.globals["field"] = made.get_template("fields.html").module
    return made


def _printable(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def key_of(name: str) -> str:
    """A name as the key of a row: ASCII, so that a page and its stream have the same."""
    return quote(name, safe="")


def address(path: str, query: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """A path with a query; a change to None removes a parameter."""
    merged = {name: value for name, value in {**(query or {}), **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(merged)}" if merged else path
