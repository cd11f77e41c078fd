"""A coordinator for tests: gives each member a number, and keeps what it was called with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.client import Coordinator, JoinedMember


class Member(Coordinator):
    async def run(self) -> None:
        """A worker's life."""
        while True:
            await self.ensure_active_group()
            await self.wait_for_rejoin()


class Recording(Member):
    protocol_type = "recorders"

    def __init__(self, servers: str, group: str, name: str = "a", **settings: Any) -> None:
        settings.setdefault("session_timeout_ms", 10_000)
        settings.setdefault("rebalance_timeout_ms", 10_000)
        super().__init__(servers, group, **settings)
        self.name = name
        self.calls: list[tuple[Any, ...]] = []
        self.lost: list[tuple[int, str]] = []
        self.seen: list[JoinedMember] = []
        self.assignment: bytes | None = None

    def metadata(self) -> Mapping[str, bytes]:
        self.calls.append(("metadata",))
        return {"second": b"", "first": self.name.encode()} if self.name == "odd" else {"first": self.name.encode()}

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        await asyncio.sleep(0)
        self.calls.append(("prepare", generation, member_id))
        self.assignment = None

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        assert leader_id == self.member_id
        self.calls.append(("perform", protocol))
        self.seen = list(members)
        ordered = sorted(members, key=lambda member: member.metadata)
        return {member.member_id: f"{n} of {len(ordered)}".encode() for n, member in enumerate(ordered)}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        await asyncio.sleep(0)
        self.calls.append(("complete", generation, member_id, protocol, assignment))
        self.assignment = assignment

    def on_leave_prepare(self) -> None:
        self.calls.append(("leave",))

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        self.lost.append((generation, reason))

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]
