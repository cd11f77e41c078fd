"""A Kafka client of a few requests over one raw connection, for tests that look at bytes and moments."""

from __future__ import annotations

from typing import Any

from edges import Wire
from wire_driver import batch, fetch_request, produce_request

from kohort.simulator.checks.onlooker import response_of
from kohort.wire.batches import decode_records, split_batches
from kohort.wire.codec import decode, encode_request, is_flexible
from kohort.wire.framing import read_response_header
from kohort.wire.schema import schema_of
from kohort.wire.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest
from kohort.wire.schemas.alter_client_quotas import AlterClientQuotasRequest
from kohort.wire.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.schemas.describe_client_quotas import DescribeClientQuotasRequest
from kohort.wire.schemas.describe_groups import DescribeGroupsRequest
from kohort.wire.schemas.fetch import FetchRequest
from kohort.wire.schemas.find_coordinator import FindCoordinatorRequest
from kohort.wire.schemas.heartbeat import HeartbeatRequest
from kohort.wire.schemas.incremental_alter_configs import IncrementalAlterConfigsRequest
from kohort.wire.schemas.init_producer_id import InitProducerIdRequest
from kohort.wire.schemas.join_group import JoinGroupRequest
from kohort.wire.schemas.offset_commit import OffsetCommitRequest
from kohort.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.schemas.produce import ProduceRequest, ProduceResponse
from kohort.wire.schemas.sync_group import SyncGroupRequest

VERSIONS: dict[type, int] = {
    AddPartitionsToTxnRequest: 4,
    AlterClientQuotasRequest: 1,
    CreateTopicsRequest: 7,
    DescribeClientQuotasRequest: 1,
    DescribeGroupsRequest: 4,
    FetchRequest: 12,
    FindCoordinatorRequest: 4,
    HeartbeatRequest: 3,
    IncrementalAlterConfigsRequest: 1,
    InitProducerIdRequest: 4,
    JoinGroupRequest: 3,
    OffsetCommitRequest: 8,
    OffsetFetchRequest: 7,
    ProduceRequest: 9,
    SyncGroupRequest: 3,
}


class RawKafka(Wire):
    """Requests may be pipelined: `ask_later` some, then `answer` as many."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._asked: list[type] = []

    def ask_later(self, message: Any) -> None:
        self._asked.append(type(message))
        self.sendall(encode_request(message, VERSIONS[type(message)], 1, "raw"))

    def answer(self) -> Any:
        request = self._asked.pop(0)
        version, response = VERSIONS[request], response_of(request)
        data = self.pull()
        flexible = is_flexible(response, version)
        _, start = read_response_header(data, flexible=flexible, api_key=schema_of(response).api_key or 0)
        return decode(response, version, data, start)

    def call(self, message: Any) -> Any:
        self.ask_later(message)
        return self.answer()


def create_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=(topic,))


def produce(topic: str, partition: int, *values: bytes) -> ProduceRequest:
    return produce_request(topic, batch(*values, timestamp=1), partition)


def produced_at(response: ProduceResponse) -> int:
    """The base offset of the only batch."""
    [topic] = response.responses
    [partition] = topic.partition_responses
    assert partition.error_code == 0, partition
    return partition.base_offset


def stored(client: RawKafka, topic: str, partition: int) -> dict[int, bytes | None]:
    """All records of a partition: offset and value."""
    found: dict[int, bytes | None] = {}
    offset = 0
    while True:
        response = client.call(fetch_request(topic, offset, partition))
        data = response.responses[0].partitions[0]
        assert data.error_code == 0
        for header, whole in split_batches(data.records or b"", strict=False):
            found.update((record.offset, record.value) for record in decode_records(whole))
            offset = header.last_offset + 1
        if offset >= data.high_watermark:
            return found


def committed(client: RawKafka, group: str, topic: str, partition: int) -> int:
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,))
    response = client.call(OffsetFetchRequest(group_id=group, topics=(wanted,)))
    return int(response.topics[0].partitions[0].committed_offset)
