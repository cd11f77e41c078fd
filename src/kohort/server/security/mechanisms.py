"""SASL mechanisms, the server's side of each, without IO.

A mechanism gets the client's messages and returns what follows: a challenge, the user's name, or a refusal. `HashFirst`
asks for a computation that takes long, and is called again with its result. The reason of a refusal is for the
log; clients get one text for all reasons. All comparisons of secrets take the same time whether they fit or not, and
names that do not exist take the same way as others to the same end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from kohort.broker.security.credentials import Credentials
from kohort.config import BEARER
from kohort.security.scram import CODES, MECHANISMS, Credential, credential, encoded, salted_password

WRONG = "the name or the password is wrong"
FAILED = "Authentication failed: Invalid username or password"
PLAIN = "PLAIN"
MOST_NAME = 256
"""Characters of a user's name."""
MOST_MESSAGE = 16_384
"""Bytes of a message of PLAIN or SCRAM. What is kept of a message is not counted as a guest's (door.py)."""
NONCE_BYTES = 24
_FIRST = re.compile(r"(n),(?:a=([^,]*))?,((?:m=[^,]*,)?n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)((?:,[a-zA-Z]=[^,]*)*))")
_BEARER = re.compile(
    rb"n,(?:a=([\x01-\x2b\x2d-\x7f]+))?,\x01(?:(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*?"
    rb"auth=[Bb][Ee][Aa][Rr][Ee][Rr] +([-_.a-zA-Z0-9]+)\x01(?:(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01"
)
"""The authorization id, and the token; extensions around it (KIP-342) are ignored."""
MOST_BEARER = 65_536
"""Bytes of the message of OAUTHBEARER."""
INVALID_TOKEN = '{"status":"invalid_token"}'
MALFORMED = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
_TOKEN_AUTH = re.compile(r",tokenauth=true", re.IGNORECASE)
_LAST = re.compile(r"(c=([^,]*),r=([^,]*)(?:,[a-zA-Z]=[^,]*)*),p=([^,]*)")


class Challenge(NamedTuple):
    message: bytes


class Accepted(NamedTuple):
    user: str
    message: bytes
    """The last message to the client."""
    rest_ms: int = 0
    """For how long what the client has shown is valid; 0 for ever."""


class Refused(NamedTuple):
    reason: str
    user: str = ""
    told: str = FAILED
    """The text for the client."""


class HashFirst(NamedTuple):
    """Compute this outside of the event loop, and call `then` with the result."""

    compute: Callable[[], Any]
    then: Callable[[Any], Challenge | Accepted | Refused]


Outcome = Challenge | Accepted | Refused | HashFirst


class Mechanism(Protocol):
    def evaluate(self, message: bytes) -> Outcome: ...


class Verified(NamedTuple):
    """What a valid token says."""

    user: str
    rest_ms: int
    """For how long it is valid."""


class Tokens(Protocol):
    def verify(self, token: str) -> Verified | str:
        """A text says why the token is refused."""


def mechanism_of(
    name: str, credentials: Credentials, plain_users: Mapping[str, str], tokens: Tokens | None = None
) -> Mechanism:
    if name == PLAIN:
        return Plain(plain_users, credentials)
    if name == BEARER:
        assert tokens is not None
        return OAuthBearer(tokens)
    return Scram(name, credentials, secrets.token_urlsafe(NONCE_BYTES))


class Plain:
    """RFC 4616. Users are those of the configuration, and those with SCRAM credentials. Source: PlainSaslServer."""

    def __init__(self, users: Mapping[str, str], credentials: Credentials) -> None:
        self._users = users
        self._credentials = credentials

    def evaluate(self, message: bytes) -> Outcome:
        if len(message) > MOST_MESSAGE:
            return Refused("the message of PLAIN is too long")
        if (parts := message.count(b"\0") + 1) != 3:
            return Refused(f"the message of PLAIN has {parts} parts, not three")
        try:
            authorization, user, password = message.decode().split("\0")
        except UnicodeDecodeError:
            return Refused("the message of PLAIN is not UTF-8")
        if not user or not password or len(user) > MOST_NAME:
            return Refused("the name or the password of PLAIN is empty or too long")
        if authorization not in ("", user):
            return Refused("the client asks to act as another user", user)
        if self._credentials.by_user:
            return self._by_credential(user, password)
        return self._configured(user, password)

    def _configured(self, user: str, password: str) -> Accepted | Refused:
        known = self._users.get(user)
        fits = hmac.compare_digest((known or password).encode(), password.encode())
        return Accepted(user, b"") if fits and known is not None else Refused(WRONG, user)

    def _by_credential(self, user: str, password: str) -> HashFirst:
        """Every name waits for the hashes of all mechanisms, one of the configuration too: the time tells nothing."""
        known = [(name, *self._credentials.known(user, code)) for name, code in CODES.items()]

        def compute() -> list[bytes]:
            return [salted_password(name, password, one.salt, one.iterations) for name, one, _ in known]

        def check(salted: list[bytes]) -> Accepted | Refused:
            if user in self._users:
                return self._configured(user, password)
            fits = [
                hmac.compare_digest(credential(name, key, one.salt, one.iterations).stored_key, one.stored_key)
                and exists
                for key, (name, one, exists) in zip(salted, known, strict=True)
            ]
            return Accepted(user, b"") if any(fits) else Refused(WRONG, user)

        return HashFirst(compute, check)


class OAuthBearer:
    """RFC 7628; a token is verified by `tokens`. Source: OAuthBearerSaslServer.java.

    The answer to a refused token is a text in JSON and no error, to which the client answers, and then it fails."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refused: Refused | None = None

    def evaluate(self, message: bytes) -> Outcome:
        if self._refused is not None:
            return self._refused
        found = _BEARER.fullmatch(message) if len(message) <= MOST_BEARER else None
        authorization = _unescaped(found[1].decode()) if found is not None and found[1] else ""
        if found is None or authorization is None:
            return Refused("the message of OAUTHBEARER is malformed", told=MALFORMED)
        token = found[2].decode()
        return HashFirst(lambda: self._tokens.verify(token), lambda verified: self._checked(verified, authorization))

    def _checked(self, verified: Verified | str, authorization: str) -> Challenge | Accepted | Refused:
        if isinstance(verified, str):
            self._refused = Refused(verified, told=INVALID_TOKEN)
            return Challenge(INVALID_TOKEN.encode())
        if authorization not in ("", verified.user):
            return Refused("the client asks to act as another user", verified.user, MALFORMED)
        return Accepted(verified.user, b"", verified.rest_ms)


class Scram:
    """RFC 5802 without channel binding and SASLprep. Source: ScramSaslServer.java; unlike there, a user that does not
    exist gets a challenge, and the header of the last message must be that of the first."""

    def __init__(self, mechanism: str, credentials: Credentials, nonce: str) -> None:
        """`nonce` is new each time."""
        self._name = mechanism
        self._algorithm = MECHANISMS[mechanism]
        self._credentials = credentials
        self._nonce = nonce
        self._header = ""
        self._signed = ""
        self._user = ""
        self._known: Credential | None = None
        self._exists = False

    def evaluate(self, message: bytes) -> Outcome:
        if len(message) > MOST_MESSAGE:
            return Refused("the message of SCRAM is too long", self._user)
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return Refused("the message of SCRAM is not UTF-8", self._user)
        return self._last(text) if self._known is not None else self._first(text)

    def _first(self, text: str) -> Outcome:
        if _TOKEN_AUTH.search(text):
            return Refused("delegation tokens are not served")
        found = _FIRST.fullmatch(text)
        if found is None or found[3].startswith("m="):
            return Refused("the first message of SCRAM is malformed, or asks for channel binding")
        user, authorization = _unescaped(found[4]), _unescaped(found[2] or "")
        if not user or len(user) > MOST_NAME or authorization is None:
            return Refused("the name in SCRAM's first message is malformed")
        if authorization not in ("", user):
            return Refused("the client asks to act as another user", user)
        self._user = user
        self._known, self._exists = self._credentials.known(user, CODES[self._name])
        self._nonce = found[5] + self._nonce
        challenge = f"r={self._nonce},s={encoded(self._known.salt)},i={self._known.iterations}"
        self._header = text[: found.start(3)]
        self._signed = f"{found[3]},{challenge}"
        return Challenge(challenge.encode())

    def _last(self, text: str) -> Outcome:
        assert self._known is not None
        found = _LAST.fullmatch(text)
        if found is None:
            return Refused("the last message of SCRAM is malformed", self._user)
        if found[2] != encoded(self._header.encode()):
            return Refused("the last message of SCRAM has another header than the first", self._user)
        if not hmac.compare_digest(found[3].encode(), self._nonce.encode()):
            return Refused("the nonce in SCRAM's last message is another one", self._user)
        signed = f"{self._signed},{found[1]}".encode()
        signature = hmac.digest(self._known.stored_key, signed, self._algorithm)
        try:
            proof = base64.b64decode(found[4], validate=True)
        except (binascii.Error, ValueError):
            proof = b""
        if len(proof) != len(signature):
            return Refused("the proof in SCRAM's last message is malformed", self._user)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored = hashlib.new(self._algorithm, client_key).digest()
        if not hmac.compare_digest(stored, self._known.stored_key) or not self._exists:
            return Refused(WRONG, self._user)
        verifier = hmac.digest(self._known.server_key, signed, self._algorithm)
        return Accepted(self._user, f"v={encoded(verifier)}".encode())


def _unescaped(name: str) -> str | None:
    """`=2C` is a comma and `=3D` an equals sign; another `=` is an error."""
    if re.search(r"=(?!2C|3D)", name):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")
