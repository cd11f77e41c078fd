"""Requests that look valid and are not: none of them may stop the process, at once or later."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import google_crc32c
import pytest
from group_driver import join_request
from wire_driver import (
    APPEND,
    BROKER,
    GROUP,
    SET,
    START_MS,
    SUBTRACT,
    TOPIC,
    Connection,
    Wire,
    produce_request,
    with_topic,
)

from kohort.broker import group_shards
from kohort.broker.logs import time_search
from kohort.broker.messages import changed
from kohort.storage.memory import MemoryStorage
from kohort.storage.protocol import Storage
from kohort.storage.sqlite import SqliteStorage
from kohort.wire.batches import NewRecord, encode_batch
from kohort.wire.errors import ErrorCode
from kohort.wire.records import varint
from kohort.wire.schemas.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.schemas.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.schemas.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.schemas.produce import PartitionProduceData, TopicProduceData

PARTITIONS = 1
GARBAGE = b"\x0e" + bytes([0xFF] * 7)
"""A record of seven bytes that are none."""


def forged(body: bytes, count: int, max_timestamp: int = START_MS) -> bytes:
    """A batch with a valid header and checksum over arbitrary bytes."""
    covered = struct.pack(">hiqqqhii", 0, count - 1, START_MS, max_timestamp, -1, -1, -1, count) + body
    checksum = google_crc32c.value(covered)
    return struct.pack(">qiibI", 0, len(covered) + 9, 0, 2, checksum) + covered


def produce_data(client: Connection, data: bytes) -> None:
    assert client.produced(produce_request("t", data)).error_code == 0


def alter(client: Connection, **configs: str) -> int:
    changes = [(name.replace("_", "."), SET, value) for name, value in configs.items()]
    return client.alter_configs("t", TOPIC, *changes)[0]


def compacted(wire: Wire, *data: bytes, **configs: str) -> list[int]:
    """The offsets of the batches that are left."""
    client = wire.connect()
    client.create_topic("t")
    for one in data:
        produce_data(client, one)
    assert alter(client, cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", **configs) == 0
    wire.advance(60_000)
    return [found.base_offset for found in wire.storage.read(wire.partitions("t")[0].log, 0, 1_000_000)]


@pytest.mark.parametrize("timestamp", [START_MS - 5, START_MS, -3])
def test_a_search_by_time_passes_over_unreadable_records(client: Connection, timestamp: int) -> None:
    produce_data(client, forged(GARBAGE, 1))
    found = client.listed(timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, START_MS)


def placed(base: int, delta: int, step: int) -> bytes:
    """A batch whose record is this far from the base timestamp and the base offset."""
    record = b"\0" + varint(delta) + varint(step) + b"\x01\x01\0"
    batch = bytearray(forged(varint(len(record)) + record, 1))
    batch[27:35] = base.to_bytes(8, "big", signed=True)
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def test_times_wrap_around_as_in_javas_longs(client: Connection) -> None:
    produce_data(client, placed(2**63 - 1, 5, 0))
    found = client.listed(START_MS)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1), "the record's time is before all others"
    found = client.listed(-3)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, 4 - 2**63)


@pytest.mark.parametrize("step", [7, -1])
def test_offsets_beyond_what_an_answer_can_hold(client: Connection, step: int) -> None:
    produce_data(client, placed(START_MS, 1, step))
    for timestamp in (START_MS, -3):
        found = client.listed(timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, 0, START_MS)


def test_compaction_leaves_records_that_cannot_be_read() -> None:
    keyed = [encode_batch([NewRecord(b"k", b"%d" % n, START_MS)]) for n in range(3)]
    assert compacted(Wire(), forged(GARBAGE, 1), *keyed) == [0, 2, 3]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_compaction_of_records_newer_than_their_header_says(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage: Storage = MemoryStorage() if engine == "memory" else SqliteStorage(tmp_path_factory.mktemp("data"))
    body = encode_batch([NewRecord(b"k", b"old", START_MS), NewRecord(b"x", b"stays", START_MS)])[61:]
    later = [encode_batch([NewRecord(b"k", b"%d" % n, START_MS)]) for n in range(2)]
    assert compacted(Wire(storage), forged(body, 2, max_timestamp=1000), *later) == [0, 2, 3]
    storage.close()


@pytest.mark.parametrize("timestamp", [START_MS, START_MS - 2**63 + 10])
def test_tombstones_may_stay_for_ever(timestamp: int) -> None:
    tombstone = encode_batch([NewRecord(b"k", None, timestamp)])
    others = [encode_batch([NewRecord(b"%d" % n, b"v", START_MS)]) for n in range(2)]
    assert compacted(Wire(), tombstone, *others, delete_retention_ms=str(2**63 - 1)) == [0, 1, 2]


def errors_of(client: Connection, *batches: bytes) -> list[int]:
    """The error of each batch of one request."""
    data = tuple(PartitionProduceData(index=0, records=batch) for batch in batches)
    request = changed(produce_request("t", b""), topic_data=(TopicProduceData(name="t", partition_data=data),))
    return [one.error_code for one in client.ask(request, 9).responses[0].partition_responses]


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_batches_that_expand_beyond_the_limit(compression: int) -> None:
    client = with_topic(message_max_bytes=10_000_000, message_max_uncompressed_bytes=12_000_000)
    six, thirteen = (
        encode_batch([NewRecord(b"k", bytes(n * 1_000_000), START_MS)], compression=compression) for n in (6, 13)
    )
    too_large, again = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.REQUEST_TIMED_OUT
    assert errors_of(client, six) == [0]
    assert errors_of(client, thirteen) == [too_large]
    assert errors_of(client, six, six) == [0, again], "two of them are more than a request may have"
    assert errors_of(client, thirteen, six) == [too_large, again], "what was refused has cost as much"
    assert errors_of(client, encode_batch([NewRecord(b"k", bytes(9_000_000), START_MS)])) == [0]


def test_batches_of_very_many_records() -> None:
    client = with_topic(message_max_records=1_000)
    most, more = (encode_batch([NewRecord(None, None, START_MS)] * count) for count in (1_000, 1_001))
    half, one = (encode_batch([NewRecord(None, None, START_MS)] * count) for count in (600, 1))
    assert errors_of(client, more) == [ErrorCode.MESSAGE_TOO_LARGE]
    assert errors_of(client, most) == [0]
    assert errors_of(client, half, half, one) == [0, ErrorCode.REQUEST_TIMED_OUT, 0]


def test_a_batch_with_more_records_than_its_count_is_refused(client: Connection) -> None:
    assert errors_of(client, forged(bytes(1_000_000), 1)) == [ErrorCode.INVALID_RECORD]


def test_one_request_creates_a_limited_number_of_topics_and_partitions(client: Connection) -> None:
    wanted = tuple(CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(510))
    errors = Counter(topic.error_code for topic in client.ask(CreateTopicsRequest(topics=wanted), 7).topics)
    assert errors == {0: 500, ErrorCode.POLICY_VIOLATION: 10}
    grown = CreatePartitionsTopic(name="t0", count=5_002, assignments=None)
    response = client.ask(CreatePartitionsRequest(topics=(grown,)), 3)
    assert response.results[0].error_code == ErrorCode.POLICY_VIOLATION


def test_requested_topics_are_created_gradually(client: Connection) -> None:
    asked = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"t{n}") for n in range(900)))
    for missing in (400, 0):
        errors = Counter(topic.error_code for topic in client.ask(asked, 9).topics)
        assert errors[ErrorCode.LEADER_NOT_AVAILABLE] == missing
        assert errors[0] == 900 - missing


def test_the_same_complaint_is_logged_three_times_at_most(client: Connection) -> None:
    assert len(client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=("g",) * 9), 4).coordinators) == 3
    assert len(client.ask(DescribeGroupsRequest(groups=("g", "h") * 9), 5).groups) == 6
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    assert len(client.ask(DescribeConfigsRequest(resources=(asked,) * 9), 4).results) == 3
    twice = client.ask(DescribeConfigsRequest(resources=(asked, asked)), 4).results
    assert twice[0] == twice[1]


@pytest.mark.parametrize(
    ("limit", "request_", "version"),
    [
        ("admin.request.max.bytes", DeleteTopicsRequest(topics=(DeleteTopicState(name="t" * 4_000),)), 6),
        ("group.request.max.bytes", FindCoordinatorRequest(key_type=0, coordinator_keys=("g" * 4_000,)), 4),
        ("group.request.max.bytes", join_request(member="m" * 4_000), 3),
    ],
)
def test_large_requests_close_the_connection(limit: str, request_: Any, version: int) -> None:
    client = Wire(**{limit.replace(".", "_"): 1_024}).connect()
    client.send(request_, version)
    assert limit in (client.disconnected or "")


def test_values_are_added_to_long_lists_and_taken_from_them(client: Connection) -> None:
    name = "leader.replication.throttled.replicas"
    for operation, value in ((SET, "a,b"), (APPEND, "b,c,c"), (SUBTRACT, "a,x")):
        assert client.alter_configs("t", TOPIC, (name, operation, value)) == (0, None)
    [entry] = client.describe_configs("t", TOPIC, (name,)).configs
    assert entry.value == "b,c,c"


@pytest.mark.parametrize(
    ("version", "later"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (7, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_search_by_time_reads_a_limited_number_of_records_per_request(
    version: int, later: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_search, "SEARCHED", 1_500)
    client = with_topic(4)
    for index in range(4):
        client.produce("t", *["v"] * 1_000, partition=index)
    left = dict.fromkeys(range(4))
    rounds = []
    while left:
        asked = tuple(ListOffsetsPartition(partition_index=index, timestamp=START_MS) for index in left)
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=asked),))
        found = client.ask(request, version).topics[0].partitions
        rounds.append([one.error_code for one in found])
        for one in found:
            if not one.error_code:
                assert (one.offset, one.timestamp) == (0, START_MS)
                del left[one.partition_index]
    assert rounds == [[0, 0, later, later], [0, 0]]


def test_a_broker_of_many_digits(client: Connection) -> None:
    assert client.describe_configs("1" * 5000, BROKER).error_code == ErrorCode.INVALID_REQUEST


def test_a_config_value_that_older_versions_could_not_answer(client: Connection) -> None:
    name = "follower_replication_throttled_replicas"
    assert alter(client, **{name: "x" * 40_000}) == ErrorCode.INVALID_CONFIG
    assert alter(client, **{name: "\U0001f600" * 8_000}) == 0
    assert client.describe_configs("t", TOPIC, version=1).error_code == 0


def test_long_group_ids_are_not_kept(client: Connection) -> None:
    before = group_shards._shard_of.cache_info().currsize
    key = "g" * 100_000
    response = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=(key,)), 4)
    assert response.coordinators[0].node_id == 1
    assert group_shards._shard_of.cache_info().currsize == before


def test_partitions_are_not_added_with_more_replicas_than_brokers() -> None:
    wire = Wire(brokers=3)
    wire.connect().create_topic("t", factor=3)
    client = wire.restarted(brokers=1).connect()
    asked = CreatePartitionsTopic(name="t", count=2, assignments=None)
    response = client.ask(CreatePartitionsRequest(topics=(asked,)), 3)
    assert response.results[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert client.produce("t", "goes on") == 0


@pytest.mark.parametrize(("name", "value"), [("x" * 32_767, "1"), ("retention.ms", "x" * 32_767)])
def test_a_refusal_does_not_quote_more_than_an_answer_can_hold(client: Connection, name: str, value: str) -> None:
    assert client.alter_configs("t", TOPIC, (name, SET, value), version=0)[0] == ErrorCode.INVALID_CONFIG
    wanted = CreatableTopic(name="u", num_partitions=1, configs=(CreatableTopicConfig(name=name, value=value),))
    response = client.ask(CreateTopicsRequest(topics=(wanted,)), 3)
    assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("value", ["1_000", "١٢"])
def test_numbers_are_written_as_other_languages_read_them(client: Connection, value: str) -> None:
    assert alter(client, retention_ms=value) == ErrorCode.INVALID_CONFIG
    assert alter(client, min_cleanable_dirty_ratio=f"0.{value}") == ErrorCode.INVALID_CONFIG
