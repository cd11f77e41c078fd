"""SASL mechanisms, the client's side of each, without IO.

`begin` returns a conversation: a generator that yields messages to send and gets the answers; it returns when the
client has authenticated. It may block (to get a token or to hash a password), so an event loop runs its steps in a
thread. `client/wire/exchange.py` has the requests around these messages.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import ClassVar

from kohort.client.security import scram
from kohort.client.security.bearer_tokens import Oidc, TokenSource
from kohort.client.security.scram import Distrusted

__all__ = ["Conversation", "Distrusted", "OAuthBearer", "Plain", "Sasl", "Scram"]

Conversation = Generator[bytes, bytes, None]

SEPARATOR = "\x01"


@dataclass(frozen=True, slots=True)
class Plain:
    """A name and a password, sent in clear text (RFC 4616); use it inside TLS."""

    mechanism: ClassVar[str] = "PLAIN"
    username: str
    password: str = field(repr=False)

    def begin(self, timeout_ms: int) -> Conversation:
        yield f"\0{self.username}\0{self.password}".encode()


@dataclass(frozen=True, slots=True)
class Scram:
    """A name and a password. Neither side sends anything with which the other could impersonate it."""

    mechanism: str
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str
    password: str = field(repr=False)

    def begin(self, timeout_ms: int) -> Conversation:
        return scram.conversation(self.mechanism, self.username, self.password, secrets.token_urlsafe(24))


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """A bearer token (RFC 7628), and extensions (KIP-342): names and values."""

    mechanism: ClassVar[str] = "OAUTHBEARER"
    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()

    def begin(self, timeout_ms: int) -> Conversation:
        return self._converse(timeout_ms)

    def _converse(self, timeout_ms: int) -> Conversation:
        token = self.source.token(timeout_ms)
        if not token or not token.isascii() or any(char.isspace() or not char.isprintable() for char in token):
            raise Distrusted("the source of bearer tokens did not give a token")
        fields = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in self.extensions)]
        refused = yield ("n,," + SEPARATOR + "".join(part + SEPARATOR for part in fields) + SEPARATOR).encode()
        if refused:
            if isinstance(self.source, Oidc):
                self.source.forget()
            yield SEPARATOR.encode()  # the broker then answers with its error code
            raise Distrusted(f"the broker refused the bearer token{_status(refused)}")


Sasl = Plain | Scram | OAuthBearer


def _status(refused: bytes) -> str:
    try:
        status = json.loads(refused)["status"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f" ({status})" if isinstance(status, str) else ""
