"""TLS and SASL on the wire, blocking, asyncio and uvloop, against a broker of the tests, which may be a false one."""

from __future__ import annotations

import asyncio
import base64
import http.server
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opened_connections import Connect, Opened
from own_certificates import Issued, authority, issue, written
from sasl_broker import SaslBroker
from scripted_broker import CLOSE, SILENCE, ScriptedBroker, server_context

from kohort.client import AuthenticationFailed, Security
from kohort.client.cluster import Cluster
from kohort.client.errors import BadAnswer, ConnectionFailed, KafkaError, TimedOut
from kohort.client.wire.async_connection import AsyncConnection
from kohort.client.wire.blocking_connection import Connection
from kohort.client.wire.discovery import Discovery
from kohort.wire.errors import ErrorCode
from kohort.wire.schemas.api_versions import ApiVersionsRequest
from kohort.wire.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

CA = authority()
BROKER = issue(CA, "127.0.0.1", "localhost")
ALICE = issue(CA, name="alice")
PASSWORD = "hunter2-öß"
GROUPS = ListGroupsResponse(error_code=0, groups=())
TRUSTING = {"ssl.truststore.certificates": CA.certificate_pem}

Ask = Callable[..., ListGroupsResponse]


@pytest.fixture
def ask(connect: Connect) -> Ask:
    """One question on a new connection with these properties."""

    def ask(broker: Any, properties: dict[str, str], **options: Any) -> Any:
        return connect(broker, security=Security.of(properties), **options).request()

    return ask


@contextmanager
def broker(
    tmp_path: Path, issued: Issued | None = None, sasl: SaslBroker | None = None, *, wants_certificate: bool = False
) -> Iterator[ScriptedBroker]:
    tls = None if issued is None else server_context(issued, tmp_path)
    if tls is not None and wants_certificate:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(cadata=CA.certificate_pem)
    script = {ListGroupsRequest: GROUPS, **({} if sasl is None else sasl.script())}
    with ScriptedBroker(script, tls=tls) as running:
        yield running


# -- TLS


TLS = {"security.protocol": "SSL"}


def test_tls_and_a_certificate_of_the_client(ask: Ask, tmp_path: Path) -> None:
    with broker(tmp_path, BROKER) as running:
        assert ask(running, TLS | TRUSTING) == GROUPS
    own = {"ssl.keystore.certificate.chain": ALICE.certificate_pem, "ssl.keystore.key": ALICE.key_pem}
    with broker(tmp_path, BROKER, wants_certificate=True) as running:
        assert ask(running, TLS | TRUSTING | own) == GROUPS
        # Its error may get lost, because it closes the connection while the client sends.
        with pytest.raises(
            (AuthenticationFailed, ConnectionFailed), match=r"certificates?[ :;].*see ssl\.keystore\.location"
        ):
            ask(running, TLS | TRUSTING)


@pytest.mark.parametrize(
    ("issued", "properties", "why"),
    [
        (BROKER, {"ssl.ca.pem": authority("stranger").certificate_pem}, "no authority that this client trusts"),
        (BROKER, {}, "no authority that this client trusts"),
        (issue(CA, "127.0.0.1", expired=True), TRUSTING, "certificate is refused: it has expired"),
        (issue(CA, "kafka.example"), TRUSTING, "another host's .*127.0.0.1"),
    ],
    ids=["stranger", "system", "expired", "other host"],
)
def test_certificates_that_are_refused(
    ask: Ask, tmp_path: Path, issued: Issued, properties: dict[str, str], why: str
) -> None:
    with broker(tmp_path, issued) as running:
        with pytest.raises(AuthenticationFailed, match=why) as refused:
            ask(running, TLS | properties)
        assert running.address in refused.value.message
        assert not refused.value.retriable
        assert ask(running, TLS | properties | {"enable.ssl.certificate.verification": "false"}) == GROUPS


def test_another_hosts_certificate_may_be_allowed(ask: Ask, tmp_path: Path) -> None:
    with broker(tmp_path, issue(CA, "kafka.example")) as running:
        assert ask(running, TLS | TRUSTING | {"ssl.endpoint.identification.algorithm": ""}) == GROUPS


def test_plain_text_to_a_listener_with_tls(ask: Ask, tmp_path: Path) -> None:
    with (
        broker(tmp_path, BROKER) as running,
        pytest.raises(ConnectionFailed, match=r"TLS.* security.protocol|security.protocol would be SSL"),
    ):
        ask(running, {})
    alert = bytes((0x15, 3, 3, 0, 2, 2, 10))
    with (
        ScriptedBroker({ApiVersionsRequest: alert}) as running,
        pytest.raises(BadAnswer, match=r"answered in TLS: security.protocol would be SSL or SASL_SSL"),
    ):
        ask(running, {})


@contextmanager
def answering(reply: bytes | None) -> Iterator[Any]:
    """Something that is not TLS: answers the first bytes with others and closes, or only holds the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            connection, _ = listener.accept()
            held.append(connection)
            if reply is not None:
                connection.recv(65536)
                connection.sendall(reply)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield SimpleNamespace(host="127.0.0.1", port=listener.getsockname()[1])
        thread.join(5)
        for connection in held:
            connection.close()


@pytest.mark.parametrize(
    ("reply", "error", "match"),
    [
        (b"", ConnectionFailed, "as a listener without TLS does"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            AuthenticationFailed,
            r"does not speak TLS; set security\.protocol to PLAI",
        ),
        (None, ConnectionFailed, "within 400 ms"),
    ],
)
def test_tls_to_a_listener_without_it(ask: Ask, reply: bytes | None, error: type[KafkaError], match: str) -> None:
    with answering(reply) as address, pytest.raises(error, match=match):
        ask(address, TLS, connect_timeout_ms=400 if reply is None else 10_000)


# -- SASL

ALICES = {"sasl.username": "alice", "sasl.password": PASSWORD}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **ALICES}
SCRAM = SASL | {"sasl.mechanism": "SCRAM-SHA-256"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(ask: Ask, tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sasl = SaslBroker(users={"alice": PASSWORD})
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **TRUSTING, **ALICES}
    with broker(tmp_path, BROKER, sasl) as running:
        assert ask(running, properties) == GROUPS
        assert sasl.let_in == 1
        assert [type(request) for request in running.requests[:2]] == [ApiVersionsRequest, SaslHandshakeRequest]
        for wrong in ({"sasl.password": "wrong-pa55"}, {"sasl.username": "mallory"}):
            with pytest.raises(AuthenticationFailed, match=f"{mechanism}: SASL_AUTHENTICATION_FAILED") as refused:
                ask(running, properties | wrong)
            assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert not refused.value.retriable
            assert "pa55" not in str(refused.value)
        assert sasl.let_in == 1
    assert PASSWORD not in caplog.text
    if mechanism != "PLAIN":
        assert not any(PASSWORD.encode() in message for message in sasl.messages)


def test_a_token(ask: Ask, tmp_path: Path) -> None:
    sasl = SaslBroker(tokens=("good-t0ken",))
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}

    def of_file(path: object) -> dict[str, str]:
        return properties | {"sasl.oauthbearer.token.endpoint.url": f"file://{path}"}

    with broker(tmp_path, None, sasl) as running:
        assert ask(running, of_file(written(tmp_path, "good", "good-t0ken\n"))) == GROUPS
        with pytest.raises(AuthenticationFailed, match=r"OAUTHBEARER: SASL_AUTHENTICATION_FAILED.*invalid_token") as no:
            ask(running, of_file(written(tmp_path, "bad", "bad-t0ken\n")))
        assert "t0ken" not in str(no.value)
        assert sasl.messages[-1] == b"\x01"
        with pytest.raises(AuthenticationFailed, match="no token could be read"):
            ask(running, of_file(tmp_path / "none"))


def test_a_mechanism_that_is_not_offered(ask: Ask, tmp_path: Path) -> None:
    with broker(tmp_path, None, SaslBroker(offered=("SCRAM-SHA-256", "OAUTHBEARER"))) as running:
        with pytest.raises(AuthenticationFailed) as refused:
            ask(running, SASL)
        assert not running.seen(SaslAuthenticateRequest)  # the password has not been sent
        assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "broker offers SCRAM-SHA-256, OAUTHBEARER" in refused.value.message


@pytest.mark.parametrize(
    "script",
    [{}, {SaslHandshakeRequest: SaslHandshakeResponse(error_code=34, mechanisms=()), SaslAuthenticateRequest: SILENCE}],
    ids=["not served", "refused"],
)
def test_a_listener_without_sasl(ask: Ask, script: dict[type, Any]) -> None:
    with ScriptedBroker(script) as running:
        with pytest.raises(
            AuthenticationFailed, match=r"knows no SASL: security.protocol would be PLAINTEXT, not SASL_"
        ):
            ask(running, SASL)
        assert not running.seen(SaslAuthenticateRequest)


def test_a_stranger_at_a_listener_with_sasl(ask: Ask) -> None:
    with (
        ScriptedBroker({ListGroupsRequest: CLOSE}) as running,
        pytest.raises(ConnectionFailed, match="while ListGroups was in flight, as a listener with SASL does"),
    ):
        ask(running, {})


@pytest.mark.parametrize(
    ("mangle", "why"),
    [
        (lambda text: text.replace("r=", "r=x"), "nonce does not continue"),
        (lambda text: text.replace("i=4096", "i=1"), "asks for 1 SCRAM iterations"),
        (
            lambda text: "v=" + base64.b64encode(bytes(32)).decode() if text.startswith("v=") else text,
            "does not know this user's password",
        ),
    ],
)
def test_a_false_broker(ask: Ask, tmp_path: Path, mangle: Callable[[str], str], why: str) -> None:
    sasl = SaslBroker(users={"alice": PASSWORD}, mangle=mangle)
    with broker(tmp_path, None, sasl) as running, pytest.raises(AuthenticationFailed, match=why) as refused:
        ask(running, SCRAM)
    assert not refused.value.retriable
    assert not running.seen(ListGroupsRequest)


def test_a_broker_that_does_not_answer_in_the_handshake(ask: Ask, tmp_path: Path) -> None:
    script = SaslBroker().script() | {SaslAuthenticateRequest: SILENCE}
    with ScriptedBroker(script) as running, pytest.raises((ConnectionFailed, TimedOut)):
        ask(running, SASL, connect_timeout_ms=200)


# -- for a limited time (KIP-368)

LIFETIME_MS = 250
PATIENCE_S = 10


class SessionClock:
    """When the session of an authentication that is done by now ends at the latest."""

    def __init__(self, sasl: SaslBroker) -> None:
        self._sasl = sasl
        self._began, self._let_in = time.monotonic(), sasl.let_in

    @contextmanager
    def lasts(self) -> Iterator[None]:
        """A request that begins after the session's end begins with a new authentication."""
        asked = time.monotonic()
        yield
        if self._sasl.let_in > self._let_in:
            self._began, self._let_in = time.monotonic(), self._sasl.let_in
        assert asked < self._began + LIFETIME_MS / 1000


def test_a_blocking_connection_authenticates_again_in_time(tmp_path: Path) -> None:
    sasl = SaslBroker(users={"alice": PASSWORD}, lifetime_ms=LIFETIME_MS)
    with broker(tmp_path, None, sasl) as running:
        connection = Connection(running.host, running.port, security=Security.of(SCRAM))
        session = SessionClock(sasl)
        while sasl.let_in < 3:
            with session.lasts():
                connection.request(ListGroupsRequest(), ListGroupsResponse)
        connection.close()
    assert len(running.seen(ApiVersionsRequest)) == 1  # on one connection


def test_no_new_authentication_between_question_and_answer(tmp_path: Path) -> None:
    """Two questions at once: the second is not held up, and the answers come in order."""
    sasl = SaslBroker(users={"alice": PASSWORD}, lifetime_ms=1)
    with broker(tmp_path, None, sasl) as running:
        connection = Connection(running.host, running.port, security=Security.of(SCRAM))
        connection.send(ListGroupsRequest())
        connection.send(ListGroupsRequest())
        assert connection.receive(ListGroupsResponse) == connection.receive(ListGroupsResponse) == GROUPS
        connection.close()
    kinds = [type(request) for request in running.requests[-2:]]
    assert kinds == [ListGroupsRequest, ListGroupsRequest]


async def test_an_asyncio_connection_authenticates_again_in_time(tmp_path: Path) -> None:
    """Questions that are asked meanwhile are held, and answered in their order."""
    sasl = SaslBroker(users={"alice": PASSWORD}, lifetime_ms=LIFETIME_MS)
    with broker(tmp_path, None, sasl) as running:
        connection = await AsyncConnection.open(running.host, running.port, security=Security.of(SCRAM))
        session = SessionClock(sasl)
        while sasl.let_in < 3:
            with session.lasts():
                answers = [connection.ask(ListGroupsRequest(), ListGroupsResponse) for _ in range(3)]
                assert connection.unanswered == ("ListGroups",) * 3 or "SaslHandshake" in connection.unanswered
                assert await asyncio.gather(*answers) == [GROUPS] * 3
        connection.close()
    assert len(running.seen(ApiVersionsRequest)) == 1


def request_for(seconds: float, opened: Opened) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        opened.request()


def test_a_password_that_was_changed_meanwhile(connect: Connect, tmp_path: Path) -> None:
    users = {"alice": PASSWORD}
    with broker(tmp_path, None, SaslBroker(users=users, lifetime_ms=1)) as running:
        opened = connect(running, security=Security.of(SCRAM))
        users["alice"] = "another"
        with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
            request_for(PATIENCE_S, opened)
        assert opened.connection.closed


# -- above the connection


async def test_wrong_credentials_are_tried_once(tmp_path: Path) -> None:
    """There is no second attempt, also not at another bootstrap server, because it may lock the account."""
    with broker(tmp_path, None, SaslBroker(users={"alice": "another"})) as running:
        servers = f"{running.address},{running.address}"
        with Cluster(servers, security=SCRAM) as cluster, pytest.raises(AuthenticationFailed):
            cluster.topics()
        assert len(running.seen(SaslHandshakeRequest)) == 1
        security = Security.of(SCRAM)
        discovery = Discovery(
            servers, client_id="t", connect_timeout_ms=5_000, request_timeout_ms=5_000, security=security
        )
        with pytest.raises(AuthenticationFailed):
            await discovery.coordinator("g")
        assert len(running.seen(SaslHandshakeRequest)) == 2


class _Endpoint(http.server.BaseHTTPRequestHandler):
    """A token endpoint: its requests so far, and its next answer."""

    asked: list[tuple[str, str]] = []
    answers: list[tuple[int, bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        status, answer = self.answers.pop(0)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", answer.decode())
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def test_tokens_by_client_credentials(ask: Ask, tmp_path: Path) -> None:
    _Endpoint.asked, _Endpoint.answers = [], []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/token"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    sasl = SaslBroker(tokens=("t1", "t2"))
    try:
        with broker(tmp_path, None, sasl) as running:
            redirects = (
                (status, f"{url}/elsewhere", f"HTTP {status}, a redirect") for status in (301, 302, 303, 307, 308)
            )
            for status, answer, why in (
                (503, "", "token endpoint answered HTTP 503"),
                (401, '{"error":"invalid_client"}', r"HTTP 401 \(invalid_client\)"),
                (200, "{}", "has no access_token"),
                *redirects,
            ):
                _Endpoint.answers.append((status, answer.encode()))
                with pytest.raises(ConnectionFailed if status == 503 else AuthenticationFailed, match=why) as refused:
                    ask(running, properties)
                assert PASSWORD not in str(refused.value)
            assert len(_Endpoint.asked) == 8  # nobody went there
            _Endpoint.asked.clear()
            _Endpoint.answers.append((200, b'{"access_token":"t1","expires_in":600}'))
            for _ in range(3):
                assert ask(running, properties) == GROUPS
            assert len(_Endpoint.asked) == 1  # the token is kept
            basic = base64.b64encode(f"id:{PASSWORD}".encode()).decode()
            assert _Endpoint.asked[-1] == (f"Basic {basic}", "grant_type=client_credentials&scope=kafka")
            sasl.tokens = ("t2",)  # t1 has been revoked: it is tried once more, and never again
            with pytest.raises(AuthenticationFailed, match="invalid_token"):
                ask(running, properties)
            _Endpoint.answers.append((200, b'{"access_token":"t2"}'))
            assert ask(running, properties) == GROUPS
    finally:
        server.shutdown()
        server.server_close()
    nobody_answers = Security.of(properties | {"sasl.oauthbearer.client.id": "another"}).sasl
    assert nobody_answers is not None
    with pytest.raises(ConnectionFailed, match="no token"):
        next(nobody_answers.begin(1_000))
