"""Journal entries about records that a share group archived: which member rejected them, or had them last.

The first of a group is told at once, further ones as one entry a second, so that a flood of rejected records costs the
journal little. They are told by a later one, or when somebody asks for the group's stories.
"""

from __future__ import annotations

from kohort.broker.group_shards import GroupShards
from kohort.broker.topics.topic_store import TopicStore
from kohort.broker.turn import Millis
from kohort.coordinator.events import JournalEntry
from kohort.coordinator.shares.events import Archived, RecordsArchived

INTERVAL_MS = 1_000
SHOWN = 5
"""Ranges in one entry; the number of records counts all."""
MOST_MEMBERS = 20
"""Members that are named within an interval."""
MOST_GROUPS = 1_000
"""Groups whose time of the last entry is kept, and what is not written yet: some 40 MB at the very most."""


_About = tuple[str, str, str]
"""Why, the member, and what became of the dead letters."""


class _Pending:
    __slots__ = ("ranges", "records", "told_ms")

    def __init__(self) -> None:
        self.told_ms: Millis = 0
        self.clear()

    def clear(self) -> None:
        self.records: dict[_About, int] = {}
        self.ranges: dict[_About, list[str]] = {}


class ArchiveNotes:
    def __init__(self, groups: GroupShards, topics: TopicStore) -> None:
        self._groups = groups
        self._topics = topics
        self._pending: dict[str, _Pending] = {}

    def note(self, effect: RecordsArchived, now: Millis, fate: str = "") -> None:
        """`fate`: of the dead letters; it begins with a comma."""
        pending = self._pending.pop(effect.key.group, None) or _Pending()
        self._pending[effect.key.group] = pending
        if len(self._pending) > MOST_GROUPS:
            self.tell(next(iter(self._pending)), now)
            del self._pending[next(iter(self._pending))]
        for one in effect.archived:
            about = one.why, one.member, fate
            if about not in pending.records and len(pending.records) >= MOST_MEMBERS:
                about = one.why, "", fate
            pending.records[about] = pending.records.get(about, 0) + one.last - one.first + 1
            ranges = pending.ranges.setdefault(about, [])
            if len(ranges) <= SHOWN:
                ranges.append(self._words(effect, one))
        if now - pending.told_ms >= INTERVAL_MS:
            self.tell(effect.key.group, now)

    def _words(self, effect: RecordsArchived, one: Archived) -> str:
        topic = self._topics.catalog.by_id.get(effect.key.topic_id)
        name = topic.name if topic is not None else "a deleted topic"
        offsets = str(one.first) if one.first == one.last else f"{one.first}-{one.last}"
        return f"{name}[{effect.key.partition}] {offsets} (delivered {one.deliveries} ×)"

    def tell(self, group_id: str, now: Millis) -> None:
        """Write what is not written yet of a group."""
        pending = self._pending.get(group_id)
        if pending is None or not pending.records:
            return
        group = self._groups.shards[self._groups.of(group_id)].shares.groups.get(group_id)
        entries = []
        for (why, member_id, fate), records in pending.records.items():
            member = group.members.get(member_id) if group is not None else None
            ranges = pending.ranges[why, member_id, fate]
            more = ", …" if len(ranges) > SHOWN else ""
            plural = "" if records == 1 else "s"
            entries.append(
                JournalEntry(
                    group=group_id,
                    what="records archived",
                    cause=f"{records} record{plural} {why}{fate}: {', '.join(ranges[:SHOWN])}{more}",
                    generation_id=group.epoch if group is not None else -1,
                    member_id=member_id,
                    client_id=member.client_id if member is not None else "",
                    host=member.client_host if member is not None else "",
                )
            )
        pending.clear()
        pending.told_ms = now
        self._groups.journal.tell(entries, now)
