"""TLS, SASL and ACLs of the Python clients, for python_driver.py.

`enter` opens a producer with the settings of a case, sends a record and reads it in a group; `send` uses the producer
again. Both raise what the client raises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """`mechanism` is empty where `own`, a file with a certificate and its key, is what the client shows."""

    bootstrap: str
    mechanism: str
    user: str
    password: str
    ca: str
    own: str
    token: str
    """For OAUTHBEARER."""
    token_url: str
    """An issuer, which gives a token for user and password."""
    patience_s: float

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"


class ConfluentSecurity:
    """librdkafka tells a callback why it cannot connect, and tries again."""

    def __init__(self) -> None:
        self._secured: dict[str, Any] = {}
        self._said: dict[str, list[str]] = {}

    def enter(self, name: str, topic: str, value: str, **case: Any) -> None:
        from confluent_kafka import Consumer, KafkaError, Producer

        settings = _librdkafka(Case(**case))
        said = self._said[name] = []

        def note(error: Any) -> None:
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                said.append(str(error))

        self._secured[name] = Producer(settings | {"error_cb": note})
        self.send(name, topic, value, case["patience_s"])
        consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        message = consumer.poll(case["patience_s"])
        consumer.close()
        assert message is not None, "nothing to read"
        assert message.error() is None, message.error()
        assert message.value() == value.encode()

    def send(self, name: str, topic: str, value: str, patience_s: float) -> None:
        producer, failures = self._secured[name], list[str]()
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(str(error)) if error else None)
        ends = time.monotonic() + patience_s
        while producer.flush(0.05) and not self._said[name] and time.monotonic() < ends:
            pass
        left = len(producer)
        producer.purge()
        producer.flush(1)
        assert not left, f"not sent: {self._said[name]}"
        assert not failures, failures[0]


def _librdkafka(case: Case) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": case.bootstrap,
        "security.protocol": case.protocol,
        "ssl.ca.location": case.ca,
        "topic.metadata.refresh.interval.ms": 1_000,
        "log_level": 0,
    }
    if case.token:
        at = "sasl.oauthbearer."
        return settings | {
            "sasl.mechanism": case.mechanism,
            f"{at}method": "oidc",
            f"{at}token.endpoint.url": case.token_url,
            f"{at}client.id": case.user,
            f"{at}client.secret": case.password,
            f"{at}scope": "kafka",
        }
    if case.mechanism:
        sasl = {"sasl.mechanism": case.mechanism, "sasl.username": case.user, "sasl.password": case.password}
        return settings | sasl
    return settings | {"ssl.certificate.location": case.own, "ssl.key.location": case.own}


class KafkaPythonSecurity:
    def __init__(self) -> None:
        self._secured: dict[str, Any] = {}

    def enter(self, name: str, topic: str, value: str, **case: Any) -> None:
        from kafka import KafkaConsumer, KafkaProducer

        settings = _kafka_python(Case(**case))
        patience_ms = int(case["patience_s"] * 1000)
        self._secured[name] = KafkaProducer(bootstrap_timeout_ms=patience_ms, enable_idempotence=False, **settings)
        self.send(name, topic, value, case["patience_s"])
        reading = {"group_id": topic, "auto_offset_reset": "earliest", "consumer_timeout_ms": patience_ms}
        consumer = KafkaConsumer(topic, **reading, **settings)
        read = next(consumer).value
        consumer.close()
        assert read == value.encode()

    def send(self, name: str, topic: str, value: str, patience_s: float) -> None:
        self._secured[name].send(topic, value.encode()).get(patience_s)


def _kafka_python(case: Case) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": case.bootstrap,
        "security_protocol": case.protocol,
        "ssl_cafile": case.ca,
        "metadata_max_age_ms": 1_000,
    }
    if case.token:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):
            def token(self) -> str:
                return case.token

        return settings | {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": Provider()}
    if case.mechanism:
        return settings | _sasl(case)
    return settings | {"ssl_certfile": case.own, "ssl_keyfile": case.own}


def _sasl(case: Case) -> Mapping[str, str]:
    return {
        "sasl_mechanism": case.mechanism,
        "sasl_plain_username": case.user,
        "sasl_plain_password": case.password,
    }


class AiokafkaSecurity:
    def __init__(self) -> None:
        self._secured: dict[str, Any] = {}

    def enter(self, name: str, topic: str, value: str, **case: Any) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        async def run() -> None:
            settings = _aiokafka(Case(**case))
            producer = self._secured[name] = AIOKafkaProducer(**settings)
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            await producer.send_and_wait(topic, value.encode())
            consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
            await consumer.start()
            try:
                read = await asyncio.wait_for(consumer.getone(), case["patience_s"])
            finally:
                await consumer.stop()
            assert read.value == value.encode()

        self._run(run())

    def send(self, name: str, topic: str, value: str, patience_s: float) -> None:
        self._run(asyncio.wait_for(self._secured[name].send_and_wait(topic, value.encode()), patience_s))

    def _run(self, work: Any) -> Any:
        raise NotImplementedError


def _aiokafka(case: Case) -> dict[str, Any]:
    from aiokafka.helpers import create_ssl_context

    own = {} if case.mechanism else {"certfile": case.own, "keyfile": case.own}
    context = create_ssl_context(cafile=case.ca, **own)
    context.check_hostname = True
    settings = {"bootstrap_servers": case.bootstrap, "security_protocol": case.protocol, "ssl_context": context}
    if case.token:
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):
            async def token(self) -> str:
                return case.token

        return settings | {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": Provider()}
    return settings | _sasl(case) if case.mechanism else settings
