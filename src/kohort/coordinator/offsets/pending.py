"""Offsets that producers have committed in transactions, until the markers decide about them.

A pending offset becomes the group's committed offset with a commit marker, if no newer record has replaced it: what
counts is the place of the records in the log, not of the marker. So a commit outside of transactions supersedes all
offsets that are pending for its partition, and a commit marker supersedes the older ones of other producers. A
superseded offset stays pending until its own marker. An abort marker, or a tombstone of the same partition, drops it.

The records' places in the log are counted here: only the order of one partition's records matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from kohort.coordinator.offsets.groups_by_topic import GroupsByTopic
from kohort.coordinator.offsets.sizes import GROUP_BYTES, OFFSET_BYTES, text_bytes
from kohort.coordinator.records import Place
from kohort.wire.schemas.group_records import OffsetCommitValue

Offsets = dict[Place, "PendingOffset"]


class PendingOffset(msgspec.Struct, frozen=True, gc=False):
    value: OffsetCommitValue
    at: int
    """The number of its record, counted from the first pending offset on."""


class _Awaited(msgspec.Struct, gc=False):
    """A partition with pending offsets."""

    producers: set[int]
    superseded: int = 0
    """Pending offsets up to this number are superseded."""


class PendingOffsets:
    def __init__(self) -> None:
        self.groups: dict[str, dict[Place, _Awaited]] = {}
        """The groups with pending offsets. No dictionary and no set in it is empty."""
        self.by_topic = GroupsByTopic()
        self.bytes = 0
        """The size of all pending offsets (sizes.py); a group counts once for each producer."""
        self.counts: dict[int, int] = {}
        """The number of offsets that each producer has pending. The shards of a server share it."""
        self._of_producer: dict[int, dict[str, Offsets]] = {}
        self._last = 0
        """The number of the last record."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and self.described() == other.described()

    __hash__ = None  # type: ignore[assignment]

    def described(self) -> dict[str, dict[Place, list[tuple[int, OffsetCommitValue, bool]]]]:
        """Of each partition: producer, offset, and whether a commit marker would commit it; in the order of the log.
        For tests and the simulator."""
        found: dict[str, dict[Place, list[tuple[int, OffsetCommitValue, bool]]]] = {}
        for group, places in self.groups.items():
            for place, awaited in places.items():
                pending = {
                    producer_id: self._of_producer[producer_id][group][place] for producer_id in awaited.producers
                }
                ordered = sorted(pending.items(), key=lambda item: item[1].at)
                found.setdefault(group, {})[place] = [
                    (producer_id, offset.value, offset.at > awaited.superseded) for producer_id, offset in ordered
                ]
        return found

    def add(self, producer_id: int, group: str, place: Place, value: OffsetCommitValue) -> None:
        """A producer's newest offset of a partition replaces its earlier one."""
        self._last += 1
        offsets = self._of_producer.setdefault(producer_id, {}).setdefault(group, {})
        if not offsets:
            self.bytes += GROUP_BYTES + text_bytes(group)
        former = offsets.get(place)
        if former is not None:
            self.bytes -= _size(former)
        else:
            self.counts[producer_id] = self.counts.get(producer_id, 0) + 1
        offset = offsets[place] = PendingOffset(value, self._last)
        self.bytes += _size(offset)
        places = self.groups.setdefault(group, {})
        awaited = places.get(place)
        if awaited is None:
            awaited = places[place] = _Awaited(set())
            self.by_topic.add(place[0], group)
        awaited.producers.add(producer_id)

    def supersede(self, group: str, place: Place) -> None:
        """The partition's offset is committed outside of transactions."""
        awaited = self.groups.get(group, {}).get(place)
        if awaited is not None:
            awaited.superseded = self._last

    def drop(self, group: str, place: Place) -> None:
        """The partition's offset is deleted: what is pending there is never committed."""
        awaited = self.groups.get(group, {}).get(place)
        if awaited is not None:
            for producer_id in awaited.producers.copy():
                self._remove(producer_id, group, place)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[str, dict[Place, OffsetCommitValue]]]:
        """Remove what a producer has pending. Returns what becomes committed, by group.

        A transaction may have thousands of offsets, and all of them are decided at one instant."""
        ended: list[tuple[str, dict[Place, OffsetCommitValue]]] = []
        for group, offsets in self._of_producer.pop(producer_id, {}).items():
            places = self.groups[group]
            newest: dict[Place, OffsetCommitValue] = {}
            for place, offset in offsets.items():
                awaited = places[place]
                if committed and offset.at > awaited.superseded:
                    awaited.superseded = offset.at
                    newest[place] = offset.value
                if len(awaited.producers) == 1:
                    del places[place]
                    self.by_topic.remove(place[0], group)
                else:
                    awaited.producers.discard(producer_id)
            if not places:
                del self.groups[group]
            self.bytes -= GROUP_BYTES + text_bytes(group) + sum(map(_size, offsets.values()))
            self._count_less(producer_id, len(offsets))
            if newest:
                ended.append((group, newest))
        return ended

    def of(self, producer_id: int, group: str) -> dict[Place, OffsetCommitValue]:
        """What a producer has pending in a group."""
        offsets = self._of_producer.get(producer_id, {}).get(group, {})
        return {place: offset.value for place, offset in offsets.items()}

    def is_pending(self, group: str, place: Place) -> bool:
        return place in self.groups.get(group, ())

    def places(self, group: str) -> Collection[Place]:
        """The group's partitions with pending offsets."""
        return self.groups.get(group, {}).keys()

    def __contains__(self, group: str) -> bool:
        return group in self.groups

    def _remove(self, producer_id: int, group: str, place: Place) -> None:
        of_producer = self._of_producer[producer_id]
        offsets = of_producer[group]
        self.bytes -= _size(offsets.pop(place))
        self._count_less(producer_id, 1)
        if not offsets:
            self.bytes -= GROUP_BYTES + text_bytes(group)
            del of_producer[group]
            if not of_producer:
                del self._of_producer[producer_id]
        places = self.groups[group]
        places[place].producers.discard(producer_id)
        if not places[place].producers:
            del places[place]
            self.by_topic.remove(place[0], group)
            if not places:
                del self.groups[group]

    def _count_less(self, producer_id: int, less: int) -> None:
        self.counts[producer_id] -= less
        if not self.counts[producer_id]:
            del self.counts[producer_id]

    def check(self) -> None:
        """Raises AssertionError if the two indexes or the size differ. For tests and the simulator."""
        indexed = {
            (producer_id, group, place)
            for group, places in self.groups.items()
            for place, awaited in places.items()
            for producer_id in awaited.producers
        }
        held = {
            (producer_id, group, place): offset
            for producer_id, groups in self._of_producer.items()
            for group, offsets in groups.items()
            for place, offset in offsets.items()
        }
        assert indexed == held.keys(), f"pending offsets: {indexed} by group, {held} by producer"
        counted = Counter((place[0], group) for group, places in self.groups.items() for place in places)
        by_topic = {(topic, group): n for topic, of in self.by_topic.counts.items() for group, n in of.items()}
        assert by_topic == counted, f"pending offsets by topic: {by_topic}, but {counted}"
        own = Counter(producer_id for producer_id, _, _ in held)
        assert all(count <= self.counts.get(producer_id, 0) for producer_id, count in own.items()), f"{self.counts}"
        groups = {(producer_id, group) for producer_id, group, _ in held}
        size = sum(map(_size, held.values())) + sum(GROUP_BYTES + text_bytes(group) for _, group in groups)
        assert self.bytes == size, f"counts {self.bytes} bytes of pending offsets, but {size}"


def _size(offset: PendingOffset) -> int:
    return OFFSET_BYTES + text_bytes(offset.value.metadata)
