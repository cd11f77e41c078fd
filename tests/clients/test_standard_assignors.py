"""Members of our own and librdkafka's share a group by the standard assignors, with each of them leading in turn."""

from __future__ import annotations

import asyncio
import uuid

import confluent_kafka
import pytest
from assigned_reader import PARTITIONS, Reader, until_shared

from kohort.client.assignors import ASSIGNORS, TopicPartition
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer


class Other:
    """A consumer of librdkafka in a thread."""

    def __init__(self, servers: str, group: str, topic: str, assignor: str) -> None:
        self.mine: set[TopicPartition] = set()
        self.topic = topic
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": group, "partition.assignment.strategy": assignor}
        )

    async def run(self) -> None:
        self._consumer.subscribe([self.topic])
        try:
            while True:
                await asyncio.to_thread(self._consumer.poll, 0.05)
                self.mine = {(part.topic, part.partition) for part in self._consumer.assignment()}
        finally:
            await asyncio.to_thread(self._consumer.close)


@pytest.fixture
def server(kohort_server: KohortServer) -> KohortServer:
    return kohort_server


@pytest.mark.client
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", ["ours", "librdkafka"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shared_with_librdkafka(servers: str, assignor: str, first: str) -> None:
    group, topic = f"g-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions=PARTITIONS)

    async def story() -> None:
        reader, other = Reader(servers, group, topic, ASSIGNORS[assignor]), Other(servers, group, topic, assignor)
        order = [reader, other] if first == "ours" else [other, reader]
        tasks = []
        try:
            for n, member in enumerate(order):
                tasks.append(asyncio.create_task(member.run()))
                await until_shared(topic, *order[: n + 1])
            assert sorted(len(member.mine) for member in order) == [3, 4]
            assert reader.led == (2 if first == "ours" else 0)
            tasks[0].cancel()  # the leader goes, and the other one leads
            await asyncio.gather(tasks[0], return_exceptions=True)
            if first == "ours":
                await reader.close()
            await until_shared(topic, *order[1:])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await reader.close()

    asyncio.run(story())
