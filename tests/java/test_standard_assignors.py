"""Our own members and Java's consumers share a group by the standard assignors, with each of them leading in turn."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from assigned_reader import PARTITIONS, Reader, until_shared

from kohort.client.assignors import ASSIGNORS, Claim, TopicPartition, consumer_of, subscription_bytes
from kohort.client.cluster import Cluster
from kohort.wire.embedded import subscription_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class JavaConsumer:
    def __init__(self, classpath: str, servers: str, group: str, topic: str, assignor: str) -> None:
        self.mine: set[TopicPartition] = set()
        self.topic = topic
        self._command = ["java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath]
        self._command += ["AssignedConsumer", servers, group, topic, CLASSES[assignor]]

    async def run(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self.mine = {(self.topic, int(index)) for index in line.decode().split()[1:]}
        finally:
            process.stdin.close()
            await process.wait()


@pytest.mark.parametrize("first", ["ours", "java"])
@pytest.mark.parametrize("assignor", CLASSES)
def test_a_group_shared_with_java(classpath: str, servers: str, assignor: str, first: str) -> None:
    group, topic = f"g-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions=PARTITIONS)

    async def story() -> None:
        reader = Reader(servers, group, topic, ASSIGNORS[assignor])
        java = JavaConsumer(classpath, servers, group, topic, assignor)
        order = [reader, java] if first == "ours" else [java, reader]
        tasks = []
        try:
            for n, member in enumerate(order):
                tasks.append(asyncio.create_task(member.run()))
                await until_shared(topic, *order[: n + 1])
            assert sorted(len(member.mine) for member in order) == [3, 4]
            assert reader.led == (2 if first == "ours" else 0)
            if first == "ours":
                [metadata] = [member.metadata for member in reader.joined if member.member_id != reader.member_id]
                assert metadata == as_ours(assignor, metadata)
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


def as_ours(assignor: str, metadata: bytes) -> bytes:
    """Java's subscription, as a member of our own would have written it."""
    said = subscription_of(metadata)
    assert said is not None
    consumer = consumer_of(ASSIGNORS[assignor], "java", None, metadata)
    claim = consumer.claim
    if assignor == "cooperative-sticky" and said.user_data is not None:
        claim = Claim((), int.from_bytes(said.user_data, "big", signed=True))
    return subscription_bytes(
        ASSIGNORS[assignor], said.topics, consumer.owned, said.generation_id, remembered=claim, rack=said.rack_id
    )
