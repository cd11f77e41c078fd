"""Pages come soon: if a page is not made within SOON_S, because the cluster has not answered, its outline comes.

The outline has what the snapshot knows of a group: state, members, lag. The page is made to its end nevertheless, and
kept for KEPT_S. The script of the outline asks for it with the header `Prefer: wait` (RFC 7240), which is answered when
the page is made, and puts its content in place of the outline's. Without JavaScript, the browser loads the page again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from kohort.console.changes.kinds import CHANGES
from kohort.console.shared import THEME_COOKIE, Console, address, console_of

SOON_S = 0.1
KEPT_S = 10.0
MOST = 50
"""Pages that are under way or kept; further ones come when they are made."""
FOLLOWS = "The rest of the page follows by itself."
UNANSWERED = f"The cluster has not answered yet. {FOLLOWS}"
HEADINGS = {"/": "Groups", "/doctor": "Doctor", "/topics": "Topics", "/nodes": "Nodes", "/access": "Access"}
CHANGE = "/change/"

Endpoint = Callable[[Request], Awaitable[Response]]
Outline = Callable[[Request], Response]


def soon(make: Endpoint, outline: Outline) -> Endpoint:
    """The endpoint of a page that `make` makes. Requests for a page that is under way get the same one."""

    async def page(request: Request) -> Response:
        console, key = console_of(request), (str(request.url), request.cookies.get(THEME_COOKIE))
        making = console.making.get(key)
        if making is None:
            if len(console.making) >= MOST:
                return await make(request)
            making = console.making[key] = asyncio.ensure_future(make(request))
            making.add_done_callback(partial(_made, console, key))
        waits = "wait" in request.headers.get("prefer", "")
        await asyncio.wait((making,), timeout=None if waits else SOON_S)
        if not making.done():
            return outline(request)
        _forget(console, key, making)
        return making.result()

    return page


def _made(console: Console, key: Hashable, making: asyncio.Task[Response]) -> None:
    if not making.cancelled():
        making.exception()  # whoever waits has it; without one asyncio would complain
    asyncio.get_running_loop().call_later(KEPT_S, _forget, console, key, making)


def _forget(console: Console, key: Hashable, making: asyncio.Task[Response]) -> None:
    if console.making.get(key) is making:
        del console.making[key]


def outline(request: Request) -> Response:
    """That of any page: its place and its heading."""
    query, path = request.query_params, request.url.path
    groups, topics = ("Groups", "/"), ("Topics", "/topics")
    heading, crumbs = HEADINGS.get(path, ""), []
    if path == "/group":
        heading, crumbs = query.get("id", ""), [groups]
    elif path == "/rebalance":
        group_id = query.get("group", "")
        crumbs = [groups, (group_id, address("/group", id=group_id, tab="rebalances"))]
        heading = f"Rebalance {query.get('number', '')}"
    elif path == "/topic":
        heading, crumbs = query.get("name", ""), [topics]
    elif path == "/messages":
        topic = query.get("topic", "")
        heading, crumbs = "Messages", [topics, (topic, address("/topic", name=topic))]
    elif path.startswith(CHANGE):
        heading = CHANGES[path.removeprefix(CHANGE)].title
    return console_of(request).page(
        request, "outline.html", title=heading, heading=heading, crumbs=crumbs, reading=UNANSWERED, is_outline=True
    )
