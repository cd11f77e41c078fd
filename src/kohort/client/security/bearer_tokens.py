"""Where bearer tokens come from: OIDC client credentials, a file, a callable of the program, or unsecured for tests.

A source's `token(timeout_ms)` may block, because it sends an HTTP request or reads a file. The process caches an OIDC
token for four fifths of its lifetime, so that a hundred connections need one request. A callable is called for each
authentication and may cache by itself.

`Unsecured` makes a token without a signature, as Kafka's own login module does for development. A broker accepts it
only if it is configured to accept unsigned tokens.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.client.errors import AuthenticationFailed, ConnectionFailed

DEFAULT_LIFE_S = 300
"""The lifetime of a token whose server does not name it."""
MAX_ANSWER_BYTES = 1024 * 1024

_kept: dict[Oidc, tuple[str, float]] = {}
_asking = threading.Lock()


@dataclass(frozen=True, slots=True)
class Oidc:
    """The client credentials grant (RFC 6749, 4.4) at a token endpoint, with HTTP Basic authentication."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_location: str | None = None
    """The file of certificate authorities for the endpoint; None: the system's."""

    def token(self, timeout_ms: int) -> str:
        """Raises AuthenticationFailed, ConnectionFailed."""
        with _asking:
            kept = _kept.get(self)
            if kept is not None and time.monotonic() < kept[1]:
                return kept[0]
            token, life_s = self._ask(timeout_ms / 1000)
            _kept[self] = token, time.monotonic() + life_s * 0.8
            return token

    def forget(self) -> None:
        """Drop the cached token, because the broker refused it."""
        with _asking:
            _kept.pop(self, None)

    def _ask(self, timeout_s: float) -> tuple[str, float]:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
        request = urllib.request.Request(self.url, urllib.parse.urlencode(form).encode(), headers)
        try:
            context = ssl.create_default_context(cafile=self.ca_location) if self.url.startswith("https:") else None
            opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
            with opener.open(request, timeout=timeout_s) as answer:
                return _parse_grant(answer.read(MAX_ANSWER_BYTES), self.url)
        except urllib.error.HTTPError as error:
            if 300 <= error.code < 400:
                why = f"the token endpoint answered HTTP {error.code}, a redirect; the secret is sent nowhere else"
                raise AuthenticationFailed(self.url, why) from None
            if error.code >= 500 or error.code == 429:
                raise ConnectionFailed(self.url, f"the token endpoint answered HTTP {error.code}") from None
            raise AuthenticationFailed(
                self.url, f"the token endpoint answered HTTP {error.code}{_error_code(error)}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(self.url, f"no token: {getattr(error, 'reason', None) or error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the Authorization header to the host that a redirect names."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file that another program updates, as Kubernetes does; read for each authentication."""

    path: str

    def token(self, timeout_ms: int) -> str:
        """Raises AuthenticationFailed."""
        try:
            with open(self.path, encoding="ascii") as file:
                return file.read(MAX_ANSWER_BYTES).strip()
        except (OSError, UnicodeError) as error:
            raise AuthenticationFailed(self.path, f"no token could be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Unsecured:
    """A JSON web token without a signature (RFC 7515, `alg` none). For tests."""

    principal: str
    principal_claim: str = "sub"
    scope: tuple[str, ...] = ()
    life_s: int = 3600

    def token(self, timeout_ms: int) -> str:
        now = time.time()
        claims: dict[str, object] = {self.principal_claim: self.principal, "iat": now, "exp": now + self.life_s}
        if self.scope:
            claims["scope"] = list(self.scope)
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


@dataclass(frozen=True, slots=True)
class Provided:
    """A callable of the program that returns a token; the program gets what it raises."""

    provider: Callable[[], str]

    def token(self, timeout_ms: int) -> str:
        return self.provider()


TokenSource = Oidc | TokenFile | Unsecured | Provided


def _parse_grant(body: bytes, url: str) -> tuple[str, float]:
    try:
        answer = json.loads(body)
        token = answer["access_token"]
        if not isinstance(token, str):
            raise TypeError
        return token, float(answer.get("expires_in", DEFAULT_LIFE_S))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AuthenticationFailed(url, "the token endpoint's answer has no access_token") from None


def _error_code(error: urllib.error.HTTPError) -> str:
    """RFC 6749's error code, if the answer has one. Nothing else of the answer, which may repeat the request."""
    try:
        code = json.loads(error.read(MAX_ANSWER_BYTES))["error"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" ({code})" if isinstance(code, str) and code.replace("_", "").isalnum() else ""


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
