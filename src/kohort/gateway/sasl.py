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
SERVER_FINAL = b"v="
"""The server's last message of SCRAM, if the password was right (RFC 5802)."""


class Login:
    def __init__(self) -> None:
        self.is_over = False
        self.user = ""
        self._mechanism = ""
        self._is_first = True

    def begins(self, mechanism: str) -> None:
        self._mechanism = mechanism.upper()
        self._is_first = True

    def says(self, message: bytes) -> None:
        """A message of the client."""
        if self._is_first:
            self._is_first = False
            self.user = _user(self._mechanism, message)

    def answered(self, error: int, message: bytes | None) -> None:
        """An answer to SaslHandshake (without a message) or SaslAuthenticate."""
        if error:
            self.is_over = False
        elif message is not None and self._mechanism in (PLAIN, BEARER):
            self.is_over = self.is_over or not message
        elif message is not None and self._mechanism.startswith(SCRAM):
            self.is_over = self.is_over or message.startswith(SERVER_FINAL)


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
