"""A member of a group of consumers that only records its assignment, on the public coordinator."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_readers import PARTITIONS, shared, until

from kohort.client import Coordinator, JoinedMember
from kohort.client.assignors import ASSIGNORS, Assignor, Claim, TopicPartition, assignments, subscription_bytes
from kohort.client.cluster import Cluster
from kohort.wire.embedded import assignment_in


class Reader(Coordinator):
    """A reader that keeps its assignment; a cooperative reader keeps it also while the group rebalances."""

    protocol_type = "consumer"

    def __init__(self, servers: str, group: str, topic: str, assignor: Assignor) -> None:
        super().__init__(servers, group)
        self.topic = topic
        self.assignor = assignor
        self.mine: set[TopicPartition] = set()
        self.led = 0
        self.joined: list[JoinedMember] = []

    @property
    def held(self) -> set[int]:
        return {index for _, index in self.mine}

    def metadata(self) -> Mapping[str, bytes]:
        had = Claim(tuple(self.mine), self.generation.generation_id) if self.mine else None
        owned = self.mine if self.assignor.cooperative else ()
        data = subscription_bytes(self.assignor, [self.topic], owned, self.generation.generation_id, remembered=had)
        return {self.assignor.name: data}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        self.led = len(members)
        self.joined = list(members)
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


def lead_in_turn(
    servers: str,
    assignor: str,
    first: str,
    other_of: Callable[[str, str], Any],
    look: Callable[[Reader], None] = lambda reader: None,
) -> None:
    """A reader and another client's consumer share a group; the leader, which is `first`, leaves, and the other leads.

    `other_of` makes the consumer from a group and a topic. `look` is called where the reader leads.
    """
    group, topic = f"g-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    with Cluster(servers) as cluster:
        cluster.create_topic(topic, partitions=PARTITIONS)

    async def story() -> None:
        reader, other = Reader(servers, group, topic, ASSIGNORS[assignor]), other_of(group, topic)
        order = [reader, other] if first == "ours" else [other, reader]
        tasks: list[asyncio.Task[None]] = []
        try:
            for n, member in enumerate(order, 1):
                tasks.append(asyncio.create_task(member.run()))
                await until(shared(order[:n]), f"shared by {n}", tasks, 120)
            assert sorted(len(member.held) for member in order) == [3, 4]
            assert reader.led == (2 if first == "ours" else 0)
            if first == "ours":
                look(reader)
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            if first == "ours":
                await reader.close()
            await until(shared(order[1:]), "taken over", tasks, 120)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await reader.close()

    asyncio.run(story())
