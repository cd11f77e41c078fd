"""The effects of the step that is under way: what decides puts them here, `Shard.step` hands them over."""

from __future__ import annotations

from kohort.coordinator.events import JournalEntry, Record, Reply


class Outbox:
    __slots__ = ("journal", "records", "replies")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.journal: list[JournalEntry] = []
