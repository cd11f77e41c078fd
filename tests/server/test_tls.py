"""TLS listeners, with raw clients: who gets in, what the log says, renewed certificates, back pressure."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from echo_broker import fetched
from edges import Edge, eventually
from own_certificates import PASSWORD, issue
from secured import CA, OTHER_CA, SERVER, ca_file, client_context, closed, connected, key_file, private, tls_settings

from kohort.broker.turn import Opened
from kohort.config import ConfigError
from kohort.server.security import door as door_module
from kohort.server.security.principals import Rules
from kohort.testing import KohortServer


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        assert chunk, f"closed after {len(data)} of {size} bytes"
        data += chunk
    return bytes(data)


def echoed(sock: socket.socket, data: bytes = b"hello") -> bytes:
    sock.sendall(framed(data))
    return exactly(sock, 4 + len(data))[4:]


def refused(address: str, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 the server refuses after the client's last message."""
    try:
        with connected(address, context) as client:
            client.sendall(framed(b"hello"))
            return closed(client)
    except (ssl.SSLError, ConnectionError):
        return True


def opened(edge: Edge) -> list[Opened]:
    return [event for turn in edge.broker.turns for event in turn if isinstance(event, Opened)]


def logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: text in caplog.text


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort")


@pytest.mark.conformance("TL1")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_served(edge_of: Callable[..., Edge], tmp_path: Path, version: ssl.TLSVersion) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    context = client_context()
    context.minimum_version = context.maximum_version = version
    with connected(edge.bootstrap_servers, context) as client:
        assert client.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
        assert [echoed(client, text) for text in (b"a", b"write", b"at once")] == [b"a", b"write", b"at once"]
    [event] = opened(edge)
    assert str(event.principal) == "User:ANONYMOUS"
    assert event.listener == "SSL"


@pytest.mark.conformance("TL1")
def test_a_version_may_be_switched_off(
    edge_of: Callable[..., Edge], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(**tls_settings(tmp_path, ssl_enabled_protocols="TLSv1.3"))
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        connected(edge.bootstrap_servers, context)
    eventually(logged(caplog, "ssl.enabled.protocols"))
    with connected(edge.bootstrap_servers, client_context()) as client:
        assert echoed(client) == b"hello"


@pytest.mark.conformance("TL2")
def test_keys_come_from_pem_text_and_pkcs12(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    store = private(tmp_path, "server.p12", SERVER.pkcs12(CA))
    locked = private(tmp_path, "locked.pem", SERVER.certificate_pem + SERVER.locked_key_pem)
    for settings in (
        {"ssl_keystore_location": store, "ssl_keystore_password": PASSWORD},
        {"ssl_keystore_location": locked, "ssl_key_password": PASSWORD},
        {
            "ssl_keystore_location": "",
            "ssl_keystore_certificate_chain": SERVER.certificate_pem,
            "ssl_keystore_key": SERVER.key_pem,
        },
    ):
        edge = edge_of(**tls_settings(tmp_path, **settings))
        with connected(edge.bootstrap_servers, client_context()) as client:
            assert echoed(client) == b"hello"


@pytest.mark.conformance("TL2")
def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    mixed = private(tmp_path, "mixed.pem", SERVER.certificate_pem + issue(CA, "localhost").key_pem)
    locked = private(tmp_path, "locked.pem", SERVER.certificate_pem + SERVER.locked_key_pem)
    jks = private(tmp_path, "server.jks", b"\xfe\xed\xfe\xed....")
    wrong = "no-such-pa55word"
    for settings, words in (
        ({"ssl_keystore_location": ""}, ["needs a certificate", "ssl.keystore.location"]),
        ({"ssl_keystore_location": "/nowhere.pem"}, ["ssl.keystore.location", "/nowhere.pem"]),
        ({"ssl_keystore_location": mixed}, ["ssl.keystore.location", "cannot be used"]),
        ({"ssl_keystore_location": locked, "ssl_key_password": wrong}, ["ssl.key.password"]),
        ({"ssl_keystore_location": jks}, ["keytool -importkeystore"]),
        ({"ssl_enabled_protocols": "SSLv3"}, ["ssl.enabled.protocols", "TLSv1.2"]),
        ({"ssl_client_auth": "required"}, ["ssl.truststore.location"]),
        ({"ssl_principal_mapping_rules": "RULE:x"}, ["ssl.principal.mapping.rules"]),
    ):
        with pytest.raises(ConfigError) as refused:
            KohortServer(**tls_settings(tmp_path, **settings)).start()
        assert all(word in str(refused.value) for word in words), refused.value
        assert wrong not in str(refused.value)


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    path = Path(key_file(tmp_path))
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"chmod 600 .*server\.pem"):
        KohortServer(listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(path)).start()


@pytest.mark.conformance("TL1", "AU11")
def test_a_clients_certificate_names_it(
    edge_of: Callable[..., Edge], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust = {"ssl_truststore_location": ca_file(tmp_path), "ssl_client_auth": "required"}
    edge = edge_of(**tls_settings(tmp_path, **trust))
    own = issue(CA, name="alice")
    with connected(edge.bootstrap_servers, client_context(CA, own, tmp_path)) as client:
        assert echoed(client) == b"hello"
    assert [str(event.principal) for event in opened(edge)] == ["User:CN=alice"]
    for other in (None, issue(OTHER_CA, name="alice"), issue(CA, name="alice", expired=True)):
        assert refused(edge.bootstrap_servers, client_context(CA, other, tmp_path))
    assert len(opened(edge)) == 1
    eventually(logged(caplog, "the client sent no certificate (ssl.client.auth=required)"))
    eventually(logged(caplog, "certificate has expired"))


@pytest.mark.conformance("TL1", "TL4")
def test_a_certificate_may_be_left_out_and_rules_make_names(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    trust = {"ssl_truststore_location": ca_file(tmp_path), "ssl_client_auth": "requested"}
    edge = edge_of(**tls_settings(tmp_path, **trust, ssl_principal_mapping_rules="RULE:^CN=(a.*)$/$1/U"))
    for own in (None, issue(CA, name="alice")):
        with connected(edge.bootstrap_servers, client_context(CA, own, tmp_path)) as client:
            assert echoed(client) == b"hello"
    assert [str(event.principal) for event in opened(edge)] == ["User:ANONYMOUS", "User:ALICE"]
    assert refused(edge.bootstrap_servers, client_context(CA, issue(CA, name="bob"), tmp_path))
    assert len(opened(edge)) == 2


@pytest.mark.conformance("TL4")
def test_rules_of_principals() -> None:
    kafka = (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT"
    )
    rules = Rules(kafka)
    for subject, name in (
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=webapp,O=Org", "WEBAPP"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ):
        assert rules.name(subject) == name
    assert Rules("RULE:^CN=x$/x/").name("CN=y") is None
    assert Rules("").name("CN=y") == Rules("DEFAULT").name("CN=y") == "CN=y"
    assert Rules(r"RULE:^CN=(.*)$/a\/$1/").name("CN=y") == "a/y"
    for wrong in ("RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "DEFAULT DEFAULT", "RULE:a/b/X"):
        with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
            Rules(wrong)


@pytest.mark.conformance("TL9")
def test_plain_bytes_at_a_tls_listener_are_named(
    edge_of: Callable[..., Edge], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    with edge.wire() as client:
        client.push(b"\0\x12\0\0plain")
        assert client.is_closed
    eventually(logged(caplog, "a client without TLS"))


@pytest.mark.conformance("TL9")
def test_tls_at_a_plain_listener_is_named(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connected(edge.bootstrap_servers, client_context())
    eventually(logged(caplog, "a TLS client came to a listener without TLS"))


@pytest.mark.conformance("TL5")
def test_a_handshake_has_a_limited_time(
    edge_of: Callable[..., Edge], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(**tls_settings(tmp_path, ssl_handshake_timeout_ms=100))
    with edge.wire() as silent, edge.wire() as slow:
        slow.sendall(b"\x16\x03")
        assert silent.is_closed
        assert slow.is_closed
    eventually(logged(caplog, "the TLS handshake took longer than 0.1 s"))
    assert not opened(edge)
    assert edge.connections.at_door == 0
    assert not edge.connections._of_host


@pytest.mark.conformance("AU4")
def test_half_open_connections_are_limited(
    edge_of: Callable[..., Edge], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "MOST_GUESTS", 3)
    edge = edge_of(**tls_settings(tmp_path))
    idle = [edge.wire() for _ in range(4)]
    assert idle[0].is_closed
    eventually(lambda: edge.connections.at_door == 3)
    with connected(edge.bootstrap_servers, client_context()) as client:
        assert echoed(client) == b"hello"
    for wire in idle:
        wire.close()


@pytest.mark.conformance("AU4")
def test_bytes_of_a_handshake_are_limited(
    edge_of: Callable[..., Edge], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    with edge.wire() as client:
        record = b"\x16\x03\x01\x40\x00" + b"\x01\x7f\xff\xff" + bytes(0x4000 - 4)
        try:
            for _ in range(200):
                client.sendall(record)
            while client.recv(100):  # an alert
                pass
        except ConnectionError:
            pass
    eventually(logged(caplog, "TLS connection closed"))
    eventually(lambda: edge.connections.at_door == 0)


def test_max_connections_count_those_at_the_door(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path, max_connections=2))
    with connected(edge.bootstrap_servers, client_context()) as client, edge.wire() as waiting:
        assert echoed(client) == b"hello"
        eventually(lambda: edge.connections.at_door == 1)
        with edge.wire() as third:
            third.sendall(b"\0")  # a client without TLS: it is closed when it is read
            third.settimeout(0.05)
            assert not third.is_closed
            waiting.close()
            third.settimeout(10)
            assert third.is_closed
        with connected(edge.bootstrap_servers, client_context()) as fourth:
            assert echoed(fourth) == b"hello"


@pytest.mark.conformance("TL3")
def test_a_renewed_certificate_is_used_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def serial(address: str) -> int:
        with connected(address, client_context()) as client:
            return int(client.getpeercert()["serialNumber"], 16)  # type: ignore[index,call-overload,arg-type]

    with KohortServer(**tls_settings(tmp_path)) as server:
        old = connected(server.bootstrap_servers, client_context())
        assert serial(server.bootstrap_servers) == SERVER.certificate.serial_number
        renewed = issue(CA, "localhost", "127.0.0.1", "more.example.org")
        key_file(tmp_path, renewed)
        server.renew_certificates()
        assert serial(server.bootstrap_servers) == renewed.certificate.serial_number
        for wrong, why in (
            (issue(CA, "localhost", "127.0.0.1", "more.example.org", name="other"), "ssl.allow.dn.changes=true"),
            (issue(CA, "localhost"), "ssl.allow.san.changes=true"),
        ):
            key_file(tmp_path, wrong)
            server.renew_certificates()
            assert why in caplog.text
        private(tmp_path, "server.pem", "nonsense")
        server.renew_certificates()
        assert "is neither PEM nor PKCS12" in caplog.text
        assert serial(server.bootstrap_servers) == renewed.certificate.serial_number
        old.settimeout(0.05)
        with pytest.raises(TimeoutError):  # it is open
            old.recv(1)
        old.close()


@pytest.mark.conformance("TL3")
def test_a_changed_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kohort.server.security.entrance.LOOK_S", 0.02)
    with KohortServer(**tls_settings(tmp_path)):
        time.sleep(0.1)
        assert "was read again" not in caplog.text
        key_file(tmp_path, issue(CA, "localhost", "127.0.0.1"))
        eventually(logged(caplog, "a certificate was read again"))


# -- back pressure: the limits count the bytes of TLS connections as those of plain ones


def test_unread_answers_of_tls_connections_are_counted(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    size = 6 << 20
    with connected(edge.bootstrap_servers, client_context()) as client:
        client.sendall(framed(b"\0\1%d" % size))
        eventually(lambda: edge.connections._open)
        connection = next(iter(edge.connections._open.values()))
        eventually(lambda: connection.unsent > size // 8)
        eventually(lambda: connection in edge.connections.outflow._writers)
        assert exactly(client, 4 + size)[4:] == fetched(size)
        eventually(lambda: connection.unsent == 0)
        assert echoed(client) == b"hello"


def test_a_tls_client_that_does_not_read_is_closed(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path, queued_max_response_bytes=1 << 20))
    with connected(edge.bootstrap_servers, client_context()) as client:
        client.sendall(framed(b"\0\1%d" % (8 << 20)))
        eventually(lambda: not edge.connections._open)


def test_requests_of_a_tls_client_wait_behind_a_parked_one(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    piece = b"x" * 65_536
    with connected(edge.bootstrap_servers, client_context()) as client:
        client.sendall(framed(b"park"))
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.sendall(framed(piece) * 1000)
        held = edge.connections.inflow.total
        assert 0 < held < 4 << 20  # the rest waits in the system's buffers
        [connection] = edge.connections._open.values()
        assert connection._paused
        with connected(edge.bootstrap_servers, client_context()) as other:
            assert echoed(other, b"wake") == b"wake"


def test_requests_in_pieces_of_one_byte(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    with connected(edge.bootstrap_servers, client_context()) as client:
        for byte in framed(b"slow") + framed(b"at once"):
            client.sendall(bytes([byte]))
        assert exactly(client, 8) == framed(b"slow")
        assert exactly(client, 11) == framed(b"at once")
        large = bytes(3_000_000)
        assert echoed(client, large) == large


def test_the_server_says_goodbye(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    """A client that gets no close_notify takes the end for an attack."""
    edge = edge_of(**tls_settings(tmp_path))
    context = client_context()
    where, _, port = edge.bootstrap_servers.rpartition(":")
    with context.wrap_socket(
        socket.create_connection((where, int(port)), 10), server_hostname="localhost", suppress_ragged_eofs=False
    ) as client:
        client.sendall(framed(b"bad"))
        assert client.recv(1) == b""


def test_a_storm_of_handshakes_leaves_time_for_others(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    """Handshakes share half of the loop: they are done in passes of 4 ms."""
    passes: list[int] = []
    done = 0

    class Slow:
        def go_on(self) -> None:
            nonlocal done
            done += 1
            time.sleep(0.001)

    edge = edge_of(**tls_settings(tmp_path))
    entrance: Any = edge._running._entrance

    def storm() -> None:
        for _ in range(40):
            entrance.door.queue(Slow())

    with connected(edge.bootstrap_servers, client_context()) as client:
        assert echoed(client) == b"hello"
        edge._loop.call_soon_threadsafe(storm)
        while done < 40:
            assert echoed(client, b"at once") == b"at once"
            passes.append(done)
    assert len(set(passes)) > 5, "no request was served between the handshakes"


def test_closed_is_seen(edge_of: Callable[..., Edge], tmp_path: Path) -> None:
    edge = edge_of(**tls_settings(tmp_path))
    with connected(edge.bootstrap_servers, client_context()) as client:
        assert echoed(client) == b"hello"
        edge.stop()
        assert closed(client)
