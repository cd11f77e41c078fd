"""Every way of authentication against Apache Kafka: its use, and the error when it fails."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from own_certificates import authority, issue, written
from secured_kafka import BRIEF, BRIEF_S, CA, SECURED, TRUSTING, WAYS, SecuredKafka, secured_kafka

from kohort.client import AuthenticationFailed, BlockingCoordinator, Coordinator, KafkaError, Security, lead
from kohort.client.cluster import Cluster
from kohort.client.records import records
from kohort.wire.batches import NewRecord
from kohort.wire.errors import ErrorCode

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]
EACH = pytest.mark.parametrize("mechanism", WAYS)
PATIENCE_S = 30


@pytest.fixture(scope="module")
def kafka(class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(class_path, tmp_path_factory.mktemp("secured")) as running:
        yield running


@EACH
def test_topics_records_and_offsets(kafka: SecuredKafka, mechanism: str) -> None:
    topic, group = f"topic-{mechanism}", f"group-{mechanism}"
    with Cluster(kafka.secured, security=WAYS[mechanism]) as cluster:
        cluster.create_topic(topic, 1)
        cluster.produce(topic, 0, [NewRecord(None, b"one", 0), NewRecord(None, b"two", 0)])
        [fetched] = cluster.fetch({(topic, 0): 0})
        assert [record.value for record in records(fetched, 0)] == [b"one", b"two"]
        cluster.commit(group, {(topic, 0): 2})
        assert cluster.committed(group)[topic, 0].offset == 2


@EACH
def test_leader_election(kafka: SecuredKafka, mechanism: str) -> None:
    async def elected() -> bool:
        async with asyncio.timeout(PATIENCE_S), lead(kafka.secured, f"lead-{mechanism}", security=WAYS[mechanism]) as e:
            async for term in e:
                return term.valid
        return False

    assert asyncio.run(elected())


class _Alone:
    protocol_type = "alone"

    def metadata(self) -> Mapping[str, bytes]:
        return {"p": b""}

    def perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Mapping[str, bytes]:
        return {member.member_id: b"all" for member in members}

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        self.assignment = assignment


class Blocking(_Alone, BlockingCoordinator):
    pass


class Asyncio(_Alone, Coordinator):
    pass


@EACH
def test_members_in_threads(kafka: SecuredKafka, mechanism: str) -> None:
    with Blocking(kafka.secured, f"blocking-{mechanism}", security=WAYS[mechanism]) as member:
        assert member.ensure_active_group(PATIENCE_S * 1000)
        assert member.assignment == b"all"


@EACH
def test_the_same_settings_for_librdkafka(kafka: SecuredKafka, mechanism: str) -> None:
    """The writer of the Spark sink."""
    from confluent_kafka import Consumer, Producer

    topic = f"librdkafka-{mechanism}"
    security = Security.of(WAYS[mechanism])
    with Cluster(kafka.secured, security=security) as cluster:
        cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": kafka.secured, **security.librdkafka()})
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    reading = {"bootstrap.servers": kafka.secured, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(reading | security.librdkafka())
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"value"


def test_a_certificate_of_the_client(kafka: SecuredKafka) -> None:
    own = issue(CA, name="alice")
    properties = {"security.protocol": "SSL", **TRUSTING, "ssl.keystore.certificate.chain": own.certificate_pem}
    with Cluster(kafka.mutual, security=properties | {"ssl.keystore.key": own.key_pem}) as cluster:
        assert cluster.nodes()


# -- what is said when it fails


def failure(address: str, security: Mapping[str, str] | Security) -> KafkaError:
    patience = {"api_timeout_ms": 1_000, "bootstrap_timeout_ms": 1_000}
    with Cluster(address, security=security, **patience) as cluster, pytest.raises(KafkaError) as failed:
        cluster.nodes()
    return failed.value


@pytest.mark.parametrize("mechanism", [name for name in WAYS if name != "OAUTHBEARER"])
def test_wrong_passwords(kafka: SecuredKafka, mechanism: str) -> None:
    error = failure(kafka.secured, WAYS[mechanism] | {"sasl.password": "wrong-pa55"})
    assert isinstance(error, AuthenticationFailed)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong-pa55" not in str(error)

    async def join() -> None:
        async with Asyncio(kafka.secured, "g", security=WAYS[mechanism] | {"sasl.password": "wrong"}) as member:
            await member.ensure_active_group()

    with pytest.raises(AuthenticationFailed):
        asyncio.run(join())


def test_an_invalid_token(kafka: SecuredKafka) -> None:
    properties = SECURED | {"sasl.mechanism": "OAUTHBEARER"}
    error = failure(kafka.secured, Security.of(properties, token_provider=lambda: "nonsense"))
    assert isinstance(error, AuthenticationFailed)
    assert "OAUTHBEARER" in error.message


def test_security_settings_that_do_not_fit_the_listener(kafka: SecuredKafka) -> None:
    stranger = issue(authority("another"), name="alice")
    tls = {"security.protocol": "SSL", **TRUSTING}
    plain = WAYS["PLAIN"]
    cases = [
        (kafka.brief, BRIEF | {"sasl.mechanism": "PLAIN"}, "UNSUPPORTED_SASL_MECHANISM.*broker offers SCRAM-SHA-256"),
        (kafka.plain, BRIEF, "this listener knows no SASL: security.protocol would be PLAINTEXT"),
        (kafka.secured, {}, "answered in TLS: security.protocol would be SSL or SASL_SSL"),
        (kafka.secured, tls, "closed the connection while Metadata was in flight, as a listener with SASL does"),
        (kafka.brief, {}, "closed the connection while Metadata was in flight, as a listener with SASL does"),
        (kafka.plain, tls, "as a listener without TLS does; see security.protocol"),
        (kafka.brief, plain, "as a listener without TLS does; see security.protocol"),
        (kafka.mutual, {"security.protocol": "SSL"}, "no authority that this client trusts has signed it"),
        (kafka.mutual, tls, "see ssl.keystore.location"),
        (
            kafka.mutual,
            tls | {"ssl.keystore.certificate.chain": stranger.certificate_pem, "ssl.keystore.key": stranger.key_pem},
            "the broker refused the TLS handshake",
        ),
        (kafka.secured.replace("127.0.0.1", "127.0.0.2"), plain, "refused"),
    ]
    for address, properties, why in cases:
        assert re.search(why, failure(address, properties).message), (properties, why)


# -- for a limited time (KIP-368)


def test_a_member_authenticates_again(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one connection, without losing its place; Kafka closes a connection on which a request comes too late."""
    opened: list[tuple[Any, ...]] = []
    connect = asyncio.BaseEventLoop.create_connection

    def noted(*to: Any, **options: Any) -> Any:
        opened.append(to)
        return connect(*to, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", noted)

    async def story() -> None:
        async with Asyncio(kafka.brief, "brief", security=BRIEF, heartbeat_interval_ms=200) as member:
            async with asyncio.timeout(PATIENCE_S):
                await member.ensure_active_group()
            generation, connections = member.generation, len(opened)
            ended = asyncio.get_running_loop().time() + 1.5 * BRIEF_S
            while asyncio.get_running_loop().time() < ended:
                assert member.generation_if_stable == generation
                await asyncio.sleep(0.1)
            assert len(opened) == connections > 0

    asyncio.run(story())


def test_a_blocking_client_authenticates_again(kafka: SecuredKafka) -> None:
    with Cluster(kafka.brief, security=BRIEF) as cluster:
        [node_id] = cluster.nodes()
        connection = cluster.connection(node_id)
        ended = time.monotonic() + 1.5 * BRIEF_S
        while time.monotonic() < ended:
            cluster.topics()
        assert cluster.connection(node_id) is connection


# -- commands and Spark


def test_commands_and_a_pipeline(kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    properties = WAYS["SCRAM-SHA-512"] | {"ssl.truststore.location": written(tmp_path, "ca.pem", CA.certificate_pem)}
    del properties["ssl.truststore.certificates"]
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def kohort(*words: str, stdin: str = "") -> str:
        command = [sys.executable, "-m", "kohort", *words, "-b", kafka.secured, "--command-config", str(config)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kohort("topics", "create", "flights", "--partitions", "2")
    kohort("produce", "flights", stdin="".join(f"flight {n}\n" for n in range(100)))
    assert kohort("consume", "flights", "--from-beginning", "--exit-at-end").count("flight ") == 100
    kohort("pipeline", "ingest", "-t", "flights", "--to", str(tmp_path / "lake"), "-g", "lake", "-o", "json")
    with Cluster(kafka.secured, security=Security.read(config)) as cluster:
        assert sum(place.offset for place in cluster.committed("lake").values()) == 100
