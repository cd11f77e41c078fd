"""One connection's authentication, without IO: request frames go in, and what to send and do comes out.

Before the authentication, a client may send ApiVersions, until one is answered well, then SaslHandshake, then its
mechanism's messages: in SaslAuthenticate, or, after SaslHandshake 0, bare. Anything else ends the connection: without
an answer before the handshake, with one that says ILLEGAL_SASL_STATE after it. A request that is too large for that
costs nothing. Sources: SaslServerAuthenticator.java, KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from msgspec import structs

from kohort.broker.decoding import Decoded, decoded
from kohort.broker.error_answers import error_answer
from kohort.broker.request import CloseConnection
from kohort.broker.security.credentials import Credentials
from kohort.server.security.mechanisms import (
    FAILED,
    Accepted,
    Challenge,
    HashFirst,
    Mechanism,
    Outcome,
    Refused,
    Tokens,
    mechanism_of,
)
from kohort.wire.codec import encode_response
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeResponse

HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36
OF_SASL = frozenset((HANDSHAKE, API_VERSIONS, AUTHENTICATE))
MOST_OTHER = 4_096
"""Bytes of a request of another API that is answered."""
MOST_FRAMES = 20
"""Requests of a client that has not authenticated."""

MOST_SOFTWARE = 256
"""Characters that are kept of the name and the version of a client's software."""

_LENGTH = Struct(">i")


class Terms(NamedTuple):
    """What a listener demands."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    credentials: Credentials
    session_ms: Mapping[str, int]
    """By mechanism: how long an authentication holds; 0 for ever."""
    answer_versions: Callable[[Decoded], Any]
    """Answers ApiVersions."""
    most: Mapping[int, int]
    """The size of the largest request of each API."""
    tokens: Tokens | None = None
    """Verifies those of OAUTHBEARER."""


class Send(NamedTuple):
    data: bytes


class Close(NamedTuple):
    reason: str
    data: bytes = b""
    """To send before."""
    is_failure: bool = False
    """The name or password is wrong: answer and end wait a moment."""


class Done(NamedTuple):
    data: bytes
    user: str
    mechanism: str
    session_ms: int


class Hash(NamedTuple):
    """Compute this outside of the event loop, and give the result to `Conversation.hashed`."""

    compute: Callable[[], Any]


Result = Send | Close | Done | Hash


class Conversation:
    def __init__(self, terms: Terms, again: tuple[str, str] | None = None) -> None:
        """`again`: the user and the mechanism of a connection that authenticates once more."""
        self._terms = terms
        self._again = again
        self._state = HANDSHAKE if again is not None else API_VERSIONS
        self._frames = 0
        self._name = ""
        self._mechanism: Mechanism | None = None
        self._is_bare = False
        self._asked: Decoded | None = None
        self._then: Callable[[Any], Challenge | Accepted | Refused] | None = None
        self.software = ("", "")

    def take(self, frame: bytes) -> Result:
        self._frames += 1
        if self._frames > MOST_FRAMES:
            return Close("too many requests before the authentication")
        if self._is_bare and self._state == AUTHENTICATE:
            return self._evaluated(frame)
        if len(frame) > MOST_OTHER and (key := int.from_bytes(frame[:2], "big")) not in OF_SASL:
            return Close(f"a request of the API {key} before the authentication")
        found = decoded(frame, self._terms.most)
        if isinstance(found, CloseConnection):
            return Close(found.reason)
        if isinstance(found, bytes):  # the answer to an ApiVersions that is too new
            return Send(found) if self._state == API_VERSIONS else Close("ApiVersions after ApiVersions")
        key = found.api.key
        if key == API_VERSIONS and self._state == API_VERSIONS:
            return self._versions(found)
        if key == HANDSHAKE and self._state in (API_VERSIONS, HANDSHAKE):
            return self._handshake(found)
        if key == AUTHENTICATE and self._state == AUTHENTICATE:
            self._asked = structs.replace(found, request=None)  # which may be large
            return self._evaluated(found.request.auth_bytes)
        return self._out_of_order(found)

    def hashed(self, result: Any) -> Result:
        assert self._then is not None
        return self._told(self._then(result))

    def _versions(self, found: Decoded) -> Result:
        answer = self._terms.answer_versions(found)
        if answer.error_code == ErrorCode.NONE:
            self._state = HANDSHAKE
            asked = found.request
            self.software = asked.client_software_name[:MOST_SOFTWARE], asked.client_software_version[:MOST_SOFTWARE]
        return Send(_encoded(found, answer))

    def _handshake(self, found: Decoded) -> Result:
        wanted = found.request.mechanism
        if wanted not in self._terms.mechanisms:
            answer = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=self._terms.mechanisms
            )
            return Close(f"the mechanism {wanted[:40]!r} is not enabled", _encoded(found, answer))
        if self._again is not None and wanted != self._again[1]:
            return Close("the client changes its mechanism", is_failure=True)
        self._name = wanted
        self._mechanism = mechanism_of(wanted, self._terms.credentials, self._terms.plain_users, self._terms.tokens)
        self._state = AUTHENTICATE
        self._is_bare = found.header.api_version == 0
        answer = SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=self._terms.mechanisms)
        return Send(_encoded(found, answer))

    def _out_of_order(self, found: Decoded) -> Result:
        reason = f"{found.api.name} before the authentication"
        is_answered = self._state == AUTHENTICATE or (self._state == HANDSHAKE and found.api.key == AUTHENTICATE)
        if not is_answered:
            return Close(reason)
        error = ErrorCode.ILLEGAL_SASL_STATE
        if found.api.key == AUTHENTICATE:
            answer = SaslAuthenticateResponse(error_code=error, error_message=error.message, auth_bytes=b"")
            return Close(reason, _encoded(found, answer))
        try:
            other = error_answer(found.api, found.request, found.header.api_version, error)
            return Close(reason, _encoded(found, other))
        except ValueError:  # a null of the request that an answer cannot repeat
            return Close(reason)

    def _evaluated(self, message: bytes) -> Result:
        assert self._mechanism is not None
        return self._told(self._mechanism.evaluate(bytes(message)))

    def _told(self, outcome: Outcome) -> Result:
        match outcome:
            case Challenge():
                return Send(self._message(outcome.message))
            case Accepted():
                if self._again is not None and outcome.user != self._again[0]:
                    return self._failed("the client authenticates as another user", outcome.user)
                limits = outcome.rest_ms, self._terms.session_ms.get(self._name, 0)
                session_ms = min(filter(None, limits), default=0)
                return Done(self._message(outcome.message, session_ms), outcome.user, self._name, session_ms)
            case HashFirst():
                self._then = outcome.then
                return Hash(outcome.compute)
        return self._failed(outcome.reason, outcome.user, outcome.told)

    def _failed(self, reason: str, user: str, text: str = FAILED) -> Close:
        told = f"{reason} (user {user!r}, {self._name})" if user else f"{reason} ({self._name})"
        if self._is_bare or self._asked is None:
            return Close(told, is_failure=True)
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
        )
        return Close(told, _encoded(self._asked, answer), is_failure=True)

    def _message(self, message: bytes, session_ms: int = 0) -> bytes:
        if self._is_bare or self._asked is None:
            return _LENGTH.pack(len(message)) + message
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message=None, auth_bytes=message, session_lifetime_ms=session_ms
        )
        return _encoded(self._asked, answer)


def _encoded(found: Decoded, answer: Any) -> bytes:
    return encode_response(answer, found.header.api_version, found.header.correlation_id, api_key=found.api.key)
