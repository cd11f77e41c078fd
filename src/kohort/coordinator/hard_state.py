"""The hard state of a shard: the fold of its log.

Only `HardState.apply(record)` changes it, live and in recovery.
"""

from __future__ import annotations

from kohort.coordinator.consumer.group import ConsumerFold
from kohort.coordinator.events import Record
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
        return self.groups, self.offsets, self.consumers, self.generations, self.forgotten

    def apply(self, record: Record | OffsetRecords) -> None:
        if isinstance(record, OffsetRecords):
            self.offsets.setdefault(record.group, {}).update(zip(record.places, record.values, strict=True))
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

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is not None:
            self.offsets.setdefault(key.group, {})[place] = value
            return
        offsets = self.offsets.get(key.group)
        if offsets is not None:
            offsets.pop(place, None)
            if not offsets:
                del self.offsets[key.group]
