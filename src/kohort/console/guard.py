"""Stands before the application: hosts and methods that are served, and the headers of every response.

A page of another site can make a browser send requests here. It cannot read the answers (same-origin policy, CORP), and
nothing is changed by a request, as only GET and HEAD are served. With a name that its DNS gives to 127.0.0.1 it could
read them; so the host of a request must be a known one.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kohort.console.listening import NAMES

METHODS = ("GET", "HEAD")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NO_STORE = "no-store"


class Guard:
    def __init__(self, app: ASGIApp, hosts: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._hosts = NAMES | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", NO_STORE)
            await send(message)

        app = self._app
        if scope["method"] not in METHODS:
            app = PlainTextResponse("the console only reads: GET\n", 405, {"allow": ", ".join(METHODS)})
        elif (host := host_of(Headers(scope=scope).get("host", ""))) not in self._hosts:
            app = PlainTextResponse(f"the console does not serve the host {host!r}; --allow-host names another\n", 421)
        await app(scope, receive, send_with_headers)


def host_of(header: str) -> str:
    """The Host header without its port, and without the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
