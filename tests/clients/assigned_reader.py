"""A member of a group of consumers that only knows what it has been assigned, on the public coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.client import Coordinator, JoinedMember
from kohort.client.assignors import ASSIGNORS, Assignor, Claim, TopicPartition, assignments, subscription_bytes
from kohort.wire.embedded import assignment_in

PARTITIONS = 7


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


async def until_shared(topic: str, *running: Any) -> None:
    """Until each of them has something, and together they have all partitions, each once."""
    everything = [(topic, index) for index in range(PARTITIONS)]
    async with asyncio.timeout(120):
        while not all(member.mine for member in running) or everything != sorted(
            partition for member in running for partition in member.mine
        ):
            await asyncio.sleep(0.02)
