"""A commit that a member sends repeatedly with only the offsets changed: its records, made in one go.

The records are those that `Offsets.commit` would write, byte by byte (tests/broker/groups/test_commits.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kohort.coordinator.consumer.reconciliation import TopicPartition
from kohort.coordinator.events import Millis
from kohort.coordinator.offsets.sizes import Counted, Room
from kohort.coordinator.records import OffsetRecords, offset_record
from kohort.wire.records import NewRecord, encode_record
from kohort.wire.schemas.group_records import OffsetCommitValue
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.skeleton import Skeleton


class RepeatedCommit:
    """`request`: a commit that was accepted as a whole. It has topic names and no retention time. `topic_ids`: the ids
    to write, one for each topic."""

    __slots__ = (
        "_constants",
        "_counted",
        "_encoding",
        "fenced",
        "group_id",
        "is_from_outside",
        "places",
        "request",
        "run",
        "version",
    )

    def __init__(self, request: OffsetCommitRequest, version: int, topic_ids: Sequence[bytes]) -> None:
        self.request = request
        self.version = version
        self.group_id = request.group_id
        self.is_from_outside = request.generation_id_or_member_epoch < 0
        """Of no member, as tools and simple consumers commit."""
        self.run: Any = None
        """The run (changes.py) that has all its partitions."""
        asked = [
            (topic, topic_id, partition)
            for topic, topic_id in zip(request.topics, topic_ids, strict=True)
            for partition in topic.partitions
        ]
        self.places = tuple((topic.name, partition.partition_index) for topic, _, partition in asked)
        self.fenced: tuple[TopicPartition, ...] = tuple(
            (topic.topic_id, partition.partition_index) for topic, _, partition in asked
        )
        self._constants = tuple(
            (partition.committed_leader_epoch, partition.committed_metadata or "", topic_id)
            for _, topic_id, partition in asked
        )
        self._counted = Counted()
        self._encoding = Skeleton(*(self._encoded([number] * len(asked), number) for number in (0, -1)))

    def records(self, offsets: Sequence[int], now: Millis) -> OffsetRecords:
        numbers = [now] * (2 * len(offsets))
        numbers[::2] = offsets
        values, encoded = self._values(offsets, now), self._encoding.fill(numbers)
        return OffsetRecords(self.group_id, self.places, values, encoded, self._counted)

    def fits(self, room: Room) -> bool:
        """True if there is room for all its offsets."""
        metadata = (metadata for _, metadata, _ in self._constants)
        return not any(room.refuses(*place, text) for place, text in zip(self.places, metadata, strict=True))

    def _values(self, offsets: Sequence[int], now: Millis) -> list[OffsetCommitValue]:
        return [
            OffsetCommitValue(
                offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=now, topic_id=topic_id
            )
            for offset, (epoch, metadata, topic_id) in zip(offsets, self._constants, strict=True)
        ]

    def _encoded(self, offsets: Sequence[int], now: Millis) -> bytes:
        parts = []
        for delta, ((topic, index), value) in enumerate(zip(self.places, self._values(offsets, now), strict=True)):
            record = offset_record(self.group_id, topic, index, value)
            parts.append(encode_record(NewRecord(record.key, record.value, now), 0, delta))
        return b"".join(parts)
