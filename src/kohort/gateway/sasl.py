"""A client's login at the upstream cluster, read as it passes: whether it has succeeded, and the user's name.

Passwords are neither checked nor kept. The upstream cluster decides; its last answer says so. A mechanism that is not
known here (GSSAPI) never counts as a success, so its clients cannot use groups. Nor does a login whose user cannot be
read.

A message names the user, and the answer to a later one says that the login has succeeded. So each message waits for the
answer to the one before. A client that sends two logins at once could otherwise succeed with the first and get the name
of the second.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

from kohort.gateway.requests import BARE, LENGTH, Request
from kohort.gateway.rewriting import decoded_answer, decoded_request
from kohort.wire.errors import ProtocolError
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

SCRAM = "SCRAM-"
PLAIN, BEARER = "PLAIN", "OAUTHBEARER"
KNOWN = frozenset((PLAIN, BEARER, "SCRAM-SHA-256", "SCRAM-SHA-512"))
BEARER_TOKEN = re.compile(r"bearer +([\w.-]+)", re.ASCII | re.IGNORECASE)
SERVER_FINAL = b"v="
"""The server's last message of SCRAM, if the password was right (RFC 5802)."""


class Login:
    def __init__(self, user_claim: str = "sub") -> None:
        """`user_claim`: the claim of an OAUTHBEARER token that names the user."""
        self._user_claim = user_claim
        self.user = ""
        self.is_new = False
        """The first login has just succeeded. The one who reads it sets it to false."""
        self._has_succeeded = False
        self._until: float | None = None
        """The end of the session, by the clock of `answered`; None: it has none."""
        self._mechanism = ""
        self._is_first = True
        self._said = ""
        self.is_over = False
        """The last message of the login is answered, and it has succeeded."""
        self._is_waiting = False
        """The last message has no answer yet."""

    def is_valid(self, now: float) -> bool:
        """The client has authenticated, and its session has not ended."""
        return self._has_succeeded and (self._until is None or now < self._until)

    @property
    def is_known(self) -> bool:
        """True if the gateway can read the messages of this mechanism."""
        return self._mechanism in KNOWN

    def begins(self, mechanism: str) -> None:
        """SaslHandshake, the first time or again: until it succeeds, the last success counts. Raises ProtocolError."""
        self._send()
        self._mechanism = mechanism.upper()
        self.is_over = False
        self._is_first = True

    def says(self, message: bytes) -> None:
        """A message of the client in SaslAuthenticate. Raises ProtocolError."""
        self._send()
        if self._is_first:
            self._is_first = False
            self._said = _user(self._mechanism, message, self._user_claim)

    def _send(self) -> None:
        if self._is_waiting:
            raise ProtocolError("a message of a login before the answer to the last one")
        self._is_waiting = True

    def has_begun(self) -> None:
        """An answer to SaslHandshake."""
        self._is_waiting = False

    def answered(self, error: int, message: bytes, lifetime_s: float, now: float) -> None:
        """An answer to SaslAuthenticate. After an error, the upstream broker closes the connection."""
        self._is_waiting = False
        if error:
            self._has_succeeded = False
            return
        is_last = message.startswith(SERVER_FINAL) if self._mechanism.startswith(SCRAM) else not message
        if not is_last or self._mechanism not in KNOWN or not self._said:
            return
        self.is_over = True
        self._until = now + lifetime_s if lifetime_s > 0 else None
        if not self._has_succeeded:
            self._has_succeeded = self.is_new = True
            self.user = self._said


def message_of(request: Request, data: bytes) -> bytes:
    """The client's SASL message, from a SaslAuthenticate request or a bare message. Raises ProtocolError."""
    if request.key == BARE:
        return data[LENGTH.size :]
    found: bytes = decoded_request(request, data, SaslAuthenticateRequest).auth_bytes
    return found


def answer_of(request: Request, data: bytes) -> tuple[int, bytes, float]:
    """The error, the message, and the time until the end of the session in seconds; 0: it has none. A broker that
    refuses a bare message closes the connection. Raises ProtocolError."""
    if request.key == BARE:
        return 0, data[LENGTH.size :], 0.0
    found: SaslAuthenticateResponse = decoded_answer(request, data, SaslAuthenticateResponse)
    return found.error_code, found.auth_bytes, found.session_lifetime_ms / 1000


def _user(mechanism: str, message: bytes, claim: str) -> str:
    """ "" if it cannot be read."""
    text = message.decode(errors="replace")
    if mechanism == PLAIN:
        parts = text.split("\0")
        return parts[1] if len(parts) == 3 else ""
    if mechanism.startswith(SCRAM):
        name = next((part[2:] for part in text.split(",") if part.startswith("n=")), "")
        return name.replace("=2C", ",").replace("=3D", "=")
    if mechanism == BEARER:
        given = [value for name, _, value in (part.partition("=") for part in text.split("\1")) if name == "auth"]
        token = BEARER_TOKEN.fullmatch(given[0]) if len(given) == 1 else None  # of two, brokers may take the other one
        return _subject(token[1], claim) if token is not None else ""
    return ""


def _subject(token: str, claim: str) -> str:
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        name = claims.get(claim, "")
        return name if isinstance(name, str) else ""
    except (IndexError, ValueError, binascii.Error, AttributeError):
        return ""
