"""The broker's side of SASL for a scripted broker: one connection's exchange at a time.

SCRAM is written from RFC 5802's server side: it keeps the salted keys of a password and checks the proof against the
stored key. So it shares only the RFC with the client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

REFUSED = 58


class Wrong(Exception):
    """The client's message is not accepted."""


@dataclass
class SaslBroker:
    """`users` have passwords; `tokens` are those that are accepted. Mechanisms: those of `offered`."""

    users: Mapping[str, str] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    offered: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    lifetime_ms: int = 0
    iterations: int = 4096
    mangle: Callable[[str], str] = lambda text: text
    """A false server's changes to the messages of SCRAM."""
    messages: list[bytes] = field(default_factory=list)
    """What clients have sent."""
    let_in: int = 0

    def script(self) -> dict[type, Any]:
        return {SaslHandshakeRequest: self.handshake, SaslAuthenticateRequest: self.authenticate}

    def handshake(self, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        known = request.mechanism in self.offered
        self._mechanism = request.mechanism
        self._scram: _ScramServer | None = None
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=self.offered)

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
        message = bytes(request.auth_bytes)
        self.messages.append(message)
        try:
            answer, done = self._step(message)
        except Wrong as error:
            return SaslAuthenticateResponse(error_code=REFUSED, error_message=str(error), auth_bytes=b"")
        self.let_in += done
        return SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=self.lifetime_ms if done else 0
        )

    def _step(self, message: bytes) -> tuple[bytes, bool]:
        match self._mechanism:
            case "PLAIN":
                _, username, password = message.decode().split("\0")
                if self.users.get(username) != password:
                    raise Wrong("Authentication failed: Invalid username or password")
                return b"", True
            case "OAUTHBEARER":
                if message == b"\x01":
                    raise Wrong('{"status":"invalid_token"}')
                token = message.decode().split("\x01")[1].removeprefix("auth=Bearer ")
                return (b"", True) if token in self.tokens else (b'{"status":"invalid_token"}', False)
            case _:
                if self._scram is None:
                    algorithm = self._mechanism.removeprefix("SCRAM-").replace("-", "").lower()
                    self._scram = _ScramServer(algorithm, self.users, self.iterations)
                    return self.mangle(self._scram.first(message.decode())).encode(), False
                return self.mangle(self._scram.last(message.decode())).encode(), True


class _ScramServer:
    def __init__(self, algorithm: str, users: Mapping[str, str], iterations: int) -> None:
        self._algorithm, self._users, self._iterations = algorithm, users, iterations
        self._salt = b"0123456789abcdef"

    def first(self, message: str) -> str:
        binding, authorized, self._bare = message.split(",", 2)
        assert (binding, authorized) == ("n", "")
        name, nonce = self._bare.split(",")
        self._name = name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=")
        self._nonce = nonce.removeprefix("r=") + "server"
        salt = base64.b64encode(self._salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._iterations}"
        return self._challenge

    def last(self, message: str) -> str:
        without_proof, _, proof = message.rpartition(",p=")
        assert without_proof == f"c=biws,r={self._nonce}"
        password = self._users.get(self._name)
        if password is None:
            raise Wrong("Authentication failed during authentication due to invalid credentials")
        salted = hashlib.pbkdf2_hmac(self._algorithm, password.encode(), self._salt, self._iterations)
        stored = hashlib.new(self._algorithm, hmac.digest(salted, b"Client Key", self._algorithm)).digest()
        signed = ",".join((self._bare, self._challenge, without_proof)).encode()
        signature = hmac.digest(stored, signed, self._algorithm)
        client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self._algorithm, client_key).digest() != stored:
            raise Wrong("Authentication failed during authentication due to invalid credentials")
        server_key = hmac.digest(salted, b"Server Key", self._algorithm)
        return "v=" + base64.b64encode(hmac.digest(server_key, signed, self._algorithm)).decode()
