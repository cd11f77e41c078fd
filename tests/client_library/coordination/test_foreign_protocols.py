"""Users of the group protocol whose bytes mean nothing to the server: the bytes come through as they were sent.

Schema Registry elects its leader in a group of type `sr`; what its members send is done here as it does it, since its
own jars are not on Maven Central. Kafka Connect itself runs in tests/java/test_connect.py.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from recording_coordinator import Member, Recording
from running_tasks import cancel, running, until

from kohort.client import JoinedMember
from kohort.client.cluster import Cluster


class SchemaRegistry(Member):
    """As Confluent's: each member sends its address; the member with the smallest address leads; all learn the
    leader."""

    protocol_type = "sr"

    def __init__(self, servers: str, group: str, host: str, *, eligible: bool = True, **settings: Any) -> None:
        super().__init__(servers, group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, **settings)
        address = {"version": 1, "host": host, "port": 8081, "scheme": "http"}
        self.identity = address | {"master_eligibility": eligible, "master": False}
        self.leader: str | None = None
        self.assigned = b""
        self.seen: dict[str, bytes] = {}
        self.given: dict[str, bytes] = {}

    @property
    def said(self) -> bytes:
        return json.dumps(self.identity, separators=(",", ":")).encode()

    def metadata(self) -> Mapping[str, bytes]:
        return {"v0": self.said}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        self.seen = {member.member_id: member.metadata for member in members}
        identities = {member.member_id: json.loads(member.metadata) for member in members}
        eligible = [member for member, identity in identities.items() if identity["master_eligibility"]]
        master = min(eligible, key=lambda member: identities[member]["host"], default=None)
        told = {"version": 1, "error": 0, "master": master, "master_identity": identities.get(master or "")}
        self.given = dict.fromkeys(identities, json.dumps(told, separators=(",", ":")).encode())
        return self.given

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        self.assigned = assignment
        identity = json.loads(assignment)["master_identity"]
        self.leader = None if identity is None else identity["host"]


async def test_schema_registries_elect_a_leader(servers: str, unique: str) -> None:
    def as_sent(registries: list[SchemaRegistry]) -> bool:
        """Whether one has seen what all said, and all were given what it gave: the very bytes."""
        said = {registry.member_id: registry.said for registry in registries}
        assigned = {registry.member_id: registry.assigned for registry in registries}
        return any(registry.seen == said and registry.given == assigned for registry in registries)

    def described_as_sent(registries: list[SchemaRegistry]) -> None:
        with Cluster(servers) as cluster:
            described = cluster.describe_groups([unique])[unique]
        assert (described.protocol_type, described.protocol, described.state) == ("sr", "v0", "Stable")
        said = {registry.member_id: registry.said for registry in registries}
        assigned = {registry.member_id: registry.assigned for registry in registries}
        assert {member.member_id: member.metadata for member in described.members} == said
        assert {member.member_id: member.assignment for member in described.members} == assigned

    named = [SchemaRegistry(servers, unique, f"registry-{n}.example", heartbeat_interval_ms=100) for n in (2, 0, 1)]
    reader = SchemaRegistry(servers, unique, "a-reader.example", eligible=False, heartbeat_interval_ms=100)
    everybody = [*named, reader]
    left = [named[0], named[2], reader]
    async with running(*(registry.run() for registry in everybody)) as tasks:
        await until(lambda: as_sent(everybody))
        assert {registry.leader for registry in everybody} == {"registry-0.example"}
        await asyncio.to_thread(described_as_sent, everybody)
        await cancel(tasks[1])
        await named[1].close()  # the leader goes
        await until(lambda: as_sent(left))
        assert {registry.leader for registry in left} == {"registry-1.example"}
        await asyncio.to_thread(described_as_sent, left)
    for registry in left:
        await registry.close()


class Opaque(Recording):
    """Sends these bytes, and gives the members GIVEN by their metadata."""

    protocol_type = "what ever"

    def __init__(self, servers: str, group: str, said: bytes) -> None:
        super().__init__(servers, group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
        self.said = said

    def metadata(self) -> Mapping[str, bytes]:
        return {"strange name: é": self.said}

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        self.seen = list(members)
        return {member.member_id: GIVEN[member.metadata] for member in members}


NOISE = random.Random(1)
SAID = [b"", bytes(range(256)), b"\xff" * 64, NOISE.randbytes(100_000)]
GIVEN = dict(zip(SAID, [NOISE.randbytes(100_000), b"", b"\x00\x00", "ü\n{".encode()], strict=True))


async def test_any_bytes_come_through_and_survive_a_restart(own_server: Any, unique: str) -> None:
    def described(cluster: Cluster) -> dict[bytes, bytes]:
        group = cluster.describe_groups([unique])[unique]
        assert (group.protocol_type, group.protocol) == ("what ever", "strange name: é")
        return {member.metadata: member.assignment for member in group.members}

    servers = own_server.bootstrap_servers
    members = [Opaque(servers, unique, said) for said in SAID]
    async with running(*(member.run() for member in members)):
        await until(lambda: [member.assignment for member in members] == list(GIVEN.values()))
        assert sorted(SAID) in [sorted(seen.metadata for seen in member.seen) for member in members]
        with Cluster(servers) as cluster:
            assert await asyncio.to_thread(described, cluster) == GIVEN
            await asyncio.to_thread(own_server.restart)
            assert await asyncio.to_thread(described, cluster) == GIVEN
    for member in members:
        await member.close(leave=False)
