"""The login: a user's own name and password of the cluster, or a bearer token, tried at the cluster.

Who is not logged in gets the login page, static files and nothing else. Passwords and tokens are in the user's clients
alone. A session with a token ends when the token expires, at the latest.

Failed logins are slow and few: an answer takes FAILED_S at least, and within WINDOW_S there are at most PER_USER
attempts of a user from an address, PER_ADDRESS of an address and IN_ALL of all. What is above is refused without
asking the cluster. Attempts under way count as failed ones.

So that nobody keeps others out with failed logins, a user who has logged in from an address within KNOWN_S has only the
first limit there. Addresses that one machine can choose freely count as one (`network_of`).

The deletion of a user at the cluster does not end connections there, so the cluster is asked again and again whether it
still takes those who have sessions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from anyio import CapacityLimiter, to_thread
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kohort.client.errors import AuthenticationFailed, KafkaError
from kohort.console import audit
from kohort.console.access import OpenAs, OpenCluster
from kohort.console.bearer import claims_of
from kohort.console.door import network_of
from kohort.console.forms import Form, check_token, new_token, read_form
from kohort.console.sessions import LIFE_S, Session, Sessions
from kohort.console.shared import Console, address, console_of
from kohort.wire.errors import ErrorCode

WINDOW_S = 300.0
PER_USER = 5
PER_ADDRESS = 20
IN_ALL = 100
KNOWN_S = 7 * 86_400.0
MOST_KNOWN = 1_000
FAILED_S = 1.0
AT_ONCE = 4
LONGEST = 250
"""Characters of a name; a password may have as many as a form."""
TOKEN = "bearer"
"""The field of a bearer token; `token` is that of a form."""
SAFE_COOKIE, COOKIE = "__Host-kohort-session", "kohort-session"
"""The first one where the browser uses TLS: no other host and no plain connection can set it."""
LOGIN, LOGOUT, OVER = "/login", "/logout", "/login?over=1"

Pause = Callable[[float], Awaitable[None]]
MakeConsole = Callable[[OpenCluster, str, str], Console]
"""The console of a user, with the token of its forms."""


class Attempt(NamedTuple):
    at: float
    address: str
    user: str


class Attempts:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: deque[Attempt] = deque()
        self._known: dict[tuple[str, str], float] = {}
        """When users have logged in from addresses, the latest last."""

    def begin(self, address: str, user: str) -> Attempt | float:
        """An attempt, which counts as failed until it has succeeded; or how many seconds to wait for the next one."""
        now, address = self._clock(), network_of(address)
        while self._failed and now - self._failed[0].at >= WINDOW_S:
            self._failed.popleft()
        same_address = [one for one in self._failed if one.address == address]
        same_user = [one for one in same_address if one.user == user]
        limits = [(same_user, PER_USER)]
        if now - self._known.get((address, user), -math.inf) >= KNOWN_S:
            limits += [(same_address, PER_ADDRESS), (list(self._failed), IN_ALL)]
        for found, most in limits:
            if len(found) >= most:
                return WINDOW_S - (now - found[len(found) - most].at)
        attempt = Attempt(now, address, user)
        self._failed.append(attempt)
        return attempt

    def forget(self, attempt: Attempt) -> None:
        """It says nothing about a password."""
        if attempt in self._failed:
            self._failed.remove(attempt)

    def succeeded(self, attempt: Attempt) -> None:
        """The user's earlier failures from this address are forgotten, too."""
        who = (attempt.address, attempt.user)
        self._failed = deque(one for one in self._failed if (one.address, one.user) != who)
        self._known.pop(who, None)
        self._known[who] = self._clock()
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]


class Entrance:
    """What the login needs, for the life of the console."""

    def __init__(
        self,
        open_as: OpenAs,
        *,
        user_claim: str = "",
        clock: Callable[[], float] = time.monotonic,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Users log in with bearer tokens if there is a `user_claim`: the claim with the user's name."""
        self.open_as = open_as
        self.user_claim = user_claim
        self.sessions = Sessions(clock)
        self.attempts = Attempts(clock)
        self.pause = pause
        self.limit: CapacityLimiter | None = None
        self.make_console: MakeConsole

    async def check(self, open_cluster: OpenCluster) -> None:
        """Raises KafkaError if the cluster does not take the user's clients."""
        if self.limit is None:
            self.limit = CapacityLimiter(AT_ONCE)
        await to_thread.run_sync(_reach, open_cluster, abandon_on_cancel=True, limiter=self.limit)

    async def check_again(self) -> None:
        """End the sessions of users whom the cluster no longer takes: deleted ones, and those with a new password."""
        for session in self.sessions.living():
            try:
                await self.check(session.console.answers.open_cluster)
            except AuthenticationFailed as error:
                if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                    self.sessions.end(session)
                    audit.note("session ended", by_user=session.console.user, reason=error.why)
            except KafkaError:  # it says nothing about the users; the next time does
                return


def _reach(open_cluster: OpenCluster) -> None:
    with open_cluster() as cluster:
        cluster.nodes()


class Gate:
    """Lets through who has a session, and to the login page."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._sessions = entrance.sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not scope["path"].startswith("/static/"):
            is_live = scope["path"].startswith("/live/")
            session = session_of(HTTPConnection(scope), self._sessions, uses=not is_live)
            if session is not None:
                scope.setdefault("state", {})["session"] = session
            elif is_live:
                app = PlainTextResponse("log in first\n", 401)
            elif scope["path"] != LOGIN:
                app = RedirectResponse(self._login(scope), 303)
        await app(scope, receive, send)

    def _login(self, scope: Scope) -> str:
        if scope["method"] == "POST":
            return OVER
        wanted = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return address(LOGIN, next=None if wanted == "/" else wanted)


def session_of(connection: HTTPConnection, sessions: Sessions, *, uses: bool) -> Session | None:
    # A page without TLS of the same host could set the other cookie, and so put a user into a session of its own.
    for name in (SAFE_COOKIE,) if connection.url.scheme == "https" else (SAFE_COOKIE, COOKIE):
        if (token := connection.cookies.get(name)) and (session := sessions.find(token, uses=uses)) is not None:
            return session
    return None


def own_address(text: str) -> str:
    """The address of a page of the console to go on to; the first page for anything else."""
    is_path = text.startswith("/") and not text.startswith("//") and text.isprintable() and "\\" not in text
    return text if is_path and not text.startswith((LOGIN, LOGOUT)) else "/"


class Given(NamedTuple):
    """What a user logs in with: for a session of at most `life_s`."""

    user: str
    secret: str
    life_s: float


class Unusable(Exception):
    """The cluster need not be asked: the text says what is wrong with the field."""

    def __init__(self, problem: str, field: str, status: int = 400) -> None:
        super().__init__(problem)
        self.field = field
        self.status = status


def given_in(form: Form, user_claim: str) -> Given:
    """The name and the password, or with a `user_claim` the bearer token. Raises Unusable."""
    if not user_claim:
        for field in ("user", "password"):
            if not form.get(field):
                raise Unusable(f"Write the {field}.", field)
        return Given(form["user"], form["password"], LIFE_S)
    token = form.get(TOKEN, "").strip()
    if not token:
        raise Unusable("Paste the token.", TOKEN)
    try:
        claims = claims_of(token, user_claim)
    except ValueError as error:
        raise Unusable(str(error), TOKEN) from None
    life_s = claims.expires_s - time.time()
    if life_s <= 0:
        raise Unusable("The token has expired.", TOKEN, 403)
    return Given(claims.user, token, min(life_s, LIFE_S))


# -- pages


async def login(request: Request) -> Response:
    query = request.query_params
    problem = "The session is over. Nothing was changed." if "over" in query else ""
    return _page(request, own_address(query.get("next", "")), problem=problem)


async def log_in(request: Request) -> Response:
    entrance = _entrance(request)
    form = await read_form(request)
    wanted = own_address(form.get("next", ""))
    try:
        user, secret, life_s = given_in(form, entrance.user_claim)
    except Unusable as unusable:
        return _page(request, wanted, form.get("user", ""), str(unusable), unusable.field, status=unusable.status)
    host = request.client.host if request.client else "-"
    attempt = entrance.attempts.begin(host, user)
    if not isinstance(attempt, Attempt):
        problem = f"There were too many failed logins. Try again in {math.ceil(attempt / 60)} min."
        page = _page(request, wanted, user, problem, status=429)
        page.headers["retry-after"] = str(math.ceil(attempt))
        return page
    began = time.monotonic()
    open_cluster = entrance.open_as(user, secret)
    try:
        if len(user) > LONGEST or "\0" in user + secret:
            raise AuthenticationFailed("", "no such user", ErrorCode.SASL_AUTHENTICATION_FAILED)
        await entrance.check(open_cluster)
    except AuthenticationFailed as error:
        await entrance.pause(max(FAILED_S - (time.monotonic() - began), 0))
        audit.note("login refused", by_user=user, by_host=host, reason=error.why)
        if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            which, field = ("token", TOKEN) if entrance.user_claim else ("user and password", "password")
            return _page(request, wanted, user, f"The cluster refused this {which}.", field, status=403)
        return _page(request, wanted, user, f"The cluster refused the login: {error.message}.", status=502)
    except KafkaError as error:
        entrance.attempts.forget(attempt)
        return _page(request, wanted, user, f"The cluster does not answer: {error.message}.", status=503)
    entrance.attempts.succeeded(attempt)
    if (former := session_of(request, entrance.sessions, uses=False)) is not None:
        entrance.sessions.end(former)
    user_console = entrance.make_console(open_cluster, user, new_token())
    user_console.refresher.start()
    token = entrance.sessions.begin(user_console, life_s)
    audit.note("login", by_user=user, by_host=host)
    response = RedirectResponse(wanted, 303)
    # A proxy before the console may add TLS: the origin of the form says so.
    is_safe = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
    response.set_cookie(
        SAFE_COOKIE if is_safe else COOKIE, token, path="/", secure=is_safe, httponly=True, samesite="strict"
    )
    return response


async def log_out(request: Request) -> Response:
    console, session = console_of(request), request.state.session
    check_token(await read_form(request), console.token)
    audit.note("logout", by_user=console.user, by_host=request.client.host if request.client else "-")
    return leave(request, session, LOGIN)


def leave(request: Request, session: Session, to: str = OVER) -> Response:
    """End a session, and go to the login page."""
    _entrance(request).sessions.end(session)
    response = RedirectResponse(to, 303)
    for name in {SAFE_COOKIE, COOKIE} & request.cookies.keys():
        response.delete_cookie(name, path="/", secure=name == SAFE_COOKIE, httponly=True, samesite="strict")
    return response


def _entrance(request: Request) -> Entrance:
    found: Entrance = request.app.state.entrance
    return found


def _page(
    request: Request, wanted: str, user: str = "", problem: str = "", field: str = "", *, status: int = 200
) -> Response:
    """`field`: the one that is wrong."""
    console: Console = request.app.state.console
    return console.page(
        request,
        "login.html",
        status,
        title=f"{'Error: ' if problem else ''}Log in",
        name=user[:LONGEST],
        next=wanted,
        problem=problem,
        field=field,
        by_token=bool(_entrance(request).user_claim),
    )


ROUTES = [
    Route(LOGIN, login, methods=["GET"]),
    Route(LOGIN, log_in, methods=["POST"]),
    Route(LOGOUT, log_out, methods=["POST"]),
]
