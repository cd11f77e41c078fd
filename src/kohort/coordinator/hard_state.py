"""The hard state of a shard: the fold of its log.

Only `HardState.apply(record)` changes it, live and in recovery.
"""

from __future__ import annotations

from kohort.coordinator.consumer.group import ConsumerFold
from kohort.coordinator.events import Record
from kohort.coordinator.offsets.sizes import GROUP_BYTES, OFFSET_BYTES, Total, text_bytes
from kohort.coordinator.records import OffsetRecords, Place, parse
from kohort.wire.schemas.group_records import (
    GenerationKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


class HardState:
    """The state that results from one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, dict[Place, OffsetCommitValue]] = {}
        self.offset_bytes: dict[str, int] = {}
        """The size of each group's offsets (offsets/sizes.py). Derived from `offsets`."""
        self.total = Total()
        """The sum of these sizes. The shards of a server share it."""
        self.metadata_changes = 0
        """Raised by a record that adds or removes an offset or changes its metadata."""
        self.consumers = ConsumerFold()
        self.generations: dict[str, int] = {}
        """The highest generation that a group of this name ever announced; kept after the group is deleted. The last
        one announced comes last."""
        self.forgotten = 0
        """The highest generation of all names that were dropped from `generations`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HardState) and self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> tuple[object, ...]:
        return self.groups, self.offsets, self.offset_bytes, self.consumers, self.generations, self.forgotten

    def apply(self, record: Record | OffsetRecords) -> None:
        if isinstance(record, OffsetRecords):
            self._apply_offsets(record)
            return
        parsed = record.parsed or parse(record)
        if parsed is None:
            return
        key, value = parsed
        match key:
            case OffsetCommitKey():
                self._apply_offset(key, value)
            case GroupMetadataKey():
                if value is None:
                    self.groups.pop(key.group, None)
                else:
                    self.groups[key.group] = value
            case GenerationKey(group=""):
                self.forgotten = 0 if value is None else value.generation
            case GenerationKey():
                self.generations.pop(key.group, None)
                if value is not None:
                    self.generations[key.group] = value.generation
            case _:
                self.consumers.apply(key, value)

    def _apply_offsets(self, records: OffsetRecords) -> None:
        counted = records.counted
        if counted.at != self.metadata_changes:
            self._count(records)
            counted.at = self.metadata_changes
        self.offsets.setdefault(records.group, {}).update(zip(records.places, records.values, strict=True))

    def _count(self, records: OffsetRecords) -> None:
        offsets = self.offsets.get(records.group)
        if offsets is None:
            offsets = {}
            self._grow(records.group, GROUP_BYTES + text_bytes(records.group))
        growth, is_changed = 0, False
        for place, value in dict(zip(records.places, records.values, strict=True)).items():
            former = offsets.get(place)
            if former is None or former.metadata != value.metadata:
                is_changed = True
                growth += text_bytes(value.metadata)
                growth -= text_bytes(former.metadata) if former is not None else -OFFSET_BYTES
        if is_changed:
            self._grow(records.group, growth)

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        group, place = key.group, (key.topic, key.partition)
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
            elif former.metadata != value.metadata:
                self._grow(group, text_bytes(value.metadata) - text_bytes(former.metadata))
        elif former is not None:
            del offsets[place]
            self._grow(group, -OFFSET_BYTES - text_bytes(former.metadata))
            if not offsets:
                del self.offsets[group]
                self.total.bytes -= self.offset_bytes.pop(group)

    def _grow(self, group: str, growth: int) -> None:
        self.offset_bytes[group] = self.offset_bytes.get(group, 0) + growth
        self.total.bytes += growth
        self.metadata_changes += 1
