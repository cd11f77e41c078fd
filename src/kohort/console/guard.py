"""Stands before the application: hosts, methods and origins that are served, and the headers of every response.

A page of another site can make a browser send requests here. It cannot read the answers (same-origin policy, CORP), and
GET and HEAD change nothing. POST is served where there are forms, and only if the browser says that the request comes
from a page of the console. With a name that its DNS gives to 127.0.0.1 a site could do both; so the host of a request
must be a known one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kohort.console.access import Access
from kohort.console.listening import NAMES, is_address

METHODS = ("GET", "HEAD")
FORMS = (*METHODS, "POST")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send the origin of forms as "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LONGEST_PATH = 200
"""Names are in queries. Numbers in paths are thus short enough for `int`."""
NO_STORE = "no-store"
HSTS = "max-age=31536000"


class Guard:
    def __init__(self, app: ASGIApp, hosts: frozenset[str] = frozenset(), access: Access = Access()) -> None:
        self._app = app
        self._hosts = NAMES | {host.lower() for host in hosts}
        self._access = access
        self._methods = FORMS if access.takes_forms else METHODS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = host_of(headers.get("host", ""))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                made = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    made[name] = value
                if self._access.https and host not in NAMES:  # browsers would want TLS of every port of localhost
                    made["strict-transport-security"] = HSTS
                made.setdefault("cache-control", NO_STORE)
            await send(message)

        app = self._app
        if scope["method"] not in self._methods:
            why = "the console serves" if self._access.takes_forms else "the console only reads:"
            app = PlainTextResponse(f"{why} {', '.join(self._methods)}\n", 405, {"allow": ", ".join(self._methods)})
        elif not self._is_served(host):
            app = PlainTextResponse(f"the console does not serve the host {host!r}; --allow-host names another\n", 421)
        elif len(scope["path"]) > LONGEST_PATH:
            app = PlainTextResponse("there is no such page\n", 404)
        elif scope["method"] == "POST" and not is_own(headers, scope["scheme"]):
            app = PlainTextResponse("the form is not sent by a page of this console; nothing was changed\n", 403)
        await app(scope, receive, send_with_headers)

    def _is_served(self, host: str) -> bool:
        return host in self._hosts or (self._access.by_address and is_address(host))


def is_own(headers: Headers, scheme: str) -> bool:
    """Whether a request comes from a page of the console itself, by the browser's word. All browsers send the origin of
    a POST. A proxy before the console may add TLS."""
    try:
        origin = urlsplit(headers.get("origin", ""))
    except ValueError:
        return False
    return (
        origin.scheme in (("https",) if scheme == "https" else ("http", "https"))
        and origin.netloc.lower() == headers.get("host", "").lower()
        and headers.get("sec-fetch-site", "same-origin") == "same-origin"
    )


def host_of(header: str) -> str:
    """The Host header without its port, and without the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
