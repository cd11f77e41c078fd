"""The server of the features of TLS, SASL and ACLs, which all clients of a run share: a listener for each case.

A client's user has its name, so the server tells whose session was renewed.
"""

from __future__ import annotations

import base64
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from own_certificates import authority, issue, written

from kohort.client.cluster import Cluster
from kohort.config import AUTHORIZER
from kohort.server.security.conversation import Done, Result
from kohort.server.security.session import Session
from kohort.testing import KohortServer
from kohort.testing.secured import BEARER, Bearer

PASSWORD = "wonder,land=1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those with passwords."""
TOKEN_S = 300
LISTENERS = {"ADMIN": "PLAINTEXT", "TLS": "SSL", "SASL": "SASL_SSL", "OTHER": "SASL_SSL", "PAST": "SASL_SSL"}
LISTENERS["BRIEF"] = "SASL_SSL"
BRIEF_MS = 4_000
"""franz-go renews a session 2.5 seconds before its end, and no server lets it begin within a second."""


def limited(client: str) -> str:
    """The client's user that has no rights but those of ACLs."""
    return f"{client}-limited"


class SecuredServer:
    """Started by the first feature that needs it."""

    def __init__(self, clients: tuple[str, ...]) -> None:
        """Each client is a user, which may do everything; `limited` is another one."""
        self._clients = clients
        self.renewed: Counter[str] = Counter()
        """Sessions that users have renewed on their connections."""
        self._starting = threading.Lock()
        self._server: KohortServer | None = None

    def start(self) -> None:
        with self._starting:
            if self._server is not None:
                return
            self._folder = tempfile.TemporaryDirectory()
            self.files = _files(Path(self._folder.name))
            self._bearer = Bearer(Path(self._folder.name))
            self._issuer = _issuer(self.token)
            all_rights = [*self._clients, "ANONYMOUS", "CN=alice"]
            settings = _settings(self.files) | self._bearer.settings
            settings |= {"super_users": ";".join(f"User:{name}" for name in all_rights)}
            self._server = KohortServer(**settings).start()
            with self.admin() as admin:
                for user in (*self._clients, *map(limited, self._clients)):
                    for mechanism in MECHANISMS[1:]:
                        admin.add_scram_user(user, PASSWORD, mechanism=mechanism, iterations=4096)
            self._react = Session._react
            Session._react = self._noted()  # type: ignore[method-assign]

    def at(self, listener: str) -> str:
        assert self._server is not None
        return self._server.bootstrap_servers_of(listener)

    def admin(self) -> Cluster:
        """A connection without authentication, which may do everything."""
        return Cluster(self.at("ADMIN"))

    def token(self, user: str) -> str:
        return self._bearer.token(user, TOKEN_S)

    @property
    def token_url(self) -> str:
        """Gives a token to a client with its user and password (OAuth's client credentials)."""
        return f"http://127.0.0.1:{self._issuer.server_port}/token"

    def close(self) -> None:
        if self._server is not None:
            self._issuer.shutdown()
            self._issuer.server_close()
            Session._react = self._react  # type: ignore[method-assign]
            self._server.stop()
            self._folder.cleanup()

    def _noted(self) -> Callable[..., None]:
        react = self._react

        def noted(session: Session, connection: Any, result: Result) -> None:
            if isinstance(result, Done):
                self.renewed[session._user] += 1
            react(session, connection, result)

        return noted


def _issuer(token: Callable[[str], str]) -> ThreadingHTTPServer:
    class Issuer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            user, _, password = base64.b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
            given = {"access_token": token(user), "token_type": "Bearer", "expires_in": TOKEN_S}
            body = json.dumps(given if password == PASSWORD else {"error": "invalid_client"}).encode()
            self.send_response(200 if password == PASSWORD else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, name="issuer", daemon=True).start()
    return server


def _files(folder: Path) -> dict[str, str]:
    ca = authority()
    keys = {
        "own": issue(ca, "localhost", "127.0.0.1"),
        "elsewhere": issue(ca, "elsewhere.example.org"),
        "past": issue(ca, "localhost", "127.0.0.1", expired=True),
        "alice": issue(ca, name="alice"),
    }
    paths = {"ca": written(folder, "ca.pem", ca.certificate_pem)}
    for name, issued in keys.items():
        paths[name] = written(folder, f"{name}.pem", issued.certificate_pem + issued.key_pem)
        Path(paths[name]).chmod(0o600)
    return paths


def _settings(files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.location": files["own"],
        "ssl.truststore.location": files["ca"],
        "listener.name.other.ssl.keystore.location": files["elsewhere"],
        "listener.name.past.ssl.keystore.location": files["past"],
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.sasl.enabled.mechanisms": ",".join((*MECHANISMS, BEARER)),
        "listener.name.brief.connections.max.reauth.ms": str(BRIEF_MS),
        "authorizer_class_name": AUTHORIZER,
        "group_initial_rebalance_delay_ms": 0,
    }
