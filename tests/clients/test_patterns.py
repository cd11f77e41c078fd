"""Subscriptions by regular expression, of confluent-kafka's consumers with the consumer protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from produce import create_topic, produce

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]
SERVER: dict[str, object] = {}


class Reader:
    """A consumer of this process, which reads while something is waited for."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self.values: list[str] = []
        self.errors: list[str] = []

    def topics(self) -> set[str]:
        return {partition.topic for partition in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error():
            self.errors.append(str(message.error()))
        elif message is not None:
            self.values.append(message.value().decode())


def read_until(holds: Callable[[], bool], *readers: Reader, timeout: float = 30) -> float:
    """Let them read until it is so. Returns the seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < timeout, [(r.topics(), r.values, r.errors) for r in readers]
        for reader in readers:
            reader.poll()
    return time.monotonic() - began


@pytest.fixture
def readers(bootstrap: str, unique: str) -> Iterator[Callable[[], Reader]]:
    made: list[Reader] = []

    def make() -> Reader:
        made.append(Reader(bootstrap, unique))
        return made[-1]

    yield make
    for reader in made:
        reader.consumer.close()


@pytest.mark.conformance("N15")
def test_topics_that_match_are_read_also_those_that_come_later_until_they_go(
    bootstrap: str, unique: str, readers: Callable[[], Reader]
) -> None:
    for name in ("a", "b"):
        create_topic(bootstrap, f"{unique}-{name}", 2)
        produce("confluent", bootstrap, f"{unique}-{name}", [f"{name}{n}" for n in range(4)], 2)
    create_topic(bootstrap, f"other-{unique}-a", 1)
    reader = readers()
    reader.consumer.subscribe([f"^{unique}-.*"])
    read_until(lambda: len(reader.values) == 8, reader)
    assert reader.topics() == {f"{unique}-a", f"{unique}-b"}
    create_topic(bootstrap, f"{unique}-later", 1)
    produce("confluent", bootstrap, f"{unique}-later", ["later"], 1)
    read_until(lambda: "later" in reader.values, reader)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([f"{unique}-a"])[f"{unique}-a"].result(10)
    read_until(lambda: reader.topics() == {f"{unique}-b", f"{unique}-later"}, reader)
    assert sorted(reader.values) == sorted([f"{name}{n}" for name in "ab" for n in range(4)] + ["later"])


@pytest.mark.conformance("N15")
def test_members_with_other_patterns_and_names_share_what_they_have_in_common(
    bootstrap: str, unique: str, readers: Callable[[], Reader]
) -> None:
    for name in ("orders-eu", "orders-us", "payments"):
        create_topic(bootstrap, f"{unique}-{name}", 2)
    one, two = readers(), readers()
    one.consumer.subscribe([f"^{unique}-orders-.*", f"{unique}-payments"])
    two.consumer.subscribe([f"^{unique}-orders-(eu|us)", "^nothing-.*"])
    read_until(lambda: len(one.consumer.assignment()) == len(two.consumer.assignment()) == 3, one, two)
    assert f"{unique}-payments" not in two.topics()
    one.consumer.subscribe([f"{unique}-payments"])
    read_until(lambda: len(one.consumer.assignment()) == 2 and len(two.consumer.assignment()) == 4, one, two)
    assert one.topics() == {f"{unique}-payments"}


@pytest.mark.conformance("X2", "O24")
def test_offsets_of_topics_that_match_are_subscribed(
    bootstrap: str, unique: str, readers: Callable[[], Reader]
) -> None:
    topic = f"{unique}-a"
    create_topic(bootstrap, topic, 1)
    produce("confluent", bootstrap, topic, ["v"], 1)
    reader = readers()
    reader.consumer.subscribe([f"^{unique}-.*"])
    read_until(lambda: reader.values == ["v"], reader)
    reader.consumer.commit(asynchronous=False)
    committed = reader.consumer.committed([TopicPartition(topic, 0)])
    assert committed[0].offset == 1


@pytest.mark.conformance("N15")
def test_what_is_no_pattern_is_an_error_of_the_consumer(
    bootstrap: str, unique: str, readers: Callable[[], Reader]
) -> None:
    reader = readers()

    def poll() -> bool:
        try:
            reader.poll()
        except KafkaException as error:
            reader.errors.append(str(error))
        return bool(reader.errors)

    reader.consumer.subscribe(["^(a)\\1"])  # a pattern to the client, which checks it too
    read_until(poll)
    assert "regular expression is not valid" in reader.errors[0]
