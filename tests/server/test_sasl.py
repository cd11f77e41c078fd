"""SASL listeners over sockets: limits before the authentication, delays, sessions and their re-authentication."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edges import Edge, Wire, eventually
from secured import ca_file, tls_settings

from kohort.broker.turn import Frame, Opened
from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed
from kohort.config import ConfigError
from kohort.server.security import door as door_module
from kohort.server.security import session as session_module
from kohort.testing import KohortServer
from kohort.wire.codec import decode, encode_request
from kohort.wire.framing import read_response_header
from kohort.wire.schemas.metadata import MetadataRequest
from kohort.wire.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="builder" '
    'user_eve="apple" ;'
)  # fmt: skip
PLAIN: dict[str, Any] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}


def frame(request: Any, version: int) -> bytes:
    return encode_request(request, version, 7, "c")[4:]


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def token(user: str, password: str) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)


def told(answer: bytes) -> SaslAuthenticateResponse:
    _, start = read_response_header(answer, flexible=True, api_key=36)
    return decode(SaslAuthenticateResponse, 2, answer, start)


def logged_in(edge: Edge, user: str = "bob", password: str = "builder") -> Wire:
    wire = edge.wire()
    wire.ask(HANDSHAKE)
    [answer] = wire.ask(token(user, password))
    assert told(answer).error_code == 0
    return wire


def of_type(edge: Edge, kind: type) -> list[Any]:
    return [event for turn in edge.broker.turns for event in turn if isinstance(event, kind)]


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort")


@pytest.mark.conformance("AU6", "AU11")
def test_requests_reach_the_broker_after_the_authentication(edge_of: Callable[..., Edge]) -> None:
    edge = edge_of(**PLAIN)
    with edge.wire() as wire:
        # All at once: what follows the last message belongs to the broker.
        wire.push(HANDSHAKE, token("bob", "builder"), b"hello", b"at once")
        answers = [wire.pull() for _ in range(4)]
        assert told(answers[1]).error_code == 0
        assert answers[2:] == [b"hello", b"at once"]
    [opened] = of_type(edge, Opened)
    assert (str(opened.principal), opened.listener) == ("User:bob", "SASL_PLAINTEXT")


@pytest.mark.conformance("AU5")
def test_the_answer_to_a_failure_is_delayed(edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture) -> None:
    edge = edge_of(**PLAIN, connection_failed_authentication_delay_ms=300)
    with edge.wire() as wire:
        wire.ask(HANDSHAKE)
        began = time.monotonic()
        wire.push(token("bob", "wr0ng-pass"), token("bob", "builder"), b"hello")
        assert told(wire.pull()).error_code == 58
        assert time.monotonic() - began >= 0.29
        assert wire.is_closed
    assert not of_type(edge, Opened)
    eventually(lambda: "authentication failed" in caplog.text)
    assert "wr0ng-pass" not in caplog.text
    eventually(lambda: edge.connections.at_door == 0)


@pytest.mark.conformance("AU4")
@pytest.mark.parametrize("length", [2**31 - 1, -1, 0, 100 << 20, 524_289])
def test_a_length_is_refused_before_a_byte_is_kept(edge_of: Callable[..., Edge], length: int) -> None:
    edge = edge_of(**PLAIN)
    with edge.wire() as wire:
        wire.sendall(struct.pack(">i", length))
        assert wire.is_closed
    assert edge._running._entrance.door.bytes == 0  # type: ignore[union-attr]


@pytest.mark.conformance("AU4")
def test_the_bytes_of_all_guests_are_limited(edge_of: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "GUEST_BYTES", 100_000)
    edge = edge_of(**PLAIN)
    door = edge._running._entrance.door  # type: ignore[union-attr]
    with edge.wire() as small, edge.wire() as large:
        small.sendall(struct.pack(">i", 90_000) + bytes(40_000))
        eventually(lambda: door.bytes == 40_004)
        large.sendall(struct.pack(">i", 90_000) + bytes(80_000))
        assert large.is_closed
        eventually(lambda: door.bytes == 40_004)
        assert logged_in(edge).ask(b"hello") == [b"hello"]
    eventually(lambda: door.bytes == 0)


@pytest.mark.conformance("AU4")
def test_the_authentication_has_a_limited_time(edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture) -> None:
    edge = edge_of(**PLAIN, sasl_authentication_timeout_ms=150)
    with edge.wire() as silent, edge.wire() as slow:
        slow.ask(HANDSHAKE)
        assert silent.is_closed
        assert slow.is_closed
    assert "the authentication took longer than 0.15 s" in caplog.text


@pytest.mark.conformance("AU1", "TL9")
def test_other_protocols_are_closed(edge_of: Callable[..., Edge], caplog: pytest.LogCaptureFixture) -> None:
    edge = edge_of(**PLAIN)
    for data in (b"\x16\x03\x01\0\x10", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", 5) + b"hello"):
        with edge.wire() as wire:
            wire.sendall(data)
            assert wire.is_closed
    assert "a TLS client came to a listener without TLS" in caplog.text
    assert not of_type(edge, Opened)


def test_settings_of_sasl_that_cannot_be_used_are_named() -> None:
    for settings, words in (
        ({"sasl_enabled_mechanisms": "GSSAPI"}, ["sasl.enabled.mechanisms", "SCRAM-SHA-512"]),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS.replace("PlainLogin", "JndiLogin")},
            ["PlainLoginModule", "loads none"],
        ),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x"}, ["plain.sasl.jaas.config"]),
    ):
        with pytest.raises(ConfigError) as refused:
            KohortServer(**(PLAIN | settings))
        assert all(word in str(refused.value) for word in words), refused.value
        assert "builder" not in str(refused.value)


def test_secrets_of_the_configuration_are_not_shown(tmp_path: Path) -> None:
    server = KohortServer(**(PLAIN | {"ssl_key_password": "k3y-s3cret"}))
    assert "builder" not in repr(server._config)
    assert "k3y-s3cret" not in repr(server._config)


# -- sessions


LIFE_MS = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms"


@pytest.fixture
def short_sessions(edge_of: Callable[..., Edge]) -> Edge:
    """Sessions of 0.6 seconds."""
    return edge_of(**PLAIN, **{LIFE_MS: "600"})


@pytest.fixture
def sessions(edge_of: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch) -> Edge:
    """Sessions of three seconds, which may be renewed at any time."""
    monkeypatch.setattr(session_module, "AGAIN_S", 0.0)
    return edge_of(**PLAIN, **{LIFE_MS: "3000"})


@pytest.mark.conformance("AU14")
def test_the_first_request_after_the_session_closes_the_connection(
    short_sessions: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    with logged_in(short_sessions) as wire, logged_in(short_sessions) as shortcut:
        assert wire.ask(b"hello", b"at once") == [b"hello", b"at once"]
        time.sleep(0.7)
        assert len(short_sessions.connections._open) == 2  # idle connections live on
        wire.push(b"\0\x13late", b"write")
        assert wire.is_closed
        shortcut.push(b"at once")
        assert shortcut.is_closed
    eventually(lambda: not short_sessions.connections._open)
    assert not [event for event in of_type(short_sessions, Frame) if event.data in (b"\0\x13late", b"write")]
    assert "the session is over (connections.max.reauth.ms)" in caplog.text


@pytest.mark.conformance("AU12", "AU13")
def test_a_session_is_renewed(sessions: Edge) -> None:
    with logged_in(sessions) as wire:
        for _ in range(3):
            time.sleep(1.2)
            answers = wire.ask(b"before", HANDSHAKE, token("bob", "builder"), b"after")
            assert (answers[0], answers[3]) == (b"before", b"after")
            assert told(answers[2]).session_lifetime_ms == 3_000
    assert len(of_type(sessions, Opened)) == 1


@pytest.mark.conformance("AU13")
def test_a_re_authentication_waits_for_its_turn(sessions: Edge) -> None:
    with logged_in(sessions) as wire, logged_in(sessions) as other:
        wire.push(b"park", HANDSHAKE, token("bob", "builder"), b"after")
        eventually(lambda: sessions.broker.parked)
        assert other.ask(b"wake") == [b"wake"]
        assert wire.pull() == b"woken"
        wire.pull()
        assert told(wire.pull()).error_code == 0
        assert wire.pull() == b"after"


@pytest.mark.conformance("AU13")
@pytest.mark.parametrize(("user", "password"), [("eve", "apple"), ("bob", "wrong")])
def test_a_re_authentication_that_fails_ends_the_connection(sessions: Edge, user: str, password: str) -> None:
    with logged_in(sessions) as wire:
        wire.push(HANDSHAKE, token(user, password), b"\0\x13after")
        wire.pull()
        assert told(wire.pull()).error_code == 58
        assert wire.is_closed
    eventually(lambda: not sessions.connections._open)
    assert not [event for event in of_type(sessions, Frame) if event.data == b"\0\x13after"]
    assert sessions.connections.inflow.total == 0


@pytest.mark.conformance("AU14")
def test_an_answer_does_not_leave_when_its_session_is_over(short_sessions: Edge) -> None:
    with logged_in(short_sessions) as wire:
        wire.push(b"park")
        eventually(lambda: short_sessions.broker.parked)
        time.sleep(0.7)
        with logged_in(short_sessions) as other:
            assert other.ask(b"wake") == [b"wake"]
        assert wire.is_closed


@pytest.mark.conformance("AU13")
def test_without_an_end_a_handshake_is_an_ordinary_request() -> None:
    with KohortServer(**PLAIN) as server:
        wire = Wire(server.bootstrap_servers)
        wire.ask(HANDSHAKE, token("bob", "builder"))
        [answer] = wire.ask(HANDSHAKE)
        assert int.from_bytes(answer[4:6], "big") == 34
        [answer] = wire.ask(token("bob", "builder"))
        assert told(answer).error_code == 34
        assert len(wire.ask(frame(MetadataRequest(topics=None), 12))) == 1
        wire.close()


# -- users


@pytest.mark.conformance("AU17")
def test_users_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path, listeners="INT://127.0.0.1:0,EXT://127.0.0.1:0")
    settings |= {"listener.security.protocol.map": "INT:PLAINTEXT,EXT:SASL_SSL", "data_dir": tmp_path / "data"}
    security = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": ca_file(tmp_path),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
    }

    def gets_in(server: KohortServer, password: str) -> bool:
        secured = security | {"sasl.password": password}
        try:
            with Cluster(server.bootstrap_servers_of("EXT"), api_timeout_ms=5_000, security=secured) as cluster:
                return len(cluster.nodes()) == 1
        except AuthenticationFailed:
            return False

    with KohortServer(**settings) as server, Cluster(server.bootstrap_servers) as admin:
        assert not gets_in(server, "one")
        admin.add_scram_user("alice", "one")
        assert gets_in(server, "one")
        admin.add_scram_user("alice", "two")
        assert gets_in(server, "two")
        assert not gets_in(server, "one")
        server.restart()
        assert gets_in(server, "two")
        admin.delete_scram_user("alice")
        assert not gets_in(server, "two")
