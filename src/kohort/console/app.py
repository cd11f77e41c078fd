"""The application: its routes, its static files, its errors."""

from __future__ import annotations

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
from kohort.client.errors import ConnectionFailed, KafkaError, TimedOut
from kohort.console.guard import Guard
from kohort.console.live import Streams
from kohort.console.pages import group, groups, nodes, rebalance, topics
from kohort.console.reading.answers import Answers
from kohort.console.reading.refresher import Refresher
from kohort.console.shared import HERE, Console, console_of, environment

STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
PAGES = (groups, group, rebalance, topics, nodes)


def create_app(
    open_cluster: Callable[[], Cluster],
    bootstrap: str,
    refresher: Refresher,
    *,
    hosts: frozenset[str] = frozenset(),
    ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The application behind its guard. `hosts` are names that requests may use besides loopback's, `ending` says
    whether the console ends: streams do then."""
    versions = {name: hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest()[:12] for name in STATIC}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        answers = Answers(open_cluster)
        app.state.console = Console(bootstrap, refresher, answers, Streams(ending), environment(), versions)
        yield
        answers.close()

    pages = [Route(path, endpoint) for page in PAGES for path, endpoint in page.ROUTES.items()]
    app = Starlette(
        routes=[*pages, Route("/static/{name}", static)],
        exception_handlers={HTTPException: _refused, KafkaError: _failed},
        lifespan=lifespan,
    )
    return Guard(app, hosts)


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404, "there is no such file")
    return FileResponse(HERE / "static" / name, media_type=STATIC[name], headers={"cache-control": FOREVER})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = "there is no such page" if error.detail == "Not Found" else error.detail
    return console_of(request).page(request, "error.html", error.status_code, title="Not found", message=detail)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, KafkaError)
    reached = not isinstance(error, ConnectionFailed | TimedOut)
    title = "The cluster refused the request" if reached else "The cluster does not answer"
    return console_of(request).page(request, "error.html", 502 if reached else 503, title=title, message=error.message)
