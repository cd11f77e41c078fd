"""TLS ends at the gateway; SASL passes through, and the coordinator knows the user."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from gateway_server import GatewayServer, wait_for
from secured import ca_file, tls_settings

from kohort.client.admin.acls import ALLOW, LITERAL, OPERATIONS, PREFIXED, RESOURCES, AclBinding, AclFilter
from kohort.client.cluster import Cluster
from kohort.client.errors import AuthenticationFailed, ConnectionFailed, ServerError
from kohort.client.security.security import Security
from kohort.client.wire.blocking_connection import Connection
from kohort.config import AUTHORIZER
from kohort.gateway.sasl import Login
from kohort.testing import KohortServer
from kohort.wire.codec import decode, encode_request
from kohort.wire.errors import ErrorCode, ProtocolError
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.schemas.list_groups import ListGroupsRequest
from kohort.wire.schemas.metadata import MetadataRequest, MetadataResponse
from kohort.wire.schemas.sasl_handshake import SaslHandshakeRequest

USERS = {"gateway": "g-secret", "alice": "a-secret"}


@pytest.fixture(scope="module")
def secured() -> Iterator[KohortServer]:
    with KohortServer(security="SASL_SSL", users=USERS) as server:
        yield server


def security_of(server: KohortServer, user: str, mechanism: str = "SCRAM-SHA-512") -> Security:
    return Security.of({name: str(value) for name, value in properties(server, user, mechanism).items()})


def properties(server: KohortServer, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    found = server.client_config(user=user, mechanism=mechanism)
    del found["bootstrap.servers"]
    return found


@pytest.fixture(scope="module")
def gateway(secured: KohortServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """Its listener has TLS of its own."""
    own = tls_settings(tmp_path_factory.mktemp("tls"))
    upstream = secured.bootstrap_servers_of("SECURED")
    with GatewayServer(upstream, upstream_security=security_of(secured, "gateway"), **own) as server:
        yield server.wait_for_upstream()


def clients(gateway: GatewayServer, secured: KohortServer, folder: Path, mechanism: str) -> dict[str, Any]:
    of_user = properties(secured, "alice", mechanism) | {"ssl.ca.location": ca_file(folder)}
    return of_user | {"bootstrap.servers": gateway.bootstrap_servers_of("SSL")}


def test_clients_log_in_at_the_upstream(
    gateway: GatewayServer, secured: KohortServer, tmp_path: Path, unique: str
) -> None:
    secured.create_topic(unique, 2)
    settings = clients(gateway, secured, tmp_path, "SCRAM-SHA-256")
    producer = Producer(settings)
    producer.produce(unique, b"v", partition=1)
    assert producer.flush(10) == 0
    consumer = Consumer(settings | {"group.id": unique, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([unique])
        wait_for(lambda: (found := consumer.poll(0.1)) is not None and found.value() == b"v", "the record")
        principals = {link.user for link in gateway.gateway.links}
        assert principals == {"alice"}
    finally:
        consumer.close()


def test_groups_take_a_login(gateway: GatewayServer, secured: KohortServer, tmp_path: Path) -> None:
    host, _, port = gateway.bootstrap_servers_of("SSL").rpartition(":")
    tls = Security.of({"security.protocol": "SSL", "ssl.ca.location": ca_file(tmp_path)})
    with closing(Connection(host, int(port), security=tls)) as guest, pytest.raises(ConnectionFailed):
        guest.request(DescribeGroupsRequest(groups=("g",)), DescribeGroupsResponse)
    wrong = clients(gateway, secured, tmp_path, "SCRAM-SHA-512") | {"sasl.password": "wrong"}
    address = wrong.pop("bootstrap.servers")
    with pytest.raises(AuthenticationFailed), Cluster(address, security=wrong) as cluster:
        cluster.list_groups()
    right = wrong | {"sasl.password": USERS["alice"]}
    with Cluster(address, security=right) as cluster:
        assert cluster.list_groups() is not None
        assert cluster.topics()


def test_groups_have_the_acls_of_the_upstream(tmp_path: Path, unique: str) -> None:
    rights = {"authorizer_class_name": AUTHORIZER, "super_users": "User:gateway;User:ANONYMOUS"}
    own = tls_settings(tmp_path, **rights)
    with KohortServer(security="SASL_SSL", users=USERS, **rights) as upstream, upstream._cluster() as admin:
        admin.create_topic(unique)
        for resource, name, pattern, operation in (
            ("topic", unique, LITERAL, "read"), ("group", "a-", PREFIXED, "read"),
        ):  # fmt: skip
            of = RESOURCES[resource], name, pattern, "User:alice", "*", OPERATIONS[operation], ALLOW
            admin.create_acls([AclBinding(*of)])
        address = upstream.bootstrap_servers_of("SECURED")
        with GatewayServer(address, upstream_security=security_of(upstream, "gateway"), **own) as gateway:
            gateway.wait_for_upstream()
            settings = clients(gateway, upstream, tmp_path, "SCRAM-SHA-256")
            with Cluster(settings.pop("bootstrap.servers"), security=settings) as alice:
                alice.topics([unique])
                alice.commit("a-1", {(unique, 0): 3})
                assert alice.committed("a-1")[unique, 0].offset == 3
                with pytest.raises(ServerError) as refused:
                    alice.commit("b-1", {(unique, 0): 3})
                assert refused.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
                admin.delete_acls(AclFilter(resource=RESOURCES["group"]))
                wait_for(lambda: not may_read(alice, "a-1"), "the right is gone")


def may_read(cluster: Cluster, group: str) -> bool:
    try:
        cluster.committed(group)
    except ServerError as error:
        return error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED
    return True


def bearer(**claims: str) -> bytes:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"auth=Bearer e30." + body + b"."


def test_the_name_is_that_of_the_login_that_succeeds() -> None:
    """A second login is not sent before the first one is answered."""
    login = Login()
    login.begins("SCRAM-SHA-512")
    with pytest.raises(ProtocolError):
        login.says(b"n,,n=mallory,r=x")
    login.has_begun()
    login.says(b"n,,n=mallory,r=x")
    login.answered(0, b"r=xy,s=,i=4096", 0, 0.0)
    login.says(b"c=biws,r=xy,p=z")
    with pytest.raises(ProtocolError):
        login.begins("SCRAM-SHA-512")
    with pytest.raises(ProtocolError):
        login.says(b"n,,n=admin,r=x")
    login.answered(0, SERVER_FINAL, 0, 0.0)
    assert (login.is_valid(0), login.user) == (True, "mallory")


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\1" + bearer(sub="admin") + b"\1" + bearer(sub="mallory") + b"\1\1",
        b"n,,\1" + bearer(scope="s") + b"\1\1",
        b"n,,\1\1",
    ],
)
def test_a_login_without_one_name_is_never_valid(message: bytes) -> None:
    """Of two tokens, Kafka checks the last one."""
    login = Login()
    login.begins("OAUTHBEARER")
    login.has_begun()
    login.says(message)
    login.answered(0, b"", 0, 0.0)
    assert not login.is_valid(0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("cut", [1, 1_000])
def test_old_clients_log_in_without_requests(
    secured: KohortServer, plain_gateway: GatewayServer, mechanism: str, cut: int
) -> None:
    """SaslHandshake 0: bare messages follow it."""
    with socket.create_connection(address_of(plain_gateway)) as client:
        client.settimeout(10)

        def ask(data: bytes) -> bytes:
            for at in range(0, len(data), cut):
                client.sendall(data[at : at + cut])
            return read(client, int.from_bytes(read(client, 4), "big"))

        assert ask(encode_request(SaslHandshakeRequest(mechanism=mechanism), 0, 1, "old"))[4:6] == b"\0\0"
        sasl = security_of(secured, "alice", mechanism).sasl
        assert sasl is not None
        conversation = sasl.begin(10_000)
        message = next(conversation)
        with suppress(StopIteration):
            while True:
                message = conversation.send(ask(len(message).to_bytes(4, "big") + message))
        listed = ask(encode_request(ListGroupsRequest(), 2, 2, "old"))
        assert listed[:4] == (2).to_bytes(4, "big")
        assert {link.user for link in plain_gateway.gateway.links} == {"alice"}
        metadata = ask(encode_request(MetadataRequest(topics=()), 1, 3, "old"))
        assert decode(MetadataResponse, 1, metadata, 4).brokers[0].port in plain_gateway.broker_ports()


@pytest.fixture(scope="module")
def plain_gateway(secured: KohortServer) -> Iterator[GatewayServer]:
    with GatewayServer(
        secured.bootstrap_servers_of("SECURED"), upstream_security=security_of(secured, "gateway")
    ) as server:
        yield server.wait_for_upstream()


def address_of(gateway: GatewayServer) -> tuple[str, int]:
    host, _, port = gateway.bootstrap_servers.rpartition(":")
    return host, int(port)


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (more := client.recv(size - len(data)))
        assert more, "the connection is closed"
    return data


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI"])
def test_bare_messages_that_make_no_login_pass_nothing(plain_gateway: GatewayServer, mechanism: str) -> None:
    """Requests behind a message, before it is answered, would not be read; and an unknown login never ends."""
    asked = encode_request(ListGroupsRequest(), 2, 2, "old")
    with socket.create_connection(address_of(plain_gateway)) as client:
        client.settimeout(10)
        client.sendall(encode_request(SaslHandshakeRequest(mechanism=mechanism), 0, 1, "old"))
        if mechanism == "PLAIN":
            read(client, int.from_bytes(read(client, 4), "big"))
            client.sendall((14).to_bytes(4, "big") + b"\0alice\0a-secre" + asked)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_another_claim_names_the_user() -> None:
    login = Login("user")
    login.begins("OAUTHBEARER")
    login.has_begun()
    login.says(b"n,,\1" + bearer(sub="1234", user="bob") + b"\1\1")
    login.answered(0, b"", 0, 0.0)
    assert login.user == "bob"


SERVER_FINAL = b"v=c2lnbmF0dXJl"
TOKEN = b"n,,\1auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IifQ.\1\1"


@pytest.mark.parametrize(
    ("mechanism", "messages", "user"),
    [
        ("PLAIN", [(b"\0bob\0secret", b"")], "bob"),
        ("SCRAM-SHA-512", [(b"n,,n=b=2Cb=3D,r=x", b"r=xy,s=,i=4096"), (b"c=biws,r=xy,p=z", SERVER_FINAL)], "b,b="),
        ("OAUTHBEARER", [(TOKEN, b"")], "bob"),
    ],
)
def test_a_login_is_valid_after_its_last_answer(mechanism: str, messages: list[tuple[bytes, bytes]], user: str) -> None:
    login = Login()
    login.begins(mechanism)
    login.has_begun()
    for said, answer in messages:
        assert not login.is_valid(0)
        login.says(said)
        login.answered(0, answer, 10.0, 100.0)
    assert (login.is_valid(109), login.is_valid(110), login.user) == (True, False, user)
    login.begins(mechanism)
    login.has_begun()
    login.says(b"")
    login.answered(58, b"", 0, 101.0)
    assert not login.is_valid(102)


def test_an_unknown_mechanism_is_never_valid() -> None:
    login = Login()
    login.begins("GSSAPI")
    login.has_begun()
    login.says(b"ticket")
    login.answered(0, b"", 0, 0)
    assert not login.is_valid(0)
