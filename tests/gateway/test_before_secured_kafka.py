"""Clients of librdkafka log in at Apache Kafka through a gateway, which knows their user then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from gateway_server import GatewayServer, wait_for
from produce import create_topic
from secured_kafka import PASSWORD, USER, WAYS, SecuredKafka, secured_kafka

from kohort.client.security.security import Security

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(class_path, tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.mark.parametrize("mechanism", WAYS)
def test_clients_log_in_at_kafka(mechanism: str, kafka: SecuredKafka, unique: str) -> None:
    create_topic(kafka.plain, unique, 1)
    login = {"sasl.username": USER, "sasl.password": PASSWORD}
    if mechanism == "OAUTHBEARER":
        login = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
    with GatewayServer(kafka.secured, upstream_security=Security.of(WAYS[mechanism])) as gateway:
        bootstrap = gateway.wait_for_upstream().bootstrap_servers
        settings = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        producer = Producer({**settings, **login})
        producer.produce(unique, b"v")
        assert producer.flush(10) == 0
        consumer = Consumer({**settings, **login, "group.id": unique, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([unique])
            wait_for(lambda: (found := consumer.poll(0.1)) is not None and found.value() == b"v", "the record")
            assert gateway.gateway is not None
            links = gateway.gateway.links
            wait_for(lambda: {link.user for link in list(links)} == {USER}, "all connections are the user's")
        finally:
            consumer.close()
