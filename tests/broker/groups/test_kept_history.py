"""Compaction keeps the newest commits of groups as they were written: a reader of `__consumer_offsets` sees rewinds."""

from __future__ import annotations

import pytest
from group_driver import commit, committed
from wire_driver import START_MS, Wire, produce_request, with_topic

from kohort.broker.topics.catalog import OFFSETS_TOPIC
from kohort.coordinator.events import Record
from kohort.coordinator.records import parse
from kohort.wire.batches import NewRecord, decode_records, encode_batch
from kohort.wire.schemas.group_records import OffsetCommitKey

MINUTE = 60_000
ONE_SHARD = {"offsets_topic_num_partitions": 1, "journal_enable": False, "log_cleaner_min_cleanable_ratio": 0}


def offsets(wire: Wire) -> list[int]:
    """The committed offsets that the log has, oldest first."""
    [partition] = wire.partitions(OFFSETS_TOPIC)
    read = wire.storage.read(partition.log, 0, 1 << 30)
    records = [record for each in read for record in decode_records(each.data)]
    parsed = [parse(Record(record.key, record.value)) for record in records if record.key is not None]
    return [value.offset for key, value in filter(None, parsed) if isinstance(key, OffsetCommitKey)]


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        ({}, [10, 20, 5, 30]),
        ({"offsets_topic_history_bytes": 0}, [30]),
        ({"offsets_topic_history_ms": 5 * MINUTE}, [30]),
        ({"offsets_topic_history_ms": 20 * MINUTE}, [10, 20, 5, 30]),
    ],
)
def test_a_rewind_is_in_the_log_for_as_long_as_the_settings_say(config: dict[str, int], seen: list[int]) -> None:
    client = with_topic(**ONE_SHARD, **config)
    for offset in (10, 20, 5, 30):
        assert commit(client, offset) == 0
    client.wire.advance(2 * MINUTE)
    commit(client, 1, group="another")  # the last batch is never compacted, nor what was appended shortly before
    client.wire.advance(10 * MINUTE)
    assert offsets(client.wire) == [*seen, 1]
    again = client.wire.restarted(**ONE_SHARD, **config)
    again.advance(MINUTE)
    assert offsets(again) == [*seen, 1]
    assert committed(again.connect()) == 30


def test_all_partitions_together_keep_to_the_limit() -> None:
    """A start reads what all of them keep. Data in memory has an eighth of the setting."""
    client = with_topic(offsets_topic_num_partitions=4, offsets_topic_history_bytes=8 * 20_000, journal_enable=False)
    for number in range(400):
        for group in "abcdefgh":
            assert commit(client, number, group=group) == 0
    client.wire.advance(10 * MINUTE)
    sizes = [partition.size for partition in client.wire.partitions(OFFSETS_TOPIC)]
    assert all(sizes)
    assert 14_000 < sum(sizes) < 26_000, sizes


def test_other_compacted_logs_keep_nothing() -> None:
    client = Wire().connect()
    client.create_topic("t", cleanup_policy="compact")
    for n in range(20):
        client.ask(produce_request("t", encode_batch([NewRecord(b"k", b"%d" % n, START_MS)])), 9)
    client.wire.advance(10 * MINUTE)
    assert client.values("t") == [b"18", b"19"]
