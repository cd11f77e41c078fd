"""Members of our own and librdkafka's share a group by the standard assignors, with each of them leading in turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

import confluent_kafka
import pytest

from kohort.client import Coordinator, JoinedMember
from kohort.client.assignors import (
    ASSIGNORS,
    Assignor,
    Claim,
    TopicPartition,
    assignments,
    subscription_bytes,
)
from kohort.client.cluster import Cluster
from kohort.testing import KohortServer
from kohort.wire.embedded import assignment_in

PARTITIONS = 7


class Reader(Coordinator):
    """Knows what it has been assigned; a cooperative one keeps it while the group rebalances."""

    protocol_type = "consumer"

    def __init__(self, servers: str, group: str, topic: str, assignor: Assignor) -> None:
        super().__init__(servers, group)
        self.topic = topic
        self.assignor = assignor
        self.mine: set[TopicPartition] = set()
        self.led = 0

    def metadata(self) -> Mapping[str, bytes]:
        had = Claim(tuple(self.mine), self.generation.generation_id) if self.mine else None
        owned = self.mine if self.assignor.cooperative else ()
        data = subscription_bytes(self.assignor, [self.topic], owned, self.generation.generation_id, remembered=had)
        return {self.assignor.name: data}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        self.led = len(members)
        joined = [(member.member_id, member.instance_id, member.metadata) for member in members]
        return assignments(ASSIGNORS[protocol], {self.topic: PARTITIONS}, joined)

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        rows = assignment_in(assignment)
        assert rows is not None
        now = {(topic, index) for topic, indexes in rows.items() for index in indexes}
        given_up = self.mine - now
        self.mine = now
        if self.assignor.cooperative and given_up:
            self.request_rejoin("what was given up is free now")

    async def run(self) -> None:
        while True:
            await self.ensure_active_group()
            await self.wait_for_rejoin()


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


@pytest.mark.client
@pytest.mark.parametrize("first", ["ours", "librdkafka"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_shared_with_librdkafka(kohort_server: KohortServer, assignor: str, first: str) -> None:
    servers, group, topic = kohort_server.bootstrap_servers, f"g-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions=PARTITIONS)

    async def story() -> None:
        reader, other = Reader(servers, group, topic, ASSIGNORS[assignor]), Other(servers, group, topic, assignor)
        order = [reader, other] if first == "ours" else [other, reader]
        tasks = []
        try:
            for n, member in enumerate(order):
                tasks.append(asyncio.create_task(member.run()))
                running = order[: n + 1]
                await until_shared(running)
            assert sorted(len(member.mine) for member in order) == [3, 4]
            assert reader.led == (2 if first == "ours" else 0)
            tasks[0].cancel()  # the leader goes, and the other one leads
            await asyncio.gather(tasks[0], return_exceptions=True)
            if first == "ours":
                await reader.close()
            await until_shared(order[1:])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await reader.close()

    async def until_shared(running: list[Reader | Other]) -> None:
        everything = [(topic, index) for index in range(PARTITIONS)]
        async with asyncio.timeout(30):
            while not all(member.mine for member in running) or everything != sorted(
                partition for member in running for partition in member.mine
            ):
                await asyncio.sleep(0.02)

    asyncio.run(story())
