"""A Kafka client of a few requests over one raw connection, for tests that look at bytes and moments."""

from __future__ import annotations

from typing import Any

from edges import Wire

from kohort.wire.batches import NewRecord, decode_records, encode_batch, split_batches
from kohort.wire.codec import decode, encode_request, is_flexible
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kohort.wire.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kohort.wire.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kohort.wire.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS: dict[type, tuple[int, type]] = {
    CreateTopicsRequest: (7, CreateTopicsResponse),
    FetchRequest: (12, FetchResponse),
    HeartbeatRequest: (3, HeartbeatResponse),
    JoinGroupRequest: (3, JoinGroupResponse),
    OffsetCommitRequest: (8, OffsetCommitResponse),
    OffsetFetchRequest: (7, OffsetFetchResponse),
    ProduceRequest: (9, ProduceResponse),
    SyncGroupRequest: (3, SyncGroupResponse),
}


class RawKafka(Wire):
    """Requests may be pipelined: `ask_later` some, then `answer` as many."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._asked: list[tuple[int, type]] = []

    def ask_later(self, message: Any) -> None:
        version, response = VERSIONS[type(message)]
        self._asked.append((version, response))
        self.sendall(encode_request(message, version, 1, "raw"))

    def answer(self) -> Any:
        version, response = self._asked.pop(0)
        data = self.pull()
        flexible = is_flexible(response, version)
        _, start = read_response_header(data, flexible=flexible, api_key=schema_of(response).api_key or 0)
        return decode(response, version, data, start)

    def call(self, message: Any) -> Any:
        self.ask_later(message)
        return self.answer()


def create_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
    return CreateTopicsRequest(topics=(topic,))


def produce(topic: str, partition: int, *values: bytes, acks: int = -1) -> ProduceRequest:
    records = encode_batch([NewRecord(key=None, value=value, timestamp=1) for value in values])
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=(TopicProduceData(name=topic, partition_data=(data,)),)
    )


def produced_at(response: ProduceResponse) -> int:
    """The base offset of the only batch."""
    [topic] = response.responses
    [partition] = topic.partition_responses
    assert partition.error_code == 0, partition
    return partition.base_offset


def fetch(topic: str, partition: int, offset: int, most: int = 1 << 20) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=(FetchTopic(topic=topic, partitions=(wanted,)),)
    )


def stored(client: RawKafka, topic: str, partition: int) -> dict[int, bytes | None]:
    """All records of a partition: offset and value."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while True:
        response = client.call(fetch(topic, partition, offset))
        data = response.responses[0].partitions[0]
        assert data.error_code == 0
        for header, batch in split_batches(data.records or b"", strict=False):
            found.update((record.offset, record.value) for record in decode_records(batch))
            offset = header.last_offset + 1
        if offset >= data.high_watermark:
            return found


def commit(group: str, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(wanted,)),)
    return OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def committed(client: RawKafka, group: str, topic: str, partition: int) -> int:
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,))
    response = client.call(OffsetFetchRequest(group_id=group, topics=(wanted,)))
    return int(response.topics[0].partitions[0].committed_offset)
