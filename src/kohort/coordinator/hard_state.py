"""The hard state of a shard: the fold of its log.

Only `HardState.apply(record)` changes it, live and in recovery. A record with a producer id belongs to an open
transaction: it is an offset, and pending until the producer's marker.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.coordinator import member_bytes
from kohort.coordinator.consumer.group import ConsumerFold
from kohort.coordinator.events import Record, TargetRecords
from kohort.coordinator.offsets.groups_by_topic import GroupsByTopic
from kohort.coordinator.offsets.pending import PendingOffsets
from kohort.coordinator.offsets.sizes import GROUP_BYTES, OFFSET_BYTES, Total, text_bytes
from kohort.coordinator.records import SHARE_KEYS, OffsetRecords, Place, parse
from kohort.coordinator.share_groups.group import ShareFold
from kohort.wire.markers import Marker
from kohort.wire.schemas.group_records import (
    GenerationKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

FORMER_BYTES = 192
"""Counted for a name in `HardState.generations`, besides its characters."""

AnyRecord = Record | OffsetRecords | TargetRecords | Marker
"""What the fold takes: a record, or several that were made together, or a marker."""


def former_size(group_id: str) -> int:
    return FORMER_BYTES + member_bytes.text_bytes(group_id)


class HardState:
    """The state that results from one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}
        self.by_topic = GroupsByTopic()
        """The groups with committed offsets of each topic. Derived from `offsets`."""
        self.offset_bytes: dict[str, int] = {}
        """The size of each group's offsets (offsets/sizes.py). Derived from `offsets`."""
        self.total = Total()
        """The sum of these sizes and of what is pending. The shards of a server share it."""
        self.metadata_changes = 0
        """Raised by a record that adds or removes an offset or changes its metadata."""
        self.pending = PendingOffsets()
        """Offsets of open transactions."""
        self.consumers = ConsumerFold()
        self.shares = ShareFold()
        self.generations: dict[str, int] = {}
        """The highest generation that a group of this name ever announced; kept after the group is deleted. The last
        one announced comes last."""
        self.generations_size = 0
        """About their bytes in memory."""
        self.forgotten = 0
        """The highest generation of all names that were dropped from `generations`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HardState) and self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> tuple[object, ...]:
        sizes = (self.offset_bytes, self.pending.bytes)
        folds = (self.consumers, self.shares)
        return self.groups, self.offsets, self.pending, sizes, folds, self.generations, self.forgotten

    def has_offsets(self, group: str) -> bool:
        """Committed or pending ones."""
        return group in self.offsets or group in self.pending.groups

    @property
    def topics(self) -> set[str]:
        """The topics with a committed or a pending offset."""
        return {*self.by_topic.counts, *self.pending.by_topic.counts}

    def groups_of(self, topics: Collection[str]) -> list[str]:
        """The groups with a committed or a pending offset of these topics."""
        return list(dict.fromkeys([*self.by_topic.of(topics), *self.pending.by_topic.of(topics)]))

    def count_of(self, topics: Collection[str]) -> int:
        """How many offsets these topics have; what is committed and pending too counts twice."""
        return self.by_topic.count(topics) + self.pending.by_topic.count(topics)

    def places(self, group: str) -> list[Place]:
        """The partitions with a committed or a pending offset."""
        return list(dict.fromkeys([*self.offsets.get(group, ()), *self.pending.places(group)]))

    def apply(self, record: AnyRecord) -> None:
        if not isinstance(record, Record):
            self._apply_others(record)
            return
        parsed = record.parsed or parse(record)
        if parsed is None:
            return
        key, value = parsed
        match key:
            case OffsetCommitKey() if record.producer_id >= 0:
                self._apply_pending(record.producer_id, key, value)
            case OffsetCommitKey():
                if key.group in self.pending.groups:
                    self._apply_to_pending(key, value)
                self._apply_offset(key.group, (key.topic, key.partition), value)
            case GroupMetadataKey():
                if value is None:
                    self.groups.pop(key.group, None)
                else:
                    self.groups[key.group] = value
            case GenerationKey(group=""):
                self.forgotten = 0 if value is None else value.generation
            case GenerationKey():
                if self.generations.pop(key.group, None) is not None:
                    self.generations_size -= former_size(key.group)
                if value is not None:
                    self.generations[key.group] = value.generation
                    self.generations_size += former_size(key.group)
            case _:
                (self.shares if type(key) in SHARE_KEYS else self.consumers).apply(key, value)

    def _apply_others(self, record: OffsetRecords | TargetRecords | Marker) -> None:
        if isinstance(record, OffsetRecords):
            self._apply_offsets(record)
        elif isinstance(record, TargetRecords):
            self.consumers.apply_targets(record.group, record.targets)
        else:
            self._end_transaction(record)

    def _apply_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:  # nobody deletes an offset in a transaction
            self.total.bytes -= self.pending.bytes
            self.pending.add(producer_id, key.group, (key.topic, key.partition), value)
            self.total.bytes += self.pending.bytes

    def _apply_to_pending(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """An offset is committed or deleted where others may be pending."""
        if value is not None:
            self.pending.supersede(key.group, (key.topic, key.partition))
            return
        self.total.bytes -= self.pending.bytes
        self.pending.drop(key.group, (key.topic, key.partition))
        self.total.bytes += self.pending.bytes

    def _end_transaction(self, marker: Marker) -> None:
        self.total.bytes -= self.pending.bytes
        for group, values in self.pending.end(marker.producer_id, committed=marker.committed):
            self._count(group, values)
            self.offsets.setdefault(group, {}).update(values)
        self.total.bytes += self.pending.bytes

    def _apply_offsets(self, records: OffsetRecords) -> None:
        if records.group in self.pending.groups:
            for place in records.places:
                self.pending.supersede(records.group, place)
        counted = records.counted
        if counted.at != self.metadata_changes:
            self._count(records.group, dict(zip(records.places, records.values, strict=True)))
            counted.at = self.metadata_changes
        self.offsets.setdefault(records.group, {}).update(zip(records.places, records.values, strict=True))

    def _count(self, group: str, values: dict[Place, OffsetCommitValue]) -> None:
        """Count these offsets before they replace those that are there."""
        offsets = self.offsets.get(group)
        if offsets is None:
            offsets = {}
            self._grow(group, GROUP_BYTES + text_bytes(group))
        growth, is_changed = 0, False
        for place, value in values.items():
            former = offsets.get(place)
            if former is None or former.metadata != value.metadata:
                is_changed = True
                growth += text_bytes(value.metadata)
                growth -= text_bytes(former.metadata) if former is not None else -OFFSET_BYTES
            if former is None:
                self.by_topic.add(place[0], group)
        if is_changed:
            self._grow(group, growth)

    def _apply_offset(self, group: str, place: Place, value: OffsetCommitValue | None) -> None:
        offsets = self.offsets.get(group)
        if offsets is None:
            if value is None:
                return
            offsets = self.offsets[group] = {}
            self._grow(group, GROUP_BYTES + text_bytes(group))
        former = offsets.get(place)
        if value is not None:
            offsets[place] = value
            if former is None:
                self._grow(group, OFFSET_BYTES + text_bytes(value.metadata))
                self.by_topic.add(place[0], group)
            elif former.metadata != value.metadata:
                self._grow(group, text_bytes(value.metadata) - text_bytes(former.metadata))
        elif former is not None:
            del offsets[place]
            self.by_topic.remove(place[0], group)
            self._grow(group, -OFFSET_BYTES - text_bytes(former.metadata))
            if not offsets:
                del self.offsets[group]
                self.total.bytes -= self.offset_bytes.pop(group)

    def _grow(self, group: str, growth: int) -> None:
        self.offset_bytes[group] = self.offset_bytes.get(group, 0) + growth
        self.total.bytes += growth
        self.metadata_changes += 1
