"""A group shared by our consumer, librdkafka's and Java's, each leading in turn: every record is read once."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from run_java import JAVA_ASSIGNORS, shared_consumer
from shared_readers import Librdkafka, Ours, Records, share

from kohort.testing import KohortServer

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

ORDERS = {"ours": (0, 1, 2), "librdkafka": (1, 2, 0), "java": (2, 0, 1)}


@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("kind", ["range", "cooperative-sticky", "KIP-848"])
def test_a_group_shared_three_ways(classpath: str, server: KohortServer, kind: str, first: str) -> None:
    servers, name = server.bootstrap_servers, f"g-{uuid.uuid4()}"
    records = Records(servers, name)

    async def story() -> None:
        readers: list[Any]
        if kind == "KIP-848":
            readers = [
                Ours(servers, name, [name], group_protocol="consumer"),
                Librdkafka(servers, name, name, **{"group.protocol": "consumer"}),
                shared_consumer(classpath, servers, name, name, "consumer"),
            ]
        else:
            readers = [
                Ours(servers, name, [name], group_protocol="classic", assignors=(kind,)),
                Librdkafka(servers, name, name, **{"partition.assignment.strategy": kind}),
                shared_consumer(classpath, servers, name, name, "classic", JAVA_ASSIGNORS[kind]),
            ]
        led: list[bool] = []
        order = [readers[n] for n in ORDERS[first]]
        await share(records, order, lambda: led.append(readers[0].leads))
        if kind != "KIP-848":
            # The oldest member leads: ours does in its turn, and only then.
            turn = order.index(readers[0])
            assert led[turn]
            assert not any(led[:turn])

    asyncio.run(story())
