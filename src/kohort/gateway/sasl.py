"""A client's login at the upstream cluster, read as it passes: whether it is over, and the user's name.

Passwords are neither checked nor kept. The upstream cluster decides; its last answer says so. A mechanism that is not
known here (GSSAPI) never counts as over, so its clients cannot use groups.
"""

from __future__ import annotations

import base64
import binascii
import json

SCRAM = "SCRAM-"
PLAIN, BEARER = "PLAIN", "OAUTHBEARER"
KNOWN = frozenset((PLAIN, BEARER, "SCRAM-SHA-256", "SCRAM-SHA-512"))
SERVER_FINAL = b"v="
"""The server's last message of SCRAM, if the password was right (RFC 5802)."""


class Login:
    def __init__(self) -> None:
        self.user = ""
        self.is_new = False
        """The first login has just succeeded. The one who reads it sets it to false."""
        self._has_succeeded = False
        self._until: float | None = None
        """The end of the session, by the clock of `answered`; None: it has none."""
        self._mechanism = ""
        self._is_first = True
        self._said = ""

    def is_over(self, now: float) -> bool:
        """The client has authenticated, and its session has not ended."""
        return self._has_succeeded and (self._until is None or now < self._until)

    def begins(self, mechanism: str) -> None:
        """The first time, or again: until it succeeds, the last success counts."""
        self._mechanism = mechanism.upper()
        self._is_first = True

    def says(self, message: bytes) -> None:
        """A message of the client."""
        if self._is_first:
            self._is_first = False
            self._said = _user(self._mechanism, message)

    def answered(self, error: int, message: bytes, lifetime_s: float, now: float) -> None:
        """An answer to SaslAuthenticate. After an error, the upstream broker closes the connection."""
        if error:
            self._has_succeeded = False
            return
        is_last = message.startswith(SERVER_FINAL) if self._mechanism.startswith(SCRAM) else not message
        if not is_last or self._mechanism not in KNOWN:
            return
        self._until = now + lifetime_s if lifetime_s > 0 else None
        if not self._has_succeeded:
            self._has_succeeded = self.is_new = True
            self.user = self._said


def _user(mechanism: str, message: bytes) -> str:
    """ "" if it cannot be read."""
    text = message.decode(errors="replace")
    if mechanism == PLAIN:
        parts = text.split("\0")
        return parts[1] if len(parts) == 3 else ""
    if mechanism.startswith(SCRAM):
        name = next((part[2:] for part in text.split(",") if part.startswith("n=")), "")
        return name.replace("=2C", ",").replace("=3D", "=")
    if mechanism == BEARER:
        token = next((part[12:] for part in text.split("\1") if part.startswith("auth=Bearer ")), "")
        return _subject(token)
    return ""


def _subject(token: str) -> str:
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return str(claims.get("sub", ""))
    except (IndexError, ValueError, binascii.Error, AttributeError):
        return ""
