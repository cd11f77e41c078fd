"""The application: its routes, its static files, its errors."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed, ConnectionFailed, KafkaError, TimedOut
from kohort.console import login
from kohort.console.access import Access, OpenCluster
from kohort.console.changes import screens
from kohort.console.changes.plan import Plans
from kohort.console.forms import new_token
from kohort.console.guard import Guard
from kohort.console.live import Streams
from kohort.console.login import Entrance
from kohort.console.pages import doctor, group, groups, messages, nodes, rebalance, topics, users
from kohort.console.reading.answers import Answers
from kohort.console.reading.refresher import Refresher
from kohort.console.shared import HERE, Console, console_of, environment
from kohort.console.soon import outline, soon
from kohort.console.what_if.answers import WhatIfs

STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
SWEEP_S = 60.0
FOREVER = "public, max-age=31536000, immutable"
PAGES = (groups, doctor, group, rebalance, topics, messages, nodes, users)
OUTLINES = {"/group": group.outline}


def create_app(
    open_cluster: Callable[[], Cluster],
    bootstrap: str,
    refresher: Refresher,
    *,
    hosts: frozenset[str] = frozenset(),
    ending: Callable[[], bool] = lambda: False,
    access: Access = Access(),
    entrance: Entrance | None = None,
) -> ASGIApp:
    """The application behind its guard. `hosts` are names that requests may use besides loopback's, `ending` says
    whether the console ends: streams do then. With an `entrance`, users log in, and `open_cluster` and `refresher` are
    not used: the pages of a user have the user's own."""
    versions = {name: hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest()[:12] for name in STATIC}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        streams, templates, what_ifs = Streams(ending), environment(), WhatIfs()

        def console(open_cluster: OpenCluster, refresher: Refresher, user: str, token: str) -> Console:
            plans = Plans() if access.allow_changes else None
            answers = Answers(open_cluster)
            shared = (streams, templates, versions, what_ifs)
            return Console(bootstrap, refresher, answers, *shared, user=user, token=token, plans=plans)

        app.state.access, app.state.entrance = access, entrance
        app.state.console = console(open_cluster, refresher, "", new_token())
        sweeping = None
        if entrance is not None:
            entrance.make_console = lambda opens, user, token: console(opens, Refresher(opens), user, token)
            sweeping = asyncio.create_task(_sweep(entrance))
        yield
        if entrance is not None and sweeping is not None:
            sweeping.cancel()
            entrance.sessions.close()
        await what_ifs.close()
        app.state.console.answers.close()

    endpoints = {path: made for page in (*PAGES, screens) for path, made in page.ROUTES.items()}
    pages = [
        Route(path, made if path.startswith("/live/") else soon(made, OUTLINES.get(path, outline)))
        for path, made in endpoints.items()
    ]
    logins = login.ROUTES if entrance is not None else []
    app: ASGIApp = Starlette(
        routes=[*pages, *screens.FORMS, *logins, Route("/static/{name}", static)],
        exception_handlers={HTTPException: _refused, KafkaError: _failed},
        lifespan=lifespan,
    )
    return Guard(app if entrance is None else login.Gate(app, entrance), hosts, access)


async def _sweep(entrance: Entrance) -> None:
    """End sessions that are over: their connections, and the threads that read for them."""
    while True:
        await asyncio.sleep(SWEEP_S)
        entrance.sessions.sweep()
        await entrance.check_again()


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404, "there is no such file")
    return FileResponse(HERE / "static" / name, media_type=STATIC[name], headers={"cache-control": FOREVER})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = "there is no such page" if error.detail == "Not Found" else error.detail
    title = "Not found" if error.status_code == 404 else "Refused"
    return console_of(request).page(request, "error.html", error.status_code, title=title, message=detail)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, KafkaError)
    session = getattr(request.state, "session", None)
    if isinstance(error, AuthenticationFailed) and session is not None:  # such as a password that was changed
        return login.leave(request, session)
    reached = not isinstance(error, ConnectionFailed | TimedOut)
    title = "The cluster refused the request" if reached else "The cluster does not answer"
    return console_of(request).page(request, "error.html", 502 if reached else 503, title=title, message=error.message)
