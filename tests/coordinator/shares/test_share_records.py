"""The bytes of share-partitions' records, and of those that say which share-partitions a group has."""

from __future__ import annotations

import pytest

from kohort.coordinator import records
from kohort.coordinator.events import Record
from kohort.coordinator.share_groups.records import states_record
from kohort.coordinator.shares.events import ShareKey
from kohort.coordinator.shares.records import parse, share_record
from kohort.coordinator.shares.state import Snapshot, Update
from kohort.wire.codec import encode
from kohort.wire.schemas.share_group_records import (
    EarlierShareGroupStatePartitionMetadataValue,
    EarlierTopicPartitionsInfo,
    TopicInfo,
    TopicPartitionsInfo,
)

KEY = ShareKey("g", bytes(range(16)), 3)
CELLS = ((5, 9, 2, 1), (12, 1 << 40, 0, 2))
VALUES = [
    Snapshot(0, 1, 0, -1, -1, 1_760_000_000_000, 1_760_000_000_001),
    Snapshot(65_535, 7, 3, 1 << 40, 5, 1_760_000_000_000, 1_760_000_000_001, CELLS),
    Update(7, 0, 0, -1),
    Update(7, 0, 4, 0),
    Update(7, 9, 4, 5, CELLS),
    Update(7, 9, 4, 5, tuple((at, at, 4, 1) for at in range(0, 40_000, 2))),
]


@pytest.mark.parametrize("value", VALUES)
def test_records_with_a_short_epoch_are_read(value: Snapshot | Update) -> None:
    """Records of kohort 0.1 had two bytes for it, those of Apache Kafka have four."""
    record = share_record(KEY, value)
    assert record.value is not None
    assert record.value[:6] == b"\0\0" + value.snapshot_epoch.to_bytes(4, "big")
    assert parse(record) == (KEY, value)
    assert parse(Record(record.key, b"\0\0" + record.value[4:])) == (KEY, value)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_records_of_a_groups_topics_with_a_time_are_read(count: int) -> None:
    """Earlier records of kohort have one for each topic, those of Apache Kafka have none."""
    ids = [bytes([index]) * 16 for index in range(count)]
    infos = {at: TopicPartitionsInfo(topic_id=at, topic_name=f"t{at[0]}", partitions=(0, 1, 2)) for at in ids}
    record = states_record("g", infos, {}, {ids[0]: "t0"})
    earlier = tuple(
        EarlierTopicPartitionsInfo(
            topic_id=at, topic_name=info.topic_name, partitions=info.partitions, create_timestamp=1_760_000_000_000
        )
        for at, info in infos.items()
    )
    value = EarlierShareGroupStatePartitionMetadataValue(
        initializing_topics=(),
        initialized_topics=earlier,
        deleting_topics=(TopicInfo(topic_id=ids[0], topic_name="t0"),),
    )
    assert record.value is not None
    assert records.parse(Record(record.key, b"\0\0" + encode(value, 0))) == records.parse(record)
