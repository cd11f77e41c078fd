"""Young groups of a test server are quick with `client_config`, in both protocols and without further settings."""

from __future__ import annotations

import time
from typing import Literal

import pytest
from confluent_kafka import Consumer

from kohort.testing import KohortServer

QUICK_S = 0.3
ATTEMPTS = 5


def test_settings_of_clients(kohort_server: KohortServer) -> None:
    where = {"bootstrap.servers": kohort_server.bootstrap_servers}
    assert kohort_server.client_config() == where
    common = where | {"group.id": "g", "auto.offset.reset": "earliest"}
    assert kohort_server.client_config("g") == common | {"heartbeat.interval.ms": 100}
    assert kohort_server.client_config("g", group_protocol="consumer") == common | {"group.protocol": "consumer"}


def test_a_test_that_sets_an_interval_or_its_least_value_gets_the_others_default() -> None:
    for settings in (
        {"group_consumer_heartbeat_interval_ms": 6_000},
        {"group_consumer_min_heartbeat_interval_ms": 2_000},
        {"group_consumer_min_assignment_interval_ms": 500},
        {"group.consumer.heartbeat.interval.ms": 6_000},
    ):
        KohortServer(**settings)


def second_join_s(group_protocol: Literal["classic", "consumer"]) -> float:
    with KohortServer() as server:
        server.create_topic("orders", 2)
        settings = server.client_config("billing", group_protocol=group_protocol)
        consumers = [Consumer(settings), Consumer(settings)]

        def poll() -> None:
            for consumer in consumers:
                consumer.poll(0.005)

        consumers[0].subscribe(["orders"])
        server.wait_stable("billing", members=1, poll=lambda: consumers[0].poll(0.005))
        began = time.monotonic()
        consumers[1].subscribe(["orders"])
        while not len(consumers[0].assignment()) == len(consumers[1].assignment()) == 1:
            assert time.monotonic() - began < 20
            poll()
        took = time.monotonic() - began
        for consumer in consumers:
            consumer.close()
        return took


@pytest.mark.client
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_join_takes_less_than_300_ms(group_protocol: Literal["classic", "consumer"]) -> None:
    took: list[float] = []
    while len(took) < ATTEMPTS and (not took or min(took) >= QUICK_S):  # the machine may be busy
        took.append(second_join_s(group_protocol))
    assert min(took) < QUICK_S, took
