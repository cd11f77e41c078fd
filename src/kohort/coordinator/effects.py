"""The effects of the step under way: the parts of the coordinator add them here, `Shard.step` returns them."""

from __future__ import annotations

from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.events import (
    Effects,
    JournalEntry,
    MemberStory,
    Millis,
    Record,
    Reply,
    TargetRecords,
    Task,
    What,
)
from kohort.coordinator.shares.events import DeleteShares, InitializeShares


class Outbox:
    __slots__ = ("holds_over", "journal", "producer", "records", "replies", "shares", "tasks")

    def __init__(self) -> None:
        self.records: list[Record | TargetRecords] = []
        self.replies: list[Reply] = []
        self.journal: list[JournalEntry] = []
        self.tasks: list[Task] = []
        self.holds_over: list[str] = []
        self.shares: list[InitializeShares | DeleteShares] = []
        self.producer: tuple[int, int] | None = None

    def emptied(self) -> Effects:
        """Return all effects and clear them. Most steps have one record and one reply only."""
        effects = Effects(
            tuple(self.records),
            tuple(self.replies),
            tuple(self.journal) if self.journal else (),
            tuple(self.tasks) if self.tasks else (),
            tuple(self.holds_over) if self.holds_over else (),
            shares=tuple(self.shares) if self.shares else (),
            producer=self.producer,
        )
        self.records.clear()
        self.replies.clear()
        if self.journal:
            self.journal.clear()
        if self.tasks:
            self.tasks.clear()
        if self.holds_over:
            self.holds_over.clear()
        if self.shares:
            self.shares.clear()
        self.producer = None
        return effects

    def note(
        self,
        group: Group,
        what: What,
        cause: str = "",
        member: Member | None = None,
        waited_ms: Millis = -1,
        members: tuple[MemberStory, ...] = (),
    ) -> None:
        """Add a journal entry."""
        self.journal.append(
            JournalEntry(
                group=group.group_id,
                what=what,
                cause=cause,
                generation_id=group.generation_id,
                member_id=member.member_id if member is not None else "",
                instance_id=member.instance_id if member is not None else None,
                client_id=member.client.client_id if member is not None else "",
                host=member.client.host if member is not None else "",
                waited_ms=waited_ms,
                protocol_type=group.protocol_type or "",
                protocol=group.protocol or "",
                members=members,
            )
        )


def stories_of(group: Group) -> tuple[MemberStory, ...]:
    """All members at the end of a rebalance."""
    return tuple(
        MemberStory(
            m.member_id,
            m.instance_id,
            m.client.client_id,
            m.client.host,
            max(m.joined_ms - group.began_ms, 0) if m.joined_ms >= 0 else -1,
            m.synced_ms - group.ended_ms if m.synced_ms >= 0 else -1,
            m.assignment,
        )
        for m in group.members.values()
    )
