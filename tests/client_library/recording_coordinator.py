"""Coordinators for tests: each member gets a number as its assignment, and records its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kohort.client import BlockingCoordinator, Coordinator, JoinedMember


class Member(Coordinator):
    async def run(self) -> None:
        """A worker's life."""
        while True:
            await self.ensure_active_group()
            await self.wait_for_rejoin()


class Recorder:
    """The callbacks of both coordinators."""

    protocol_type = "recorders"
    member_id: str

    def __init__(self, servers: str, group: str, name: str = "a", **settings: Any) -> None:
        super().__init__(servers, group, **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, **settings})
        self.name = name
        self.calls: list[tuple[Any, ...]] = []
        self.lost: list[tuple[int, str]] = []
        self.seen: list[JoinedMember] = []
        self.assignment: bytes | None = None

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def metadata(self) -> Mapping[str, bytes]:
        self.calls.append(("metadata",))
        return {"second": b"", "first": self.name.encode()} if self.name == "odd" else {"first": self.name.encode()}

    def on_join_prepare(self, generation: int, member_id: str) -> Any:
        self.calls.append(("prepare", generation, member_id))
        self.assignment = None

    def perform_assignment(self, leader_id: str, protocol: str, members: Sequence[JoinedMember]) -> Mapping[str, bytes]:
        assert leader_id == self.member_id
        self.calls.append(("perform", protocol))
        self.seen = list(members)
        ordered = sorted(members, key=lambda member: member.metadata)
        return {member.member_id: f"{n} of {len(ordered)}".encode() for n, member in enumerate(ordered)}

    def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> Any:
        self.calls.append(("complete", generation, member_id, protocol, assignment))
        self.assignment = assignment

    def on_leave_prepare(self) -> None:
        self.calls.append(("leave",))

    def on_lost(self, generation: int, member_id: str, reason: str) -> None:
        self.lost.append((generation, reason))


class Recording(Recorder, Member):
    async def on_join_prepare(self, *arguments: Any) -> None:
        await asyncio.sleep(0)
        super().on_join_prepare(*arguments)

    async def on_join_complete(self, *arguments: Any) -> None:
        await asyncio.sleep(0)
        super().on_join_complete(*arguments)


class BlockingRecording(Recorder, BlockingCoordinator):
    pass
