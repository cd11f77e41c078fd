"""Unmodified clients at listeners with TLS and SASL: each mechanism, a wrong password, a wrong host name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_certificates import authority, issue, written

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer

pytestmark = pytest.mark.client

CA = authority()
OTHER = authority("another authority")
PASSWORD = "wonder,land=1"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LISTENERS = {"INT": "PLAINTEXT", "TLS": "SSL", "SASL": "SASL_SSL", "OTHER": "SASL_SSL"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for name, issued in (
        ("server.pem", issue(CA, "localhost", "127.0.0.1")),
        ("elsewhere.pem", issue(CA, "elsewhere.example.org")),
        ("alice.pem", issue(CA, name="alice")),
    ):
        Path(written(folder, name, issued.certificate_pem + issued.key_pem)).chmod(0o600)
    written(folder, "ca.pem", CA.certificate_pem)
    written(folder, "other.pem", OTHER.certificate_pem)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[KohortServer]:
    settings: dict[str, Any] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.other.ssl.keystore.location": str(folder / "elsewhere.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    with KohortServer(**settings) as server:
        with Cluster(server.bootstrap_servers) as admin:
            for mechanism in MECHANISMS[1:]:
                admin.add_scram_user("alice", PASSWORD, mechanism=mechanism)
        yield server


def confluent(address: str, folder: Path, mechanism: str, password: str, ca: str) -> bool:
    """Produces and consumes a record. False if the client is refused, or refuses the server."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

    failures: list[KafkaError] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl.ca.location": str(folder / ca),
        "error_cb": failures.append,
        "log_level": 0,
    }
    if mechanism:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    else:
        settings |= {
            "ssl.certificate.location": str(folder / "alice.pem"),
            "ssl.key.location": str(folder / "alice.pem"),
        }
    topic = f"c-{mechanism}"
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    if producer.flush(4 if failures_expected(password, ca, address) else 20):
        assert any(e.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) for e in failures), failures
        producer.purge()
        return False
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        return message is not None and message.value() == b"hello"
    except KafkaException:
        return False
    finally:
        consumer.close()


def kafka_python(address: str, folder: Path, mechanism: str, password: str, ca: str) -> bool:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    settings: dict[str, Any] = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl_cafile": str(folder / ca),
    }
    if mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}
    else:
        settings |= {"ssl_certfile": str(folder / "alice.pem"), "ssl_keyfile": str(folder / "alice.pem")}
    topic = f"k-{mechanism}"
    quick = {"bootstrap_timeout_ms": 4_000} if failures_expected(password, ca, address) else {}
    try:
        producer = KafkaProducer(**settings, **quick)
        producer.send(topic, b"hello").get(timeout=20)
        producer.close()
    except (KafkaError, OSError):
        return False
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    try:
        return next(consumer).value == b"hello"
    finally:
        consumer.close()


def aiokafka(address: str, folder: Path, mechanism: str, password: str, ca: str) -> bool:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    own = {} if mechanism else {"certfile": str(folder / "alice.pem"), "keyfile": str(folder / "alice.pem")}
    context = create_ssl_context(cafile=str(folder / ca), **own)
    context.check_hostname = True
    settings: dict[str, Any] = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_SSL" if mechanism else "SSL",
        "ssl_context": context,
    }
    if mechanism:
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}
    topic = f"a-{mechanism}"

    async def run() -> bool:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except (KafkaError, OSError):
            await producer.stop()
            return False
        await producer.send_and_wait(topic, b"hello")
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        try:
            return bool((await asyncio.wait_for(consumer.getone(), 20)).value == b"hello")
        finally:
            await consumer.stop()

    return asyncio.run(run())


def failures_expected(password: str, ca: str, address: str) -> bool:
    return password != PASSWORD or ca != "ca.pem" or address in WRONG_NAME


WRONG_NAME: set[str] = set()
CLIENTS = [confluent, kafka_python, aiokafka]


@pytest.mark.conformance("AU6", "AU7", "TL1")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_right_password_gets_in_and_a_wrong_one_does_not(
    server: KohortServer, folder: Path, client: Any, mechanism: str
) -> None:
    address = server.bootstrap_servers_of("SASL")
    assert client(address, folder, mechanism, PASSWORD, "ca.pem")
    assert not client(address, folder, mechanism, "wrong", "ca.pem")


@pytest.mark.conformance("TL1", "AU11")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_certificate_gets_in(server: KohortServer, folder: Path, client: Any) -> None:
    assert client(server.bootstrap_servers_of("TLS"), folder, "", PASSWORD, "ca.pem")


@pytest.mark.conformance("TL1")
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_refuse_another_host_and_another_authority(server: KohortServer, folder: Path, client: Any) -> None:
    WRONG_NAME.add(server.bootstrap_servers_of("OTHER"))
    assert not client(server.bootstrap_servers_of("OTHER"), folder, "SCRAM-SHA-512", PASSWORD, "ca.pem")
    assert not client(server.bootstrap_servers_of("SASL"), folder, "SCRAM-SHA-512", PASSWORD, "other.pem")


# -- OAUTHBEARER


@pytest.fixture(scope="module")
def bearer_server() -> Iterator[KohortServer]:
    with KohortServer(security="SASL_SSL", users={"alice": PASSWORD}) as server:
        yield server


def bearer_confluent(server: KohortServer, token: str, topic: str) -> bool:
    from confluent_kafka import Consumer, KafkaError, Producer

    failures: list[KafkaError] = []
    settings = server.client_config(mechanism="OAUTHBEARER")
    settings |= {"oauth_cb": lambda _: (token, time.time() + 3600), "error_cb": failures.append, "log_level": 0}
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    if producer.flush(20 if token.count(".") == 2 else 4):
        assert any(failure.code() == KafkaError._AUTHENTICATION for failure in failures), failures
        producer.purge()
        return False
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        return message is not None and message.value() == b"hello"
    finally:
        consumer.close()


def bearer_kafka_python(server: KohortServer, token: str, topic: str) -> bool:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token

    settings = server.client_config()
    try:
        producer = KafkaProducer(
            bootstrap_servers=server.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_cafile=settings["ssl.ca.location"],
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            bootstrap_timeout_ms=20_000 if token.count(".") == 2 else 4_000,
        )
        producer.send(topic, b"hello").get(timeout=20)
        producer.close()
    except (KafkaError, OSError):
        return False
    return True


def bearer_aiokafka(server: KohortServer, token: str, topic: str) -> bool:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError
    from aiokafka.helpers import create_ssl_context

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return token

    async def run() -> bool:
        producer = AIOKafkaProducer(
            bootstrap_servers=server.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(server.client_config()["ssl.ca.location"])),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            # It does not notice that its token is refused, and waits for the topic.
            request_timeout_ms=20_000 if token.count(".") == 2 else 1_000,
        )
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"hello")
        except (KafkaError, OSError):
            return False
        finally:
            await producer.stop()
        return True

    return asyncio.run(run())


@pytest.mark.conformance("AU9", "AU10")
@pytest.mark.parametrize("client", [bearer_confluent, bearer_kafka_python, bearer_aiokafka])
def test_a_good_token_gets_in_and_another_one_does_not(bearer_server: KohortServer, client: Any) -> None:
    topic = client.__name__
    token = bearer_server.bearer_token("carol")
    assert client(bearer_server, token, topic)
    assert not client(bearer_server, token.rpartition(".")[0], topic)
