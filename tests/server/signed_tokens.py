"""Keys that sign tokens, and an https server of key sets, for tests of OAUTHBEARER."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from secured import SERVER, key_file

ISSUER, AUDIENCE = "https://issuer.example.org", "kafka"


class Signer:
    """A key with an id."""

    def __init__(self, kid: str, key: Any, algorithm: str) -> None:
        self.kid, self.key, self.algorithm = kid, key, algorithm

    def jwk(self, **changes: Any) -> dict[str, Any]:
        public = self.key.public_key()
        kinds: Any = (RSAAlgorithm, ECAlgorithm, OKPAlgorithm)
        kind = kinds[("R", "E", "Ed").index("Ed" if self.algorithm == "EdDSA" else self.algorithm[0])]
        return {**json.loads(kind.to_jwk(public)), "kid": self.kid, "use": "sig", **changes}

    def token(self, user: str = "alice", life_s: float = 600, headers: Any = None, **changes: Any) -> str:
        """A claim that is None is left out."""
        now = time.time()
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now - 1, "exp": now + life_s, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, self.algorithm, headers={"kid": self.kid, **(headers or {})})


EC = Signer("ec", ec.generate_private_key(ec.SECP256R1()), "ES256")
OTHER = Signer("other", ec.generate_private_key(ec.SECP256R1()), "ES256")
RSA = Signer("rsa", rsa.generate_private_key(65537, 2048), "RS256")
ED = Signer("ed", ed25519.Ed25519PrivateKey.generate(), "EdDSA")
P384 = Signer("p384", ec.generate_private_key(ec.SECP384R1()), "ES384")


def key_set(*signers: Signer) -> bytes:
    return json.dumps({"keys": [signer.jwk() for signer in signers]}).encode()


def bearer_settings(url: str, **settings: Any) -> dict[str, Any]:
    """Settings of a KohortServer with one listener with OAUTHBEARER."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": url,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        **settings,
    }


class KeyServer:
    """Serves `content` at /keys, and redirects from /elsewhere to it."""

    def __init__(self) -> None:
        self.content = key_set(EC)
        self.status = 200
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""


@contextmanager
def key_server(folder: Path) -> Iterator[KeyServer]:
    state = KeyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked += 1
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
            state.may_answer.wait(10)
            elsewhere = self.path == "/elsewhere"
            content = b"" if elsewhere else state.content
            self.send_response(302 if elsewhere else state.status)
            if elsewhere:
                self.send_header("Location", "/keys")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            state.at_once -= 1
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key_file(folder, SERVER, "keys-server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    state.url = f"https://127.0.0.1:{server.server_address[1]}/keys"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.may_answer.set()
        server.shutdown()
        thread.join(10)
        server.server_close()
