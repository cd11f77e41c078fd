"""Quotas through librdkafka: it tells its program that it is throttled, and nobody else is."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.client.cluster import Cluster
from kohort.testing import KohortServer, ManualClock

pytestmark = [pytest.mark.client, pytest.mark.timeout(60)]


def until(poll: Any, condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        poll(0.05)
        assert time.monotonic() < deadline, "it did not happen"


@pytest.mark.conformance("Q3")
def test_a_throttled_producer_and_consumer_learn_of_it() -> None:
    clock = ManualClock(ticking=True)
    with KohortServer(clock=clock) as server, Cluster(server.bootstrap_servers) as cluster:
        cluster.create_topic("t", 1)
        cluster.alter_client_quotas({"client-id": "greedy"}, {"producer_byte_rate": 1_000, "consumer_byte_rate": 1_000})
        events: list[Any] = []
        throttles: list[int] = []

        def stats(text: str) -> None:
            brokers = json.loads(text)["brokers"].values()
            throttles.extend(broker["throttle"]["max"] for broker in brokers if broker["throttle"]["max"] > 0)

        def options(client: str, **more: Any) -> dict[str, Any]:
            return {"bootstrap.servers": server.bootstrap_servers, "client.id": client, "linger.ms": 0} | more

        greedy = Producer(
            options("greedy", throttle_cb=events.append, stats_cb=stats, **{"statistics.interval.ms": 50})
        )
        modest = Producer(options("modest", throttle_cb=lambda event: pytest.fail("it is within its quota")))
        greedy.produce("t", b"x" * 40_000)
        until(greedy.poll, lambda: events and throttles)
        assert events[0].throttle_time > 20
        assert max(throttles) > 20_000
        greedy.produce("t", b"late")
        modest.produce("t", b"in time")
        assert modest.flush(20) == 0
        assert len(greedy) == 1, "its request waits"
        clock.advance(60_000)
        assert greedy.flush(20) == 0
        del events[:]
        consumer = Consumer(
            {name: value for name, value in options("greedy", throttle_cb=events.append).items() if name != "linger.ms"}
            | {"group.id": "g", "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        until(consumer.poll, lambda: events)
        assert events[0].throttle_time > 0
        cluster.alter_client_quotas({"client-id": "greedy"}, {"consumer_byte_rate": None})
        values: list[bytes] = []

        def read(timeout: float) -> None:
            clock.advance(60_000)
            message = consumer.poll(timeout)
            if message is not None and message.error() is None:
                values.append(message.value()[:8])

        until(read, lambda: len(values) == 3)
        assert sorted(values) == [b"in time", b"late", b"x" * 8]
        consumer.close()
